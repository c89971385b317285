"""How workers talk to nodes: one asynchronous interface, a client per kind of node, and a fake for tests."""
