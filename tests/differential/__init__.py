"""The same calls to a real Triton and to the node, every answer compared. See docs/howto/compare-with-triton.md."""
