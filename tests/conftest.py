"""What holds for every test."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# Times depend on the machine, never on the code under test. CI draws the same examples each time, so that a landing
# does not fail for a reason that was there before; people and `make test-all` draw new ones.
settings.register_profile("people", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("people"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "people")
