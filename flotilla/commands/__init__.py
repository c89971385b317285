"""The client commands, one module for each group of nouns."""
