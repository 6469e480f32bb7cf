"""What the GPU's driver says of the device that the engine computes on."""
