"""Hints of the domain become task ids on queues."""
