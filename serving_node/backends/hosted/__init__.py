"""Any backend in worker processes instead of threads of the node's own process."""
