"""Builds the sandbox around itself and runs a command in it. Run as a program; the standard library only.

Three processes: the first one keeps the identity of the worker and gives the second its user ids. The second has new
namespaces. The third is the first process of the new PID namespace: it makes the file system, starts the command, looks
at its memory, and takes everything with it when it ends. What happened is told on the descriptor named first.

Source: user_namespaces(7), mount_namespaces(7), pid_namespaces(7), capabilities(7), mount_setattr(2).
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import resource
import signal
import socket
import stat
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

_USER, _MOUNT, _PID, _NET, _IPC, _UTS = 0x10000000, 0x00020000, 0x20000000, 0x40000000, 0x08000000, 0x04000000
_CGROUP = 0x02000000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REMOUNT, _MS_BIND = 1, 2, 4, 8, 32, 4096
_MS_REC, _MS_PRIVATE = 16384, 1 << 18
_MNT_DETACH = 2
_SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_SYS_MOUNT_SETATTR = 442
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_ATTR_RDONLY, _ATTR_NOSUID, _ATTR_NODEV = 1, 2, 4
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 1, 4, 24, 38, 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_CAPABILITY_VERSION_3 = 0x20080522
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1

_ID = 1000
"""The user and group inside. Outside it is the worker's own, or for root one of a range that no account has."""
_FIRST_FREE_ID, _FREE_IDS = 61184, 4336
_ROOT = Path("/tmp")  # noqa: S108  where the new root is made, in the new mount namespace only
_SHARED = _ROOT / "dev/shm"
_OWN_SHARED = _ROOT / "tmp/.shm"
_DEVICES = ("null", "zero", "full", "random", "urandom")
_ANSWER, _OWN = 3, 10
_LOOK_SECONDS = 0.2

_libc = ctypes.CDLL(None, use_errno=True)


class Unavailable(Exception):
    """A part of the sandbox cannot be had here."""


@contextmanager
def _step(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Unavailable(f"{what}: {os.strerror(error.errno or 0)}") from error


def _call(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), "")
    return result


def _prctl(option: int, *values: int) -> None:
    # the kernel reads four more arguments, and some options insist that the unused ones are 0
    padded = (*values, 0, 0, 0, 0)[:4]
    _call(_libc.prctl(option, *(ctypes.c_ulong(value) for value in padded)))


def _mount(source: str | Path, target: str | Path, kind: str, flags: int, options: str = "") -> None:
    names = (str(source).encode(), str(target).encode(), kind.encode())
    _call(_libc.mount(*names, ctypes.c_ulong(flags), options.encode() or None))


def main(descriptor: int, answer: int, parent: int) -> int:
    """Read the order on standard input and obey it. Returns the exit status, which says nothing.

    Args:
        descriptor: takes one line of JSON, what happened.
        answer: is descriptor 3 of the command.
        parent: the process that waits; this one ends with it.
    """
    _die_with_parent(parent)
    # the command gets the numbers 0 to 3
    descriptor, answer = (fcntl.fcntl(number, fcntl.F_DUPFD, _OWN) for number in (descriptor, answer))
    order: dict[str, Any] = json.load(sys.stdin)
    outside = os.getuid(), os.getgid()
    if outside[0] == 0:
        outside = (_FIRST_FREE_ID + os.getpid() % _FREE_IDS,) * 2
    ready, ready_in = os.pipe()
    mapped, mapped_in = os.pipe()
    child = os.fork()
    if not child:
        os.close(ready)
        os.close(mapped_in)
        _told(descriptor, lambda: _second(order, descriptor, answer, ready_in, mapped))
    os.close(answer)
    os.close(ready_in)
    os.close(mapped)
    try:
        if os.read(ready, 1):
            _told(descriptor, lambda: _map_ids(child, *outside), ends=False)
            os.write(mapped_in, b"x")
    finally:
        os.close(mapped_in)
        os.waitpid(child, 0)
    return 0


def _told(descriptor: int, work: Callable[[], None], ends: bool = True) -> None:
    """Do the work; why it cannot be done is told. With ``ends`` the process is over afterwards."""
    try:
        work()
    except BaseException as error:
        text = str(error) if isinstance(error, Unavailable) else f"{type(error).__name__}: {error}"
        _tell(descriptor, {"unavailable": text})
        os._exit(1)
    if ends:
        os._exit(0)


def _tell(descriptor: int, message: dict[str, Any]) -> None:
    with suppress(OSError):
        os.write(descriptor, json.dumps(message).encode() + b"\n")


def _die_with_parent(parent: int) -> None:
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)  # it ended before this one could say so


def _map_ids(child: int, user: int, group: int) -> None:
    """Give the user and group inside an identity outside."""
    with _step("the user namespace cannot be given an identity"):
        if os.getuid():
            Path(f"/proc/{child}/setgroups").write_text("deny")
        Path(f"/proc/{child}/gid_map").write_text(f"{_ID} {group} 1")
        Path(f"/proc/{child}/uid_map").write_text(f"{_ID} {user} 1")


def _second(order: dict[str, Any], descriptor: int, answer: int, ready: int, mapped: int) -> None:
    """Enter new namespaces, and start the process that is the first one in them."""
    _die_with_parent(os.getppid())
    if not os.getuid():
        with _step("groups cannot be given up"):
            os.setgroups([])
    with _step("the kernel does not let this process make new namespaces (user, mount, PID, network)"):
        _call(_libc.unshare(_USER | _MOUNT | _PID | _NET | _IPC | _UTS | _CGROUP))
    os.write(ready, b"x")
    if not os.read(mapped, 1):
        os._exit(1)
    child = os.fork()
    if not child:
        _told(descriptor, lambda: _first(order, descriptor, answer))
    os.close(answer)
    os.waitpid(child, 0)


def _first(order: dict[str, Any], descriptor: int, answer: int) -> None:
    """Be the first process of the sandbox: nothing in it outlives this one."""
    with _step("what is to be shown cannot be opened"):
        # before identities and mounts change, which may end the right to reach them
        shown = [_Shown(outside, inside) for outside, inside in order["mounts"]]
        devices = [_Shown(f"/dev/{name}", f"/dev/{name}") for name in _DEVICES]
    with _step("the identity of the sandbox cannot be taken"):
        os.setresgid(_ID, _ID, _ID)
        os.setresuid(_ID, _ID, _ID)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # forgotten with the identity
    _network_up()
    _build(order, shown, devices)
    with _step("the number of user namespaces cannot be limited"):
        Path("/proc/sys/user/max_user_namespaces").write_text("0")
    _seal()
    _prctl(_PR_SET_DUMPABLE, 0)
    # what cannot be run is told apart from what cannot be built: the pipe closes when the command begins
    begun, begun_in = os.pipe2(os.O_CLOEXEC)
    child = os.fork()
    if not child:
        os.close(begun)
        _become(order, answer, begun_in)
    for number in (0, 1, 2, answer, begun_in):
        os.close(number)
    problem = os.read(begun, 1000)
    if problem:
        raise Unavailable(problem.decode())
    _tell(descriptor, _watched(child, order))


def _network_up() -> None:
    with _step("the loopback of the sandbox cannot be switched on"), socket.socket() as one:
        request = struct.pack("16sH14s", b"lo", 0, b"")
        flags = struct.unpack("16sH14s", fcntl.ioctl(one, _SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(one, _SIOCSIFFLAGS, struct.pack("16sH14s", b"lo", flags | _IFF_UP, b""))


class _Shown:
    """A file, folder or link of the host, opened so that it can be bound whatever covers its path by then."""

    def __init__(self, outside: str, inside: str) -> None:
        self.outside, self.inside = outside, inside
        self.descriptor = os.open(outside, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        self._mode = os.fstat(self.descriptor).st_mode

    def appear(self, *, writable: bool = False) -> None:
        """Be at its path of the new root; without ``writable`` neither it nor anything below can be changed."""
        target = _inside(self.inside)
        target.parent.mkdir(parents=True, exist_ok=True)
        if stat.S_ISLNK(self._mode):
            target.symlink_to(os.readlink("", dir_fd=self.descriptor))
        else:
            if stat.S_ISDIR(self._mode):
                target.mkdir(parents=True, exist_ok=True)
            else:
                target.touch()
            _mount(f"/proc/self/fd/{self.descriptor}", target, "", _MS_BIND | _MS_REC)
            if not writable:
                _read_only(target)
        os.close(self.descriptor)


def _build(order: dict[str, Any], shown: list[_Shown], devices: list[_Shown]) -> None:
    """Make a file system of what is named and nothing else, and move into it."""
    with _step("the mounts of the host cannot be left alone"):
        _mount("none", "/", "", _MS_REC | _MS_PRIVATE)
    with _step("a new root cannot be made"):
        _mount("tmpfs", _ROOT, "tmpfs", _MS_NOSUID | _MS_NODEV, "size=4m,mode=755")
        (_ROOT / "old").mkdir()
    with _step("the temporary folder cannot be made"):
        options = f"size={order['scratch_bytes']},nr_inodes=65536,mode=1777"
        _OWN_SHARED.parent.mkdir()
        _mount("tmpfs", _OWN_SHARED.parent, "tmpfs", _MS_NOSUID | _MS_NODEV, options)
        _OWN_SHARED.mkdir()
        _SHARED.mkdir(parents=True)
        _mount(_OWN_SHARED, _SHARED, "", _MS_BIND)
    for one in (*shown, *devices):
        with _step(f"{one.outside} cannot be shown"):
            one.appear(writable=one in devices)
    _hide(order["hidden"])
    with _step("a list of users cannot be made"):
        lists = _ROOT / "etc"
        lists.mkdir(exist_ok=True)
        (lists / "passwd").write_text(f"sandbox:x:{_ID}:{_ID}::/tmp:/bin/false\n")
        (lists / "group").write_text(f"sandbox:x:{_ID}:\n")
        (lists / "hosts").write_text("127.0.0.1 localhost\n")
    with _step("the processes of the host cannot be hidden (/proc)"):
        (_ROOT / "proc").mkdir()
        _mount("proc", _ROOT / "proc", "proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
    with _step("the new root cannot be entered"):
        number = _SYS_PIVOT_ROOT.get(os.uname().machine)
        if number is None:
            raise Unavailable(f"the sandbox does not know machines of the kind {os.uname().machine}")
        _call(_libc.syscall(ctypes.c_long(number), bytes(_ROOT), bytes(_ROOT / "old")))
        os.chdir("/")
        _call(_libc.umount2(b"/old", _MNT_DETACH))
        Path("/old").rmdir()
        _mount("none", "/", "", _MS_REMOUNT | _MS_BIND | _MS_RDONLY | _MS_NOSUID | _MS_NODEV)


def _inside(path: str) -> Path:
    return _ROOT / path.lstrip("/")


def _read_only(target: Path) -> None:
    attributes = struct.pack("QQQQ", _ATTR_RDONLY | _ATTR_NOSUID | _ATTR_NODEV, 0, 0, 0)
    number, flags = ctypes.c_long(_SYS_MOUNT_SETATTR), ctypes.c_uint(_AT_RECURSIVE)
    _call(
        _libc.syscall(
            number, ctypes.c_int(_AT_FDCWD), bytes(target), flags, attributes, ctypes.c_size_t(len(attributes))
        )
    )


def _hide(paths: list[str]) -> None:
    """Cover what lies inside of a shown folder and must not be seen."""
    for path in paths:
        with _step(f"{path} cannot be hidden"):
            target = _inside(path)
            if not target.exists():
                continue
            if target.is_dir():
                _mount("tmpfs", target, "tmpfs", _MS_RDONLY | _MS_NOSUID | _MS_NODEV, "size=4k,mode=755")
            else:
                _mount("/dev/null", target, "", _MS_BIND)


def _seal() -> None:
    """Give up every capability for what is started from here, and any way to get one back."""
    with _step("privileges cannot be given up"):
        _prctl(_PR_SET_NO_NEW_PRIVS, 1)
        _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
        for capability in range(int(Path("/proc/sys/kernel/cap_last_cap").read_text()) + 1):
            _prctl(_PR_CAPBSET_DROP, capability)


def _become(order: dict[str, Any], answer: int, begun: int) -> NoReturn:
    """Be the command: an ordinary user without capabilities, bounded, with the descriptors 0 to 3 only."""
    try:
        os.setsid()
        _bound(order)
        header = struct.pack("Ii", _CAPABILITY_VERSION_3, 0)
        _call(_libc.capset(header, struct.pack("IIIIII", 0, 0, 0, 0, 0, 0)))
        os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
        begun = fcntl.fcntl(begun, fcntl.F_DUPFD_CLOEXEC, _OWN)
        os.dup2(answer, _ANSWER)
        os.closerange(_ANSWER + 1, begun)
        os.closerange(begun + 1, 4096)
        os.chdir("/tmp")  # noqa: S108
        os.umask(0o077)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # the interpreter ignores them, and so would the command
            signal.signal(number, signal.SIG_DFL)
        os.execve(order["arguments"][0], order["arguments"], order["environment"])  # noqa: S606
    except BaseException as error:
        os.write(begun, f"the command cannot be started: {error}".encode()[:1000])
    os._exit(1)


def _bound(order: dict[str, Any]) -> None:
    limits = {
        resource.RLIMIT_DATA: order["memory_bytes"],
        resource.RLIMIT_CPU: order["cpu_seconds"],
        resource.RLIMIT_FSIZE: order["file_bytes"],
        resource.RLIMIT_NPROC: order["tasks"],
        resource.RLIMIT_NOFILE: order["open_files"],
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
    }
    for kind, most in limits.items():
        hard = resource.getrlimit(kind)[1]
        value = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (value, value))


def _watched(child: int, order: dict[str, Any]) -> dict[str, Any]:
    """Wait for the command, burying orphans, and say how it ended; too much memory or time ends it."""
    end = time.monotonic() + order["seconds"]
    looked, peak = 0.0, 0
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    while True:
        with suppress(ChildProcessError):
            while (gone := os.waitpid(-1, os.WNOHANG))[0]:
                if gone[0] == child:
                    return {"ended": "itself", "status": os.waitstatus_to_exitcode(gone[1]), "peak_bytes": peak}
        now = time.monotonic()
        if now > end:
            return {"ended": "deadline", "status": 0, "peak_bytes": peak}
        if now > looked + _LOOK_SECONDS:
            used = _memory_used()
            peak, looked = max(peak, used), time.monotonic()
            if used > order["memory_bytes"]:
                return {"ended": "memory", "status": 0, "peak_bytes": peak}
        signal.sigtimedwait({signal.SIGCHLD}, _LOOK_SECONDS)


def _memory_used() -> int:
    """Return the bytes of memory that the processes hold, files that can be read again not counted."""
    total = 0
    for place in Path("/proc").iterdir():
        if not place.name.isdecimal() or place.name == "1":
            continue
        with suppress(OSError, ValueError):
            for line in (place / "smaps_rollup").read_text().splitlines():
                if line.startswith(("Pss_Anon:", "Pss_Shmem:")):
                    total += int(line.split()[1]) * 1024
    return total


if __name__ == "__main__":
    raise SystemExit(main(*map(int, sys.argv[1:4])))
