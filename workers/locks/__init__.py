"""One pass at a time: advisory locks of PostgreSQL, by node, deployment or process role."""

from workers.locks.advisory import Contended, advisory_lock, lock_key

__all__ = ["Contended", "advisory_lock", "lock_key"]
