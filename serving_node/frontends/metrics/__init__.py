"""The metrics port."""
