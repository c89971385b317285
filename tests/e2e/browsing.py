"""People in Debian's Chromium who notice everything that goes wrong in their pages."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Locator, Page

from tests.e2e.running import wait_until

CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--disable-quic",
]
STEP_SECONDS = 30

# Runs before anything of the page: remembers what the page showed on the way, and what the policy refused.
RECORDER = """
(() => {
  const seen = window.__seen = { states: {}, progress: [], checks: [] };
  const push = (list, value) => { if (list[list.length - 1] !== value) list.push(value); };
  const look = () => {
    for (const row of document.querySelectorAll("[data-testid=unit-row]")) {
      const cell = row.querySelector("[data-testid=unit-state]");
      if (cell) push(seen.states[row.dataset.unit] ??= [], cell.dataset.state);
    }
    for (const bar of document.querySelectorAll("#file-list progress")) push(seen.progress, bar.value);
    push(seen.checks, document.querySelectorAll("[data-testid=checks] [data-check]").length);
  };
  const watch = { subtree: true, childList: true, attributes: true, attributeFilter: ["data-state", "value"] };
  new MutationObserver(look).observe(document, watch);
  addEventListener("securitypolicyviolation", (event) =>
    window.reportViolation(`${event.violatedDirective}: ${event.blockedURI} ${event.sourceFile}:${event.lineNumber}`));
})();
"""

CHART = """
(name) => {
  const table = document.querySelector(`[data-chart="${name}"] table`);
  const text = (cells) => [...cells].map((cell) => cell.textContent.trim());
  const heads = text(table.querySelectorAll("thead th")).slice(1);
  const rows = [...table.querySelectorAll("tbody tr")].map((row) => text(row.querySelectorAll("td")));
  return heads.map((head, index) => [head, rows.map((row) => row[index]).reverse()]);
}
"""


class Person:
    """Somebody at a browser of their own. ``problems`` holds what no page may do; ``forgive`` takes an expected one."""

    def __init__(self, browser: Browser, url: str) -> None:
        self.url = url
        self.problems: list[str] = []
        self.context = browser.new_context(reduced_motion="reduce", viewport={"width": 1280, "height": 900})
        self.context.set_default_timeout(STEP_SECONDS * 1000)
        self.context.expose_binding("reportViolation", lambda _source, text: self.problems.append(f"policy: {text}"))
        self.context.add_init_script(RECORDER)
        self.page: Page = self.context.new_page()
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.problems.append(f"thrown: {error}"))
        self.page.on("request", self._request)
        self.page.on("response", self._response)

    def _console(self, message: Any) -> None:
        if message.type == "error":
            self.problems.append(f"console: {message.text} ({message.location.get('url', '')})")

    def _request(self, request: Any) -> None:
        if not request.url.startswith((self.url, "data:", "blob:")):
            self.problems.append(f"another host is asked: {request.url}")

    def _response(self, response: Any) -> None:
        if response.status >= 500:
            self.problems.append(f"{response.status}: {response.url}")

    def forgive(self, pattern: str) -> None:
        """Take exactly the problems that match out of the list; there must be one."""
        kept = [problem for problem in self.problems if not re.search(pattern, problem)]
        assert len(kept) < len(self.problems), f"nothing matches {pattern}: {self.problems}"
        self.problems = kept

    def open(self, path: str) -> Page:
        """Go to a path of the console."""
        self.page.goto(self.url + path)
        return self.page

    def get(self, test_id: str) -> Locator:
        """The element with that data-testid."""
        return self.page.get_by_test_id(test_id)

    def sign_in(self, username: str, password: str) -> None:
        """Sign in with the mouse and the keyboard."""
        self.open("/login/")
        self.get("login-username").fill(username)
        self.get("login-password").fill(password)
        self.get("login-submit").click()
        self.page.wait_for_url(f"{self.url}/")

    def mark(self) -> None:
        """Leave a mark in the window that a reload would wipe out."""
        self.page.evaluate("window.__mark = 'still here'")

    def assert_not_reloaded(self) -> None:
        """The mark is still there."""
        assert self.page.evaluate("window.__mark") == "still here", "the page was loaded again"

    def seen(self, what: str) -> Any:
        """What the recorder saw on this page: states by unit, values of the progress bar, counts of checks."""
        return self.page.evaluate("(what) => window.__seen[what]", what)

    def drop(self, file: Path) -> None:
        """Drag a file from the desktop onto the drop zone."""
        box = self.get("upload-dropzone").bounding_box()
        assert box is not None
        data = {"items": [], "files": [str(file)], "dragOperationsMask": 1}
        place = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2, "data": data}
        devtools = self.context.new_cdp_session(self.page)
        for kind in ("dragEnter", "dragOver", "drop"):
            devtools.send("Input.dispatchDragEvent", {"type": kind, **place})
        devtools.detach()

    def slow_uploads(self, bytes_per_second: int) -> Callable[[], None]:
        """Make the network of this page slow; the answer makes it fast again."""
        devtools = self.context.new_cdp_session(self.page)
        rates = {"offline": False, "latency": 5, "downloadThroughput": -1}
        devtools.send("Network.enable")
        devtools.send("Network.emulateNetworkConditions", {**rates, "uploadThroughput": bytes_per_second})

        def fast() -> None:
            devtools.send("Network.emulateNetworkConditions", {**rates, "latency": 0, "uploadThroughput": -1})
            devtools.detach()

        return fast

    def chart(self, metrics: str) -> dict[str, list[float]]:
        """Return the numbers of a chart by line, oldest first, as they stand in its table."""
        lines = self.page.evaluate(CHART, metrics)
        return {head: [number for value in values if (number := _number(value)) is not None] for head, values in lines}

    def wait_for_chart(self, metrics: str, *lines: str, seconds: float = 60) -> dict[str, list[float]]:
        """Wait until the chart is drawn and each line has a value above zero."""
        plot = self.page.locator(f'[data-chart="{metrics}"] .uplot canvas')

        def drawn() -> Any:
            numbers = self.chart(metrics)
            full = all(any(value > 0 for value in numbers.get(line, [])) for line in lines)
            return numbers if full and plot.count() and plot.is_visible() else None

        return dict(wait_until(drawn, f"chart {metrics} shows {lines}", seconds))

    def tab_to(self, test_id: str, most: int = 60) -> None:
        """Press Tab until the element has the focus."""
        for _ in range(most):
            if self.page.evaluate("document.activeElement?.dataset?.testid") == test_id:
                return
            self.page.keyboard.press("Tab")
        raise AssertionError(f"Tab does not reach {test_id}")


def _number(text: str) -> float | None:
    """Read the number at the head of a cell; None for a gap."""
    found = re.match(r"-?[\d.]+", text)
    return float(found[0]) if found else None
