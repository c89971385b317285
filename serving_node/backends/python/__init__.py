"""Models written in Python, each instance in a process of its own. Source: Triton's Python backend."""
