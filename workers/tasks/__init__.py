"""Celery tasks. Importing this package is cheap: the web process sends hints and needs none of the work behind them."""
