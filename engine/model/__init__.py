"""Models: reading weights from disk and the forward pass over one flat batch."""
