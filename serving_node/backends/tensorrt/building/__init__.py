"""Engines from ONNX. TensorRT runs in a process of its own: building takes minutes, much memory, and may crash."""
