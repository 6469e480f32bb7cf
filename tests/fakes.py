"""Test doubles shared by the whole suite; the product has none."""
