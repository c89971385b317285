"""What every part of the node speaks: requests, tensors, errors. No sockets, clocks or threads."""
