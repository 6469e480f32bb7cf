"""Grafana boards, one file each; shared rows have files of their own."""
