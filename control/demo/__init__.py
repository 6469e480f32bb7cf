"""Demonstrations that measure the product against itself: the two incidents, replayed for real."""
