"""Attention and linear backends behind small interfaces; torch is the reference."""
