"""Models of PyTorch: exported programs, AOTInductor packages, TorchScript, and modules from a Python file."""
