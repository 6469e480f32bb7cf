"""The lab's experiments once more, on the real product with real clients, and both side by side."""
