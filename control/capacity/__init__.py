"""Capacity planning: what a model needs on a device, and what fits, by closed formulas."""
