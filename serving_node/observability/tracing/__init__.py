"""Traces of requests: Triton's settings, its file format, and OpenTelemetry. See docs/reference/tracing.md."""
