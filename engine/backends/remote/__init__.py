"""Engines of other makers behind an HTTP address: what they are, what they tell, how to ask."""
