"""Surgetank: overload control and observability in front of an LLM inference engine."""

__version__ = "0.1.0"
