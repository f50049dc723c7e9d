"""Base classes of old handlers."""
