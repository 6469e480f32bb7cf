"""Doors: where requests enter and tokens leave; each speaks one protocol."""
