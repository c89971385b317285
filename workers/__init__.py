"""Everything in the background: tasks, reconcile, checks, observation."""
