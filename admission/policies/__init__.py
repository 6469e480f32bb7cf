"""Admission policies: who may come in now, one a file, all in one table."""
