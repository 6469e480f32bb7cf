"""Benchmarks of the engine and of the sidecar's own cost, each against what it is compared with."""
