"""The upload page in a real browser: folders, cuts, reloads, tabs, damage, and what the server has already."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest
from django.db import connections
from django.test import Client
from playwright.sync_api import Page, Route, expect

from registry.models import ModelVersion, Operation, Upload, VersionFile
from registry.services.checks import check_finish, check_start
from registry.services.operations import operation_claim, operation_report
from registry.services.staging import staging_path
from tests.console.conftest import ConsoleProcess, RunningConsole, signed_in
from tests.console.web.conftest import Served
from tests.console.web.test_browser import AXE, CHROMIUM, Visitor, console, pytestmark, visitor

__all__ = ["console", "pytestmark", "visitor"]

PAGE = "/p/wren/upload/"
UPLOADS = re.compile(r"/api/v1/uploads/")
MIB = 1 << 20

expect.set_options(timeout=30_000)
Found = TypeVar("Found")


def in_database(ask: Callable[[], Found]) -> Found:
    """Use the database in a thread: the browser's loop runs in this one."""

    def work() -> Found:
        try:
            return ask()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(work).result()


def arrived(model: str) -> dict[str, str]:
    """Return the SHA-256 of what the server has of the model's newest version, by path."""

    def ask() -> dict[str, str]:
        version = ModelVersion.objects.filter(model__slug=model).latest("created_at")
        staged = version.uploads.filter(state="received")
        found = {one.path: hashlib.sha256(staging_path(one.pk).read_bytes()).hexdigest() for one in staged}
        return found | dict(VersionFile.objects.filter(version=version).values_list("path", "blob__sha256"))

    return in_database(ask)


def digests(folder: Path) -> dict[str, str]:
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in folder.rglob("*")
        if file.is_file()
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model folder: a large file of several chunks, small ones beside it and below."""
    made = tmp_path / "heron"
    (made / "1").mkdir(parents=True)
    (made / "1/model.onnx").write_bytes(os.urandom(9 * MIB + 11))
    (made / "1/model.onnx.data").write_bytes(os.urandom(3 * MIB))
    for number in range(4):
        (made / f"labels-{number}.txt").write_text(f"label {number}\n" * 40)
    (made / "config.pbtxt").write_text('backend: "onnxruntime"\n')
    return made


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder for single files; the staging folder of the tests lies beside it."""
    made = tmp_path / "files"
    made.mkdir()
    return made


def open_page(visitor: Visitor, *, name: str = "bob") -> Page:
    visitor.sign_in(name)
    page: Page = visitor.open(PAGE)
    return page


def row(page: Page, path: str) -> Any:
    return page.get_by_test_id("upload-list").get_by_role("listitem").filter(has=page.get_by_text(path, exact=True))


def submitted(page: Page) -> Any:
    return page.locator("[data-version-state=validating]")


def test_a_folder_goes_up_several_files_at_once(visitor: Visitor, folder: Path) -> None:
    page = open_page(visitor)
    at_once: list[int] = []
    running: set[Any] = set()

    def sent(request: Any) -> None:
        if request.method == "PATCH":
            running.add(request)
            at_once.append(len(running))

    page.on("request", sent)
    page.on("requestfinished", lambda request: running.discard(request))
    page.get_by_test_id("upload-folder").set_input_files(folder)
    expect(page.get_by_test_id("upload-list").get_by_role("listitem")).to_have_count(7)
    expect(page.get_by_test_id("upload-model")).to_have_value("heron")
    page.get_by_test_id("upload-submit").click()
    submitted(page).wait_for()
    assert arrived("heron") == digests(folder)
    assert 2 <= max(at_once) <= 3
    expect(row(page, "1/model.onnx")).to_contain_text("SHA-256")
    assert page.evaluate("Object.keys(localStorage).filter((key) => key.startsWith('flotilla-upload')).length") == 0
    assert visitor.problems == []


def test_cuts_and_damage_on_the_way_are_survived(visitor: Visitor, folder: Path) -> None:
    page = open_page(visitor)
    big = folder / "1/model.onnx"
    troubles = ["cut", "busy", "damage"]

    def trouble(route: Route) -> None:
        request = route.request
        if request.method != "PATCH" or not troubles:
            return route.continue_()
        match troubles.pop(0):
            case "cut":
                return route.abort("connectionreset")
            case "busy":
                return route.fulfill(status=503, body='{"detail": "Busy.", "code": "busy"}')
        return route.continue_(post_data=bytes(int(request.headers.get("content-length", 4 * MIB))))

    page.route(UPLOADS, trouble)
    page.get_by_test_id("upload-files").set_input_files(big)
    page.get_by_test_id("upload-submit").click()
    interrupted = row(page, "model.onnx").filter(has_text="interrupted")
    for code in ("connection", "busy", "checksum_mismatch"):
        interrupted.filter(has_text=code).wait_for()
        page.evaluate("dispatchEvent(new Event('online'))")
    submitted(page).wait_for()
    assert arrived("model") == {"model.onnx": hashlib.sha256(big.read_bytes()).hexdigest()}


@pytest.mark.slow
def test_what_stays_damaged_fails_and_may_begin_anew(visitor: Visitor, files: Path) -> None:
    file = files / "model.onnx"
    file.write_bytes(os.urandom(1000))
    page = open_page(visitor)

    def damage(route: Route) -> None:
        if route.request.method == "PATCH":
            route.continue_(post_data=bytes(1000))
        else:
            route.continue_()

    page.route(UPLOADS, damage)
    page.get_by_test_id("upload-files").set_input_files(file)
    page.get_by_test_id("upload-submit").click()
    failed = row(page, "model.onnx").filter(has_text="failed")
    for _ in range(2):
        row(page, "model.onnx").filter(has_text="interrupted").wait_for()
        page.evaluate("dispatchEvent(new Event('online'))")
    failed.wait_for()
    expect(failed).to_contain_text("arrived damaged")
    expect(failed.locator("code")).to_contain_text(["", "checksum_mismatch"])
    expect(page.get_by_test_id("upload-all")).to_contain_text("1 failed")
    page.unroute(UPLOADS)
    failed.get_by_role("button", name="Try again: model.onnx").click()
    submitted(page).wait_for()
    assert arrived("model") == digests(files)
    assert in_database(lambda: sorted(Upload.objects.values_list("state", flat=True).filter(path="model.onnx"))) == [
        "received",
        "stored",
        "terminated",
    ]


def test_a_reload_goes_on_with_what_is_missing(visitor: Visitor, folder: Path) -> None:
    visitor.sign_in("bob")
    # A context of its own: two tabs share what the browser keeps.
    tabs = visitor.page.context.browser.new_context(storage_state=visitor.page.context.storage_state())
    page = tabs.new_page()
    page.goto(visitor.url + PAGE)
    sent: list[tuple[str, int]] = []

    def hinder(route: Route) -> None:
        """The large file stops after its first chunk, and whatever comes then."""
        request = route.request
        if request.method == "PATCH" and request.headers["upload-offset"] != "0":
            return route.abort()
        return route.continue_()

    page.route(UPLOADS, hinder)
    page.get_by_test_id("upload-folder").set_input_files(folder)
    page.get_by_test_id("upload-model").fill("heron")
    page.get_by_test_id("upload-submit").click()
    expect(page.get_by_test_id("upload-count")).to_have_text("6 of 7 files")
    row(page, "1/model.onnx").filter(has_text="interrupted").wait_for()

    # Another tab sees that, and leaves it alone.
    other = tabs.new_page()
    other.goto(visitor.url + PAGE)
    expect(other.get_by_test_id("upload-unfinished")).to_contain_text("under way in another tab")
    expect(other.get_by_test_id("upload-go-on")).to_be_hidden()
    other.close()

    page.on("dialog", lambda dialog: dialog.accept())
    page.reload()
    notice = page.get_by_test_id("upload-unfinished")
    expect(notice).to_contain_text("6 of 7 files are on the server")
    expect(page.get_by_test_id("upload-go-on")).to_have_text("Go on with 1 of 7 files")
    (folder / "labels-0.txt").write_text("something else\n")
    page.unroute(UPLOADS)
    page.on("request", lambda one: one.method == "PATCH" and sent.append((one.url, int(one.headers["upload-offset"]))))
    page.get_by_test_id("upload-folder").set_input_files(folder)
    expect(page.get_by_test_id("upload-model")).to_have_value("heron")
    expect(page.get_by_test_id("upload-submit")).to_have_text("Go on with 1 of 7 files")
    page.get_by_test_id("upload-submit").click()
    submitted(page).wait_for()
    # Only the rest of the large file went up.
    assert len({url for url, _offset in sent}) == 1
    assert min(offset for _url, offset in sent) > 0
    tabs.close()
    (folder / "labels-0.txt").write_text("label 0\n" * 40)
    assert arrived("heron") == digests(folder)


@pytest.mark.slow
def test_a_changed_file_is_sent_from_the_start(visitor: Visitor, files: Path) -> None:
    file = files / "model.onnx"
    file.write_bytes(os.urandom(5 * MIB))
    page = open_page(visitor)
    page.route(
        UPLOADS,
        lambda route: route.abort() if route.request.headers.get("upload-offset", "0") != "0" else route.continue_(),
    )
    page.get_by_test_id("upload-files").set_input_files(file)
    page.get_by_test_id("upload-submit").click()
    row(page, "model.onnx").filter(has_text="interrupted").wait_for()
    page.on("dialog", lambda dialog: dialog.accept())
    page.reload()
    page.unroute(UPLOADS)
    file.write_bytes(os.urandom(4 * MIB))
    with page.expect_file_chooser() as chooser:
        page.get_by_test_id("upload-go-on").click()
    chooser.value.set_files(file)
    row(page, "model.onnx").filter(has_text="it changed").wait_for()
    page.get_by_test_id("upload-submit").click()
    submitted(page).wait_for()
    assert arrived("model") == digests(files)


def test_what_the_server_has_is_not_sent(shared_served: Served, visitor: Visitor, files: Path) -> None:
    (files / "model.onnx").write_bytes(b"weights")
    (files / "other.bin").write_bytes(b"leavens")
    page = open_page(visitor)
    begun: list[str] = []
    page.on("request", lambda one: UPLOADS.search(one.url) and one.method == "POST" and begun.append(one.url))
    page.get_by_test_id("upload-files").set_input_files([files / "model.onnx", files / "other.bin"])
    page.get_by_test_id("upload-model").fill("finch")
    page.get_by_test_id("upload-submit").click()
    submitted(page).wait_for()
    expect(row(page, "model.onnx")).to_contain_text("was on the server already")
    expect(row(page, "other.bin")).not_to_contain_text("already")
    assert len(begun) == 1
    assert arrived("finch") == digests(files)


def test_pause_go_on_remove_and_discard(visitor: Visitor, folder: Path) -> None:
    page = open_page(visitor)
    held: list[Route] = []
    page.route(UPLOADS, lambda route: held.append(route) if route.request.method == "PATCH" else route.continue_())
    page.get_by_test_id("upload-folder").set_input_files(folder)
    page.get_by_test_id("upload-model").fill("heron")
    page.get_by_test_id("upload-submit").click()
    states = page.get_by_test_id("upload-list").get_by_role("listitem")
    expect(states.filter(has_text="uploading")).to_have_count(3)
    page.get_by_test_id("upload-pause-all").click()
    expect(states.filter(has_text="paused")).to_have_count(7)
    assert page.evaluate("document.activeElement.id") == "resume-all"
    page.unroute(UPLOADS)
    # One alone goes on, with the keyboard; another one is left out.
    states.filter(has_text="labels-0.txt").get_by_role("button", name="Resume: labels-0.txt").press("Enter")
    expect(row(page, "labels-0.txt")).to_contain_text("uploaded")
    expect(states.filter(has_text="paused")).to_have_count(6)
    row(page, "labels-1.txt").get_by_role("button", name="Remove: labels-1.txt").click()
    expect(states).to_have_count(6)
    page.get_by_test_id("upload-discard-all").click()
    expect(page.get_by_test_id("upload-discard")).to_contain_text("1 of 6 files")
    page.get_by_role("button", name="Keep it").click()
    expect(page.get_by_test_id("upload-discard")).to_be_hidden()
    page.get_by_test_id("upload-resume-all").click()
    submitted(page).wait_for()
    assert set(arrived("heron")) == set(digests(folder)) - {"labels-1.txt"}


def test_a_discarded_upload_leaves_nothing(visitor: Visitor, files: Path) -> None:
    (files / "model.onnx").write_bytes(os.urandom(1000))
    (files / "empty.txt").touch()
    page = open_page(visitor)
    page.get_by_test_id("upload-files").set_input_files([files / "model.onnx", files / "empty.txt"])
    page.get_by_test_id("upload-model").fill("heron")
    page.get_by_test_id("upload-submit").click()
    expect(row(page, "empty.txt")).to_contain_text("The file is empty.")
    expect(page.get_by_test_id("upload-count")).to_have_text("1 of 2 files")
    page.get_by_test_id("upload-discard-all").click()
    page.get_by_test_id("upload-discard-yes").click()
    page.wait_for_load_state()
    expect(page.get_by_test_id("upload-list").get_by_role("listitem")).to_have_count(0)
    page.locator("#upload-form[data-ready]").wait_for()
    expect(page.get_by_test_id("upload-unfinished")).to_have_count(0)
    assert in_database(lambda: ModelVersion.objects.get(model__slug="heron").state) == "abandoned"


def test_too_large_and_too_many_are_said_before_anything_is_sent(settings: Any, visitor: Visitor, files: Path) -> None:
    settings.MAX_UPLOAD_BYTES = 1000
    (files / "large.bin").write_bytes(bytes(1001))
    (files / "model.onnx").write_bytes(bytes(1000))
    page = open_page(visitor)
    page.get_by_test_id("upload-files").set_input_files([files / "large.bin", files / "model.onnx"])
    expect(row(page, "large.bin")).to_contain_text("larger than 1000 B")
    expect(row(page, "large.bin").locator(".errors code")).to_have_text("too_large")
    row(page, "large.bin").get_by_role("button", name="Remove").click()
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Remove: model.onnx"
    page.locator("#upload-form").evaluate("(form) => { form.dataset.mostFiles = 1 }")
    page.get_by_test_id("upload-files").set_input_files(files / "large.bin")
    expect(page.get_by_test_id("upload-error")).to_have_text("A version has at most 1 files.")


# The colours of the other scheme are on the page until it was painted: true when two frames in a row have the same.
COLOURS_STAY = """() => {
    const styles = [...document.querySelectorAll("body *")].map(one => getComputedStyle(one));
    const now = styles.map(one => one.color + one.backgroundColor).join();
    const stay = now === window.coloursBefore;
    window.coloursBefore = now;
    return stay;
}"""


def test_axe_finds_nothing_while_files_are_in_every_state(
    visitor: Visitor, folder: Path, console: RunningConsole
) -> None:
    visitor.sign_in("bob")
    context = visitor.page.context.browser.new_context(
        bypass_csp=True,
        reduced_motion="reduce",
        viewport={"width": 390, "height": 844},
        storage_state=visitor.page.context.storage_state(),
    )
    page: Page = context.new_page()
    page.goto(console.url + PAGE)
    cut: list[str] = []

    def hinder(route: Route) -> None:
        """One file is cut again and again, the others wait for their answers."""
        if route.request.method != "PATCH":
            return route.continue_()
        cut.append(route.request.url)
        return route.abort() if route.request.url == cut[0] else None

    page.route(UPLOADS, hinder)
    (folder / "empty.txt").touch()
    page.get_by_test_id("upload-folder").set_input_files(folder)
    page.get_by_test_id("upload-submit").click()
    states = page.get_by_test_id("upload-list").get_by_role("listitem")
    states.filter(has_text="interrupted").first.wait_for(state="attached")
    states.filter(has_text="uploading").first.get_by_role("button", name="Pause: ").click()
    row(page, "empty.txt").filter(has_text="The file is empty.").wait_for(state="attached")
    page.get_by_test_id("fetch").locator("summary").click()
    page.get_by_test_id("upload-discard-all").click()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.add_script_tag(path=str(AXE))
    found = []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.wait_for_function("scheme => matchMedia(`(prefers-color-scheme: ${scheme})`).matches", arg=scheme)
        page.wait_for_function(COLOURS_STAY)
        result = page.evaluate("axe.run({resultTypes: ['violations']})")
        found += [(scheme, one["id"], one["nodes"][0]) for one in result["violations"] if one["impact"] != "minor"]
    context.close()
    assert found == []


def test_checks_appear_beneath_their_files(visitor: Visitor, files: Path) -> None:
    (files / "model.onnx").write_bytes(b"some model")
    (files / "labels.txt").write_bytes(b"some labels")
    page = open_page(visitor)
    page.get_by_test_id("upload-files").set_input_files([files / "model.onnx", files / "labels.txt"])
    page.get_by_test_id("upload-submit").click()
    submitted(page).wait_for()

    def judge() -> None:
        """Do what a worker does, one check after the other."""
        version = ModelVersion.objects.latest("created_at")
        for kind, evidence in (
            ("files", {"files": [{"path": "labels.txt"}, {"path": "model.onnx"}]}),
            ("format", {"file": "model.onnx"}),
        ):
            row_ = check_start(version=version, kind=kind)
            check_finish(check=row_, verdict="pass", summary="Good.", evidence=evidence, log="")

    in_database(judge)
    expect(row(page, "model.onnx").get_by_test_id("file-checks")).to_have_text("Files PassFormat Pass")
    expect(row(page, "labels.txt").get_by_test_id("file-checks")).to_have_text("Files Pass")
    assert visitor.problems == []


def test_a_fetch_is_followed_to_its_end(settings: Any, visitor: Visitor) -> None:
    settings.IMPORT_SOURCES = ["https://models.example.com/public/"]
    page = open_page(visitor)
    page.get_by_test_id("fetch").locator("summary").click()
    page.get_by_test_id("fetch-address").fill("https://models.example.com/public/heron.onnx")
    page.get_by_test_id("fetch-model").fill("heron")
    page.get_by_test_id("fetch-submit").click()
    page.wait_for_url(re.compile(r"/upload/[0-9a-f-]{36}/$"))
    page.locator("#live-state[data-state=live]").wait_for(state="attached")

    def report() -> None:
        operation = Operation.objects.get(kind="fetch_version")
        operation_claim(operation.pk, "w1")
        operation_report(operation.pk, "w1", percent=40, message="Fetching heron.onnx")

    in_database(report)
    expect(page.get_by_test_id("operation")).to_contain_text("Fetching heron.onnx")
    assert page.get_by_test_id("operation").locator("progress").evaluate("(bar) => bar.value") == 40
    assert visitor.problems == []


@pytest.mark.slow
def test_a_killed_server_is_waited_for(
    settings: Any, shared_served: Served, console_process: ConsoleProcess, files: Path
) -> None:
    from playwright.sync_api import sync_playwright

    file = files / "model.onnx"
    file.write_bytes(os.urandom(12 * MIB))
    # The process knows no quick hashes of passwords, which the tests use.
    session = signed_in(Client(), shared_served.cast.bob).cookies[settings.SESSION_COOKIE_NAME].value
    cookie = {"name": settings.SESSION_COOKIE_NAME, "value": session, "url": console_process.url}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        page.context.add_cookies([cookie])
        page.goto(console_process.url + PAGE)
        killed: list[str] = []

        def kill(request: Any) -> None:
            if not killed and request.headers.get("upload-offset", "0") != "0":
                killed.append(request.url)
                console_process.kill()

        page.on("request", kill)
        page.get_by_test_id("upload-files").set_input_files(file)
        page.get_by_test_id("upload-submit").click()
        row(page, "model.onnx").filter(has_text="interrupted").wait_for()
        console_process.start()
        page.evaluate("dispatchEvent(new Event('online'))")
        submitted(page).wait_for()
        assert killed and arrived("model") == digests(files)
        browser.close()


def test_a_session_that_ends_holds_the_rest_back(visitor: Visitor, folder: Path) -> None:
    page = open_page(visitor)
    cookies = page.context.cookies()
    page.get_by_test_id("upload-folder").set_input_files(folder)
    page.get_by_test_id("upload-model").fill("heron")
    sent: list[str] = []

    def sign_out(request: Any) -> None:
        if request.method == "PATCH" and not sent:
            sent.append(request.url)
            page.context.clear_cookies()

    page.on("requestfinished", sign_out)
    page.get_by_test_id("upload-submit").click()
    states = page.get_by_test_id("upload-list").get_by_role("listitem")
    states.filter(has_text="You are signed out.").first.wait_for(state="attached")
    expect(states.filter(has_text="waiting")).to_have_count(0)
    page.context.add_cookies(cookies)
    expect(states.filter(has_text="uploading")).to_have_count(0)
    page.get_by_test_id("upload-resume-all").click()
    submitted(page).wait_for()
    assert arrived("heron") == digests(folder)
