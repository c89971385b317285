"""The domain: models hold, domain decides, services write, selectors read. No HTTP, no Celery."""
