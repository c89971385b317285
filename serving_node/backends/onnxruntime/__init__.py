"""Models in ONNX format, run by ONNX Runtime in this process."""
