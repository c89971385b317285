"""The whole loop in a browser, by two people, against really running processes: first sign-in to production."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import tritonclient.grpc
from playwright.sync_api import Browser, expect, sync_playwright

from flotilla.sdk import Flotilla
from tests.e2e.browsing import ARGUMENTS, CHROMIUM, STEP_SECONDS, Person
from tests.e2e.onnx_models import write_mlp
from tests.e2e.running import RunningFlotilla, clean_environment, wait_until
from tests.ports import held_ports

pytestmark = [
    pytest.mark.integration,
    pytest.mark.browser,
    pytest.mark.xdist_group("browser"),
    pytest.mark.timeout(900),
    pytest.mark.skipif(os.environ.get("FLOTILLA_NO_BROWSER") == "1", reason="FLOTILLA_NO_BROWSER=1"),
]

MODEL = "/p/default/models/tides/"
expect.set_options(timeout=STEP_SECONDS * 1000)

# A push that met the standing node is sent again by the periodic reconcile at the latest.
SLOW_SECONDS = 90

APPROVER = ("second-pair", "reads-before-approving-42")
ORDER = ["pending", "fetching", "verifying", "loading", "warming", "ready"]


@dataclass
class Walk:
    """What the steps of the walk share."""

    flotilla: RunningFlotilla
    author: Person
    approver: Person
    files: dict[int, Path]
    deployment: str = ""


class Load:
    """Clients that ask the node for predictions from threads until they are stopped."""

    def __init__(self, flotilla: RunningFlotilla, name: str, clients: int = 6) -> None:
        self.failures: list[str] = []
        self.answered = 0
        self._stop = threading.Event()
        self._address = f"127.0.0.1:{flotilla.node_port + 1}"
        self._threads = [threading.Thread(target=self._ask, args=(name,), daemon=True) for _ in range(clients)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_problem: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(20)

    def _ask(self, name: str) -> None:
        tensor = tritonclient.grpc.InferInput("x", [1, 16], "FP32")
        tensor.set_data_from_numpy(np.ones((1, 16), np.float32))
        with tritonclient.grpc.InferenceServerClient(self._address) as client:
            while not self._stop.wait(0.05):
                try:
                    client.infer(name, [tensor], client_timeout=30)
                    self.answered += 1
                except Exception as error:
                    self.failures.append(str(error))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningFlotilla]:
    """A Flotilla of its own: the walk begins with the first sign-in."""
    if not CHROMIUM.exists():
        pytest.fail(
            f"The browser tests need {CHROMIUM}: install it (apt-get install chromium), "
            "or set FLOTILLA_NO_BROWSER=1 to leave them out.",
            pytrace=False,
        )
    first = held_ports(5)
    flotilla = RunningFlotilla(tmp_path_factory.mktemp("browser") / "data", first, first + 1)
    flotilla.start()
    yield flotilla
    flotilla.stop()


@pytest.fixture(scope="module")
def browser(running: RunningFlotilla) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def people(browser: Browser, running: RunningFlotilla) -> Iterator[tuple[Person, Person]]:
    """Two people; at the end nothing may have gone wrong in any page of either."""
    author, approver = Person(browser, running.url), Person(browser, running.url)
    yield author, approver
    author.context.close()
    approver.context.close()
    assert author.problems == []
    assert approver.problems == []


@pytest.fixture
def author(people: tuple[Person, Person], running: RunningFlotilla) -> Person:
    people[0].sign_in(running.username, running.password)
    return people[0]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {seed: write_mlp(folder / str(seed) / "model.onnx", seed=seed, hidden=8192) for seed in (1, 2)}


@pytest.fixture(scope="module")
def accounts(running: RunningFlotilla) -> dict[str, Any]:
    """Two more accounts with tokens."""
    command = [*running.command, "manage", "--data-dir", str(running.data_dir), "demo_accounts"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=clean_environment(), check=True)
    return dict(json.loads(done.stdout))


def test_two_people_take_a_model_to_production(
    running: RunningFlotilla, people: tuple[Person, Person], files: dict[int, Path]
) -> None:
    walk = Walk(running, *people, files)
    sign_in_and_learn(walk)
    make_the_second_person(walk)
    upload_by_drag_and_drop(walk)
    configure(walk)
    promote_and_watch(walk)
    try_it(walk)
    with Load(running, "tides") as load:
        watch_the_charts(walk)
        upload_version_2(walk)
        send_ten_percent(walk)
        move_to_half(walk)
        roll_back(walk)
        ask_for_production(walk)
        approve(walk)
    assert load.failures == []
    assert load.answered > 100


def sign_in_and_learn(walk: Walk) -> None:
    """The first password works; with nothing there the pages say what to do."""
    author = walk.author
    author.open("/")
    author.page.wait_for_url("**/login/**")
    author.get("login-username").fill(walk.flotilla.username)
    author.get("login-password").fill("not the password")
    author.get("login-submit").click()
    expect(author.get("login-error")).to_be_visible()
    expect(author.get("login-username")).to_have_value(walk.flotilla.username)
    author.get("login-password").fill(walk.flotilla.password)
    author.get("login-submit").click()
    author.page.wait_for_url(f"{walk.flotilla.url}/")
    expect(author.get("empty-upload")).to_be_visible()
    expect(author.page.locator("#first-push")).to_contain_text("flotilla push")
    author.open("/p/default/deployments/")
    expect(author.page.get_by_role("heading", name="Nothing is deployed yet")).to_be_visible()


def make_the_second_person(walk: Walk) -> None:
    """Settings > Members makes an account with a role; it can sign in."""
    author = walk.author
    author.page.get_by_role("link", name="Settings").click()
    author.page.wait_for_url("**/settings/members/")
    username, password = APPROVER
    author.get("member-username").fill(username)
    author.get("member-password").fill(password)
    author.get("member-new-role").select_option("approver")
    author.get("member-create").click()
    row = author.get("member-table").get_by_role("row").filter(has_text=username)
    expect(row.get_by_role("combobox")).to_have_value("approver")
    walk.approver.sign_in(username, password)
    walk.approver.open("/p/default/models/")
    expect(walk.approver.get("empty-upload")).to_be_visible()
    walk.approver.mark()


def upload_by_drag_and_drop(walk: Walk) -> None:
    """A dropped file shows how far it is; its checks and its signature appear by themselves."""
    author = walk.author
    author.open("/").get_by_test_id("empty-upload").click()
    author.page.wait_for_url("**/upload/")
    author.mark()
    author.drop(walk.files[1])
    expect(author.get("upload-list").get_by_role("listitem")).to_contain_text("model.onnx")
    author.get("upload-model").fill("tides")
    fast = author.slow_uploads(600_000)
    author.get("upload-submit").click()
    expect(author.get("upload-progress")).to_be_visible()
    wait_until(lambda: any(0 < value < 100 for value in author.seen("progress")), "the progress bar moves")
    expect(author.get("version-ready")).to_contain_text("Version 1 is ready")
    fast()
    progress = author.seen("progress")
    assert progress == sorted(progress)
    assert progress[-1] == 100
    checks = author.seen("checks")
    assert checks == sorted(checks) and checks[0] == 0 and checks[-1] == 7, checks
    assert set(author.page.locator("[data-check]").evaluate_all("(all) => all.map((one) => one.dataset.verdict)")) == {
        "pass"
    }
    rows = [text.split() for text in author.get("signature-table").locator("tbody tr").all_inner_texts()]
    assert rows == [["x", "Input", "FP32", "[-1,", "16]"], ["y", "Output", "FP32", "[-1,", "4]"]]
    author.assert_not_reloaded()
    # The other person's empty list has noticed it by itself.
    expect(walk.approver.get("model-table")).to_contain_text("tides")
    walk.approver.assert_not_reloaded()


def configure(walk: Walk) -> None:
    """The form says what the config becomes while one types; saving makes a new revision."""
    author = walk.author
    author.get("version-config").click()
    author.page.wait_for_url("**/configs/new/")
    author.mark()
    author.get("config:max_batch_size").fill("16")
    author.get("config:dynamic_batching").check()
    author.get("config:dynamic_batching.preferred_batch_size").fill("4, 8")
    author.get("config:dynamic_batching.max_queue_delay_microseconds").fill("20000")
    if author.get("config:instance_group[0].count").count() == 0:
        author.get("config-add:instance_group").click()
    else:
        author.page.locator("#f-instance_group-rows summary").first.click()
    author.get("config:instance_group[0].count").fill("2")
    author.get("config:instance_group[0].kind").select_option("KIND_CPU")
    shown = author.page.locator("#config-pbtxt")
    for text in (
        "max_batch_size: 16",
        "preferred_batch_size: 8",
        "max_queue_delay_microseconds: 20000",
        "count: 2",
        "kind: KIND_CPU",
    ):
        expect(shown).to_contain_text(text)
    expect(author.get("config-ok")).to_be_visible()
    author.assert_not_reloaded()
    author.get("config-comment").fill("batches of 16 on two instances")
    author.get("config-save").click()
    author.page.wait_for_url("**/configs/2/")
    expect(author.page.locator("#config-text")).to_contain_text("max_queue_delay_microseconds: 20000")


def promote_and_watch(walk: Walk) -> None:
    """Development needs no approval; the page follows the unit from pending to ready without a reload."""
    author = walk.author
    author.get("config-deploy").click()
    author.page.wait_for_url("**/deploy/**")
    author.get("deploy-fleet").select_option("development")
    expect(author.get("plan-approval")).to_contain_text("Starts at once")
    node = walk.flotilla.pid_of("node")
    assert node is not None
    # The node stands still until the page is there, so that the page has something to follow.
    os.kill(node, signal.SIGSTOP)
    try:
        author.get("deploy-submit").click()
        author.page.wait_for_url("**/deployments/**")
        author.mark()
        state = author.get("unit-row").get_by_test_id("unit-state")
        expect(state).to_have_attribute("data-state", "pending")
    finally:
        os.kill(node, signal.SIGCONT)
    expect(state).to_have_attribute("data-state", "ready", timeout=SLOW_SECONDS * 1000)
    expect(author.get("badge-health")).to_contain_text("Healthy")
    expect(author.get("badge-sync")).to_contain_text("Synced")
    expect(author.get("rollout-phase")).to_contain_text("Succeeded")
    author.assert_not_reloaded()
    (states,) = author.seen("states").values()
    assert states[0] == "pending" and states[-1] == "ready", states
    assert [ORDER.index(state) for state in states] == sorted(ORDER.index(state) for state in states)
    walk.deployment = author.page.url.removeprefix(walk.flotilla.url).partition("?")[0]


def try_it(walk: Walk) -> None:
    """A worker asks the node; the page shows what ONNX Runtime computes here."""
    author = walk.author
    author.get("deployment-try").click()
    author.page.wait_for_url("**/try/**")
    author.mark()
    x = np.random.default_rng(7).standard_normal((1, 16)).astype(np.float32)
    author.get("try-shape").fill("1, 16")
    author.get("try-fill").select_option("typed")
    author.get("try-data").fill(json.dumps(x.ravel().tolist()))
    author.get("try-run").click()
    expect(author.get("try-result")).to_have_attribute("data-state", "succeeded")
    answered = np.array(author.page.locator("#output-1").inner_text().split(","), dtype=np.float32)
    expected = onnxruntime.InferenceSession(str(walk.files[1])).run(None, {"x": x})[0].ravel()
    assert answered.tobytes() == expected.tobytes()
    expect(author.get("try-answered-by")).to_contain_text("version 1")
    expect(author.get("try-timing")).to_be_visible()
    author.assert_not_reloaded()


def watch_the_charts(walk: Walk) -> None:
    """Under load every chart shows data, and goes on by itself."""
    author = walk.author
    author.open(walk.deployment)
    author.mark()
    before = author.wait_for_chart("request_rate,failure_rate", "v1")["v1"]
    latency = author.wait_for_chart("latency_p50,latency_p95,latency_p99", "v1 p50", "v1 p95", "v1 p99")
    assert set(latency) == {"v1 p50", "v1 p95", "v1 p99"}
    author.wait_for_chart("queue_p50,queue_p99", "v1 p50", "v1 p99")
    author.wait_for_chart("batch_size", "v1")
    wait_until(lambda: max(author.chart("batch_size")["v1"]) > 1, "requests are joined to batches")
    (cpu,) = author.chart("cpu@node")
    assert author.wait_for_chart("cpu@node", cpu) and author.wait_for_chart("memory@node", cpu)
    chart = "request_rate,failure_rate"
    wait_until(lambda: len(author.chart(chart)["v1"]) > len(before), "the chart goes on by itself")
    author.assert_not_reloaded()


def upload_version_2(walk: Walk) -> None:
    """The second time by the file dialog."""
    author = walk.author
    author.open(MODEL).get_by_test_id("model-upload").click()
    author.page.wait_for_url("**/upload/**")
    expect(author.get("upload-model")).to_have_value("tides")
    author.get("upload-files").set_input_files(walk.files[2])
    author.get("upload-submit").click()
    expect(author.get("version-ready")).to_contain_text("Version 2 is ready")
    author.get("upload-open-version").click()
    expect(author.page.get_by_role("heading", level=1)).to_contain_text("v2")


def expect_split(person: Person, v1: int, v2: int) -> None:
    """Both units are ready and take these shares, on the page as it stands."""
    for version, share in (("v1", v1), ("v2", v2)):
        row = person.get("unit-row").filter(has_text=version)
        expect(row.get_by_test_id("unit-state")).to_have_attribute("data-state", "ready")
        expect(row.get_by_test_id("unit-traffic")).to_have_text(f"{share} %")
        expect(person.get(f"split-{version}")).to_have_text(f"{share} %")


def send_ten_percent(walk: Walk) -> None:
    """Version 2 takes a tenth; the charts show a line of each version."""
    author = walk.author
    author.open(walk.deployment).get_by_role("link", name="Add a canary").click()
    author.page.wait_for_url("**/deploy/**")
    expect(author.get("deploy-version")).to_have_value("2")
    author.get("deploy-weight").fill("10")
    expect(author.get("plan-approval")).to_contain_text("Starts at once")
    author.get("deploy-submit").click()
    author.page.wait_for_url(f"**{walk.deployment}")
    author.mark()
    expect_split(author, 90, 10)
    rates = author.wait_for_chart("request_rate,failure_rate", "v1", "v2")
    assert set(rates) == {"v1", "v2"}
    author.wait_for_chart("latency_p50,latency_p95,latency_p99", "v1 p99", "v2 p99")
    author.assert_not_reloaded()


def move_to_half(walk: Walk) -> None:
    """Preview, then apply."""
    author = walk.author
    author.get("traffic-step-50").click()
    expect(author.get("traffic-weight-v1")).to_have_value("50")
    author.get("traffic-preview").click()
    expect(author.get("traffic-plan")).to_contain_text("Changes 1 node")
    author.get("traffic-apply").click()
    expect_split(author, 50, 50)


def roll_back(walk: Walk) -> None:
    """One button, no page in between: version 1 takes everything again."""
    author = walk.author
    button = author.get("rollback")
    expect(button).to_contain_text("Roll back to v1")
    button.click()
    expect(author.get("split-v1")).to_have_text("100 %")
    expect(author.get("split-v2")).to_have_count(0)
    row = author.get("unit-row").filter(has_text="v1")
    expect(row.get_by_test_id("unit-traffic")).to_have_text("100 %")
    expect(author.get("rollout-phase")).to_contain_text("Succeeded")


def ask_for_production(walk: Walk) -> None:
    """Production asks for a review, and says to its author why he cannot give it."""
    author = walk.author
    walk.approver.open("/approvals/")
    expect(walk.approver.page.get_by_role("heading", name="Nothing waits for you")).to_be_visible()
    walk.approver.mark()
    author.open(f"{MODEL}versions/1/").get_by_test_id("version-deploy-head").click()
    author.page.wait_for_url("**/deploy/**")
    author.get("deploy-fleet").select_option("production")
    # What was chosen for the other fleet does not fit here: the page says so before anything is sent.
    expect(author.get("plan-error")).to_contain_text("no live version here yet")
    author.page.get_by_label("All traffic goes to this version").check()
    author.get("deploy-comment").fill("a week on development without a complaint")
    expect(author.get("plan-approval")).to_contain_text("Needs 1 approval")
    author.get("deploy-submit").click()
    author.page.wait_for_url("**/approvals/**")
    expect(author.get("review-approve")).to_be_disabled()
    why = author.get("review-why-not").inner_text()
    assert len(why) > 20 and why.endswith("."), why
    author.mark()


def approve(walk: Walk) -> None:
    """The second person reads and approves; the author's page hears of it, and production becomes ready live."""
    author, approver = walk.author, walk.approver
    expect(approver.get("approval-link").first).to_be_visible()
    approver.assert_not_reloaded()
    approver.get("approval-link").first.click()
    expect(approver.page.locator("main")).to_contain_text("a week on development without a complaint")
    approver.get("review-comment").fill("read it")
    approver.get("review-approve").click()
    approver.page.wait_for_url("**/deployments/**")
    approver.mark()
    expect(approver.get("unit-row").get_by_test_id("unit-state")).to_have_attribute("data-state", "ready")
    expect(approver.get("badge-health")).to_contain_text("Healthy")
    approver.assert_not_reloaded()
    expect(author.get("approval-state")).to_have_attribute("data-approval-state", "applied")
    expect(author.get("approval-state")).to_contain_text(APPROVER[0])
    expect(author.get("review-approve")).to_have_count(0)
    author.assert_not_reloaded()


def _versions(running: RunningFlotilla, accounts: dict[str, Any], model: str) -> list[dict[str, Any]]:
    with Flotilla(running.url, accounts["author"]["token"]) as client:
        return list(client.versions(model))


def test_a_truncated_file_gets_one_clear_message(
    running: RunningFlotilla, author: Person, accounts: dict[str, Any], files: dict[int, Path], tmp_path: Path
) -> None:
    cut = tmp_path / "model.onnx"
    cut.write_bytes(files[1].read_bytes()[:-2000])
    author.open("/p/default/upload/")
    author.drop(cut)
    author.get("upload-model").fill("cut-short")
    author.get("upload-submit").click()
    refusal = author.get("version-rejected")
    expect(refusal).to_have_count(1)
    expect(refusal).to_contain_text("truncated")
    expect(author.get("version-ready")).to_have_count(0)
    assert [version for version in _versions(running, accounts, "cut-short") if version["number"]] == []
    author.open("/p/default/models/cut-short/versions/")
    expect(author.get("version-table").locator("tbody tr")).to_have_count(1)
    expect(author.get("version-table")).to_contain_text("Rejected")
    author.open("/p/default/models/cut-short/deploy/")
    expect(author.get("deploy-submit")).to_have_count(0)


def test_a_config_against_the_model_is_refused_at_its_field(
    running: RunningFlotilla, author: Person, accounts: dict[str, Any], files: dict[int, Path]
) -> None:
    with Flotilla(running.url, accounts["author"]["token"]) as client:
        client.push("contrary", {"model.onnx": files[1]})
    author.open("/p/default/models/contrary/configs/new/")
    author.get("config:max_batch_size").fill("8")
    author.get("config:dynamic_batching").check()
    author.get("config:dynamic_batching.preferred_batch_size").fill("4, 64")
    expect(author.page.locator("#err-f-dynamic_batching-preferred_batch_size .errors")).to_be_visible()
    author.get("config-save").click()
    message = author.page.locator("#err-f-dynamic_batching-preferred_batch_size .errors")
    expect(message).to_contain_text("must be <= max batch size")
    expect(author.get("config:dynamic_batching.preferred_batch_size")).to_have_value("4, 64")
    expect(author.get("config:max_batch_size")).to_have_value("8")
    author.forgive(r"422.*configs/new/")
    author.page.locator("#f-input-rows summary").first.click()
    datatype = author.get("config:input[0].data_type")
    datatype.select_option("TYPE_INT64")
    author.get("config:dynamic_batching.preferred_batch_size").fill("4")
    message = author.page.locator("#err-f-input-0-data_type .errors")
    expect(message).to_contain_text("INT64")
    expect(author.get("config-bad")).to_be_visible()
    author.get("config-save").click()
    expect(message).to_contain_text("INT64")
    expect(datatype).to_have_value("TYPE_INT64")
    author.forgive(r"422.*configs/new/")
    author.open("/p/default/models/contrary/configs/")
    expect(author.get("config-table").locator("tbody tr")).to_have_count(1)


def test_the_keyboard_is_enough(running: RunningFlotilla, people: tuple[Person, Person]) -> None:
    """Sign in and make a model without a mouse."""
    person = people[0]
    keyboard = person.open("/login/").keyboard
    person.tab_to("login-username")
    keyboard.type(running.username)
    keyboard.press("Tab")
    keyboard.type(running.password)
    keyboard.press("Enter")
    person.page.wait_for_url(f"{running.url}/")
    keyboard.press("g")
    keyboard.press("m")
    person.page.wait_for_url("**/models/")
    person.tab_to("model-new")
    keyboard.press("Enter")
    person.page.wait_for_url("**/models/new/")
    person.tab_to("model-name")
    keyboard.type("typed by hand")
    person.tab_to("model-create")
    keyboard.press("Enter")
    expect(person.page.get_by_text("Use letters, digits, - and _ only.")).to_be_visible()
    expect(person.get("model-name")).to_have_value("typed by hand")
    person.forgive(r"422.*models/new/")
    person.tab_to("model-name")
    keyboard.press("Control+a")
    keyboard.type("typed-by-hand")
    keyboard.press("Enter")
    person.page.wait_for_url("**/models/typed-by-hand/")


def test_fifty_open_streams_do_not_stop_a_page(
    running: RunningFlotilla, author: Person, accounts: dict[str, Any]
) -> None:
    """More than one browser may hold open; the limit of one account is 20."""
    cookie = "; ".join(f"{one['name']}={one['value']}" for one in author.context.cookies())
    headers = [{"Authorization": f"Bearer {accounts[who]['token']}"} for who in ("author", "approver")]
    readers = [*headers * 19, *[{"Cookie": cookie}] * 12]
    with Flotilla(running.url, accounts["author"]["token"]) as client:
        topic = f"model:{client.ensure_model('watched')['id']}"
    streams = [http.client.HTTPConnection("127.0.0.1", running.port, timeout=20) for _ in readers]
    try:
        for stream, reader in zip(streams, readers, strict=True):
            stream.request("GET", f"/live/stream?topics={topic}", headers=reader)
        assert {stream.getresponse().status for stream in streams} == {200}
        began = time.monotonic()
        author.open("/fleet/")
        expect(author.get("fleet-table")).to_contain_text("local")
        expect(author.page.locator("#live-state")).to_have_text("Live")
        assert time.monotonic() - began < 10
    finally:
        for stream in streams:
            stream.close()
