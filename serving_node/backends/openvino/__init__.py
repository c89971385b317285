"""The OpenVINO backend."""
