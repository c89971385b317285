"""Django settings. ``console.settings`` is what every process and the tests use; the environment fills it in."""

from console.settings.base import *  # noqa: F403
