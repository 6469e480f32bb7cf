"""Policies: pure functions from configuration and a snapshot to limit values, one a file."""
