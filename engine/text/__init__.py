"""Text to token ids and back: the part of a model that the sidecar needs, free of torch."""
