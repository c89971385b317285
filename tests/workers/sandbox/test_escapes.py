"""What a command tries in the sandbox, and what comes of it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from workers.sandbox import Command, Ending, Limits, Mount, Outcome, SandboxUnavailable, run
from workers.sandbox import process as sandbox_process

LIMITS = Limits(seconds=30, memory_bytes=256 << 20, scratch_bytes=8 << 20, file_bytes=4 << 20, cpu_seconds=20, tasks=32)


@pytest.fixture(scope="module", autouse=True)
def _possible() -> None:
    try:
        run(Command((sys.executable, "-c", "")), LIMITS)
    except SandboxUnavailable as error:
        pytest.skip(str(error))


def tried(
    code: str, limits: Limits = LIMITS, is_stopped: Callable[[], bool] = lambda: False, **more: object
) -> Outcome:
    return run(Command((sys.executable, "-c", textwrap.dedent(code)), **more), limits, is_stopped)  # type: ignore[arg-type]


def test_a_command_answers_prints_and_ends() -> None:
    outcome = tried("import os; print('hello'); os.write(3, b'yes'); raise SystemExit(7)")
    assert (outcome.ending, outcome.status, outcome.output, outcome.answer) == (Ending.ITSELF, 7, "hello\n", b"yes")


def test_neither_the_network_nor_this_host_can_be_reached() -> None:
    with socket.create_server(("127.0.0.1", 0)) as here:
        outcome = tried(
            f"""
            import socket
            for address in (("127.0.0.1", {here.getsockname()[1]}), ("192.0.2.1", 80)):
                try:
                    socket.create_connection(address, 2)
                except OSError as error:
                    print(type(error).__name__)
            with socket.create_server(("127.0.0.1", 0)) as own:
                socket.create_connection(own.getsockname(), 2).close()
            """
        )
    assert outcome.output == "ConnectionRefusedError\nOSError\n"
    assert outcome.status == 0  # its own loopback works


def test_nothing_of_the_worker_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgres://secret")
    (tmp_path / "secret-key").write_text("secret")
    outcome = tried(
        f"""
        import os
        print("DATABASE_URL" in os.environ, os.path.exists({str(tmp_path)!r}), os.getppid(), os.getuid())
        print(sorted(name for name in os.listdir("/proc") if name.isdecimal()))
        print(os.path.exists("/etc/shadow"), os.path.exists("/var"), os.path.exists("/run"))
        try:
            os.listdir("/proc/1/root")
        except OSError as error:
            print(type(error).__name__)
        """
    )
    lines = ["False False 1 1000", "['1', '2']", "False False False", "PermissionError"]
    assert outcome.output.splitlines() == lines


def test_descriptors_of_the_worker_do_not_come_along(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    with (tmp_path / "secret").open() as file:
        os.set_inheritable(file.fileno(), True)
        outcome = tried("import os; print(sorted(os.listdir('/proc/self/fd'))[:-1])")
    assert outcome.output == "['0', '1', '2', '3']\n"


def test_files_are_shown_and_cannot_be_changed(tmp_path: Path) -> None:
    (tmp_path / "weights").write_text("1")
    outside = tmp_path / "outside"
    outside.write_text("secret")
    (tmp_path / "shown").mkdir()
    (tmp_path / "shown" / "weights").write_text("1")
    (tmp_path / "shown" / "out").symlink_to(outside)
    outcome = tried(
        """
        import os
        print(open("/model/weights").read(), os.path.exists("/model/out"))
        for path in ("/model/weights", "/model/new", "/new", "/usr/new", "/etc/passwd", "/proc/sys/kernel/hostname"):
            try:
                open(path, "w")
                print("wrote", path)
            except OSError:
                pass
        open("/tmp/new", "w").write("mine")
        """,
        mounts=(Mount(tmp_path / "shown", "/model"),),
    )
    assert (outcome.output, outcome.status) == ("1 False\n", 0)


def test_what_is_hidden_in_a_shown_folder_is_not_there(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)  # the user inside is not the one outside
    for name in ("data", "open"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("secret")
    outcome = tried(
        "import os; print(os.listdir('%s/data'), os.path.getsize('%s/open/file'), os.path.exists('%s/gone'))"
        % ((tmp_path,) * 3),
        mounts=(Mount(tmp_path, str(tmp_path)),),
        hidden=(tmp_path / "data", tmp_path / "open" / "file", tmp_path / "gone"),
    )
    assert outcome.output == "[] 0 False\n"


def test_no_privileges_are_left_and_none_can_be_had() -> None:
    outcome = tried(
        """
        import ctypes, os
        status = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines())
        kinds = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
        print({status[name].strip() for name in kinds}, status["NoNewPrivs"])
        libc = ctypes.CDLL(None)
        print(libc.unshare(0x10000000), libc.mount(b"none", b"/tmp", b"tmpfs", 0, None), libc.chroot(b"/tmp"))
        """
    )
    assert outcome.output == "{'0000000000000000'} \t1\n-1 -1 -1\n"


def test_a_fork_bomb_stays_in() -> None:
    outcome = tried(
        """
        import os, time
        count = 0
        try:
            while True:
                if os.fork() == 0:
                    time.sleep(600)
                count += 1
        except OSError as error:
            print(count < 32, type(error).__name__)
        """
    )
    assert outcome.output == "True BlockingIOError\n"


@pytest.mark.parametrize(
    ("code", "end"),
    [
        ("x = bytearray(1 << 30)", "MemoryError"),
        ("open('/tmp/x', 'wb').write(bytes(5 << 20))", "File too large"),
        ("[open(f'/tmp/{n}', 'wb').write(bytes(1 << 20)) for n in range(9)]", "No space left on device"),
        ("[open('/dev/null') for n in range(5000)]", "Too many open files"),
        ("open('/dev/shm/x', 'wb').write(bytes(5 << 20))", "File too large"),
    ],
)
def test_one_process_cannot_take_too_much(code: str, end: str) -> None:
    outcome = tried(f"kept = []\n{code}")
    assert outcome.ending is Ending.ITSELF
    assert end in f"{outcome.output} {outcome.status}"


def test_processes_together_cannot_take_too_much_memory() -> None:
    code = """
        import os, time
        for number in range(4):
            if os.fork() == 0:
                break
        kept = bytearray(os.urandom(1 << 20)) * 100
        time.sleep(600)
        """
    outcome = tried(code)
    assert outcome.ending is Ending.MEMORY
    assert outcome.peak_bytes > LIMITS.memory_bytes


def test_an_endless_loop_ends_at_the_deadline() -> None:
    assert tried("while True: pass", replace(LIMITS, seconds=0.5)).ending is Ending.DEADLINE


def test_the_time_of_a_processor_is_bounded() -> None:
    outcome = tried("while True: pass", replace(LIMITS, cpu_seconds=1))
    assert (outcome.ending, outcome.status < 0) == (Ending.ITSELF, True)


def test_a_stop_ends_it() -> None:
    assert tried("import time; time.sleep(600)", is_stopped=lambda: True).ending is Ending.STOPPED


def test_output_and_answer_are_bounded() -> None:
    limits = replace(LIMITS, output_bytes=1000, answer_bytes=1000)
    outcome = tried("import os; print('x' * 5000 + 'end'); os.write(3, bytes(5000))", limits)
    assert outcome.output.endswith("xend\n")
    assert (len(outcome.output), outcome.answer) == (1000, b"")


def marked(mark: str) -> list[str]:
    found = []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                if mark.encode() in Path("/proc", name, "cmdline").read_bytes():
                    found.append(name)
            except OSError:
                pass
    return found


def gone(mark: str) -> bool:
    deadline = time.monotonic() + 60
    while marked(mark) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not marked(mark)


def test_orphans_end_with_the_command() -> None:
    mark = f"orphan-{os.urandom(8).hex()}"
    code = f"""
        import os, subprocess, sys
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", {mark!r}], start_new_session=True)
        """
    assert tried(code).status == 0
    assert gone(mark)


def test_everything_ends_with_the_worker() -> None:
    mark = f"worker-{os.urandom(8).hex()}"
    code = f"""
        import sys
        from workers.sandbox import Command, Limits, run
        inner = "import os, time; os.fork() or os.setsid(); time.sleep(600)"
        run(Command((sys.executable, "-c", inner, {mark!r})), Limits())
        """
    worker = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], cwd=Path(__file__).parents[3])
    try:
        deadline = time.monotonic() + 60
        while len(marked(mark)) < 3 and time.monotonic() < deadline:  # the worker names it too
            time.sleep(0.02)
        assert len(marked(mark)) >= 3
    finally:
        worker.kill()
        worker.wait()
    assert gone(mark)


@pytest.fixture
def ordinary(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Give the start of a command line that runs the system's interpreter as an ordinary user."""
    system = Path("/usr/bin/python3")
    if os.getuid() != 0 or not system.exists():
        pytest.skip("only root can become somebody else, and the interpreter must be readable for everybody")
    return ["setpriv", "--reuid", "61000", "--regid", "61000", "--clear-groups", str(system), "-I", "-S"]


def test_an_ordinary_user_gets_the_same(ordinary: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    inside = sandbox_process._PROGRAM.read_text()

    def started(passed: list[int], output: int) -> subprocess.Popen[bytes]:
        become = [*ordinary, "-c", inside, *map(str, passed), str(os.getpid())]
        streams = {"stdin": subprocess.PIPE, "stdout": output, "stderr": output}
        return subprocess.Popen(become, cwd="/", env={}, pass_fds=passed, start_new_session=True, **streams)  # type: ignore[call-overload,no-any-return]

    monkeypatch.setattr(sandbox_process, "_started", started)
    monkeypatch.setattr(
        "workers.sandbox.order._places", lambda: [p for p in ("/bin", "/lib", "/lib64", "/usr") if os.path.exists(p)]
    )
    code = "import os; print(os.getuid(), os.getpid(), os.listdir('/proc/self/fd')[:4], os.path.exists('/var'))"
    outcome = run(Command(("/usr/bin/python3", "-c", code)), LIMITS)
    assert outcome.output == "1000 2 ['0', '1', '2', '3'] False\n"


def test_a_host_without_namespaces_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    refusing = tmp_path / "inside.py"
    text = sandbox_process._PROGRAM.read_text().replace("_call(_libc.unshare(", "raise OSError(1, '')\n        _call((")
    refusing.write_text(text)
    monkeypatch.setattr(sandbox_process, "_PROGRAM", refusing)
    with pytest.raises(SandboxUnavailable, match=r"cannot be had on this host.*namespaces.*not permitted"):
        run(Command((sys.executable, "-c", "")), LIMITS)


def test_a_folder_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(SandboxUnavailable, match="No such file"):
        tried("", mounts=(Mount(tmp_path / "gone", "/gone"),))


def test_a_program_that_is_not_there_is_a_sentence() -> None:
    with pytest.raises(SandboxUnavailable, match="cannot be started"):
        run(Command(("/no/such/program",)), LIMITS)
