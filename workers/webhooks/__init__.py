"""Delivers events to webhooks."""

from workers.webhooks.delivering import deliver_due

__all__ = ["deliver_due"]
