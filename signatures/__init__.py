"""OpenSSF model signatures: made by the command line, verified there, by the workers and again on the nodes."""
