"""What runs in the sandbox as ``python -m inside ORDER``. Of Flotilla it knows the open protocol's messages only."""
