"""What is verified about a version before it gets its number."""
