"""Model files turned into ONNX or made smaller, and compared with what they were made from."""
