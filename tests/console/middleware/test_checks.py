from __future__ import annotations

from typing import Any

from django.core.checks import run_checks

from console.checks import INSECURE_KEY


def found(**options: Any) -> set[str]:
    return {message.id for message in run_checks(**options) if str(message.id).startswith("console.")}


def test_settings_of_the_tests_are_fine() -> None:
    assert found() == set()


def test_unsafe_settings_are_named(settings: Any) -> None:
    settings.TRUSTED_PROXIES = ["not-an-address"]
    settings.PUBLIC_URL = "https://console.example"
    settings.MAX_UPLOAD_BYTES = 0
    settings.SECRET_KEY = INSECURE_KEY
    assert found(include_deployment_checks=True) == {"console.E001", "console.E002", "console.E003", "console.W001"}
