"""TensorRT engines (.plan files), run by TensorRT in this process, and built from ONNX in a process of their own."""
