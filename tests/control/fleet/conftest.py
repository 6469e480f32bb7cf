"""Fixtures: a redis-server of the test's own, and a line to it."""

from tests.admission.leases.conftest import line, server

__all__ = ["line", "server"]
