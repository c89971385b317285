"""The command line: ``tritonserver``'s flags by their names, and ours for joining a control plane."""

from serving_node.cli.command_line import CommandLine, main, parse

__all__ = ["CommandLine", "main", "parse"]
