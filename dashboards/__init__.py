"""Boards, alerts and runbooks, built from the metric catalogue."""
