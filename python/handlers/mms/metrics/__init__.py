"""Metrics that handlers count."""
