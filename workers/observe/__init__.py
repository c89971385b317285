"""The one process that watches every node: ``python -m workers.observe``."""
