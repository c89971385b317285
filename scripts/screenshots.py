"""Pictures of the main pages of a running Flotilla that ``flotilla demo`` has filled: light, dark and phone width.

    python scripts/screenshots.py FOLDER --url http://127.0.0.1:7070 --username admin --password-file FILE

Needs Debian's Chromium and playwright. The name of a picture is ``<page>-<look>.png``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from playwright.sync_api import Error, sync_playwright

CHROMIUM = "/usr/bin/chromium"
QUIET = (
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--disable-quic",
)
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light", "has_touch": True},
}
MODEL = "/p/{project}/models/{model}/"
FIXED = {
    "home": "/",
    "models": "/p/{project}/models/",
    "model": MODEL,
    "versions": MODEL + "versions/",
    "version": MODEL + "versions/1/",
    "measurements": MODEL + "versions/1/measurements/",
    "configs": MODEL + "configs/",
    "config": MODEL + "configs/1/",
    "config-edit": MODEL + "configs/new/",
    "metrics": MODEL + "metrics/",
    "try-it": MODEL + "try/",
    "activity": MODEL + "activity/",
    "deploy": MODEL + "deploy/",
    "upload": "/p/{project}/upload/",
    "deployments": "/p/{project}/deployments/",
    "approvals": "/approvals/",
    "fleet": "/fleet/",
    "join": "/fleet/join/",
    "members": "/settings/members/",
    "tokens": "/settings/tokens/",
    "environments": "/settings/environments/",
    "audit": "/audit/",
    "operations": "/operations/",
}
# Pages whose address is known only to a list: the list's address and the link to follow.
FOUND = {
    "deployment": ("/p/{project}/deployments/?q={model}", "[data-testid=deployment-table] a.title"),
    "approval": ("/approvals/", "main a.title"),
    "node": ("/fleet/", "[data-testid=fleet-table] a.title"),
    "operation": ("/operations/", "main table a"),
}


def sign_in(page: Any, url: str, username: str, password: str) -> None:
    """Sign in on the login page."""
    page.goto(f"{url}/login/")
    page.get_by_test_id("login-username").fill(username)
    page.get_by_test_id("login-password").fill(password)
    page.get_by_test_id("login-submit").click()
    page.wait_for_url(f"{url}/")


def addresses(page: Any, url: str, names: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield name and path of each page; what a list does not hold is left out and said."""
    for name, path in FIXED.items():
        yield name, path.format(**names)
    for name, (path, link) in FOUND.items():
        page.goto(url + path.format(**names))
        href = page.locator(link).first.get_attribute("href", timeout=3000) if page.locator(link).count() else None
        if href:
            yield name, href
        else:
            print(f"no {name} to show", file=sys.stderr)


def settle(page: Any) -> None:
    """Wait until nothing is on its way, as far as the page shows it."""
    page.wait_for_load_state("load")
    if page.locator("[data-charts]").count():
        try:
            page.wait_for_selector(".uplot canvas", timeout=8000)
        except Error:
            print(f"no chart has data: {page.url}", file=sys.stderr)
    page.evaluate("document.fonts.ready")
    page.wait_for_timeout(400)


def take(page: Any, target: Path, *, whole: bool) -> None:
    """Take one picture; the whole page, or what fits on the screen."""
    settle(page)
    page.screenshot(path=str(target), full_page=whole)


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--url", default="http://127.0.0.1:7070")
    parser.add_argument("--username", default="admin")
    parser.add_argument("--password-file", type=Path, required=True, help="a file that holds the password")
    parser.add_argument("--project", default="default")
    parser.add_argument("--model", default="digit-classifier")
    parser.add_argument("--look", choices=LOOKS, action="append", help="only these looks")
    parser.add_argument("--page", action="append", help="only these pages, by name")
    parser.add_argument("--screen", action="store_true", help="what fits on the screen instead of the whole page")
    parser.add_argument("--height", type=int, help="height of the screen in pixels")
    parser.add_argument("--query", default="", help="added to the address of each page, for example '?span=15m'")
    return parser.parse_args()


def main() -> int:
    """Write the pictures and return 0; 1 when a page answered with an error."""
    options = parse()
    options.folder.mkdir(parents=True, exist_ok=True)
    names = {"project": options.project, "model": options.model}
    broken = 0
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        for look in options.look or LOOKS:
            settings = dict(LOOKS[look])
            if options.height:
                settings["viewport"] = {**settings["viewport"], "height": options.height}
            context = browser.new_context(reduced_motion="reduce", **settings)
            page = context.new_page()
            if not options.page or "login" in options.page:
                page.goto(f"{options.url}/login/")
                take(page, options.folder / f"login-{look}.png", whole=False)
            sign_in(page, options.url, options.username, options.password_file.read_text().strip())
            for name, path in list(addresses(page, options.url, names)):
                if options.page and name not in options.page:
                    continue
                answer = page.goto(options.url + path + options.query)
                if answer is None or not answer.ok:
                    broken += 1
                    print(f"{path}: {answer.status if answer else 'no answer'}", file=sys.stderr)
                take(page, options.folder / f"{name}-{look}.png", whole=not options.screen)
            context.close()
        browser.close()
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
