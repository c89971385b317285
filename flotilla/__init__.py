"""The ``flotilla`` command and the Python SDK. Speaks HTTP to the console and starts processes; no logic of its own."""
