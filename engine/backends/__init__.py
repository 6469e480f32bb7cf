"""Engines as the gate drives them: the embedded one, and later remote ones."""
