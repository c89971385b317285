"""Ordered start, health gates, and ordered stop of the whole stack."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from dataclasses import dataclass, field
from typing import Any

from flotilla.up.data_folder import DataFolder, is_free
from flotilla.up.process import ProcessFailed, ProcessSpec, SupervisedProcess
from flotilla.up.stack import Stack, UpOptions, join_token_file

_COMMAND_TIMEOUT_SECONDS = 180
_COLOURS = {"postgres": 34, "valkey": 35, "web": 32, "worker": 36, "jobs": 36, "beat": 33, "observe": 33, "node": 31}


class StartFailed(RuntimeError):
    """The stack could not start; everything that had started is stopped again."""


@dataclass(slots=True)
class Supervisor:
    """Runs one stack in one data folder until it is told to stop."""

    options: UpOptions
    folder: DataFolder
    _running: list[SupervisedProcess] = field(default_factory=list)
    _stop: asyncio.Event = field(default_factory=asyncio.Event)
    _state: str = "starting"

    async def run(self) -> None:
        """Start everything, print where it is, wait for SIGINT or SIGTERM, stop everything.

        Raises:
            StartFailed: with the sentence to print.
        """
        loop = asyncio.get_running_loop()
        for wanted in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(wanted, self._stop.set)
        stack = Stack(self.options, self.folder)
        try:
            starting = asyncio.create_task(self._start(stack))
            stopping = asyncio.create_task(self._stop.wait())
            await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not starting.done():
                starting.cancel()
            try:
                await starting
            except asyncio.CancelledError:
                return
            except ProcessFailed as error:
                raise StartFailed(str(error)) from None
            await stopping
        finally:
            await self._stop_all()

    async def _start(self, stack: Stack) -> None:
        self._refuse_occupied_ports()
        (self.folder.path / "logs").mkdir(exist_ok=True, mode=0o700)
        self._write_run_info()
        await asyncio.to_thread(stack.prepare_servers)
        for spec in stack.servers:
            await self._launch(spec)
        if any(spec.name == "postgres" for spec in stack.servers):
            await self._command(stack, "flotilla.up.create_database")
        await self._command(stack, "django", "migrate", "--no-input")
        first_start = json.loads(await self._command(stack, "django", "first_start"))
        for spec in stack.control_plane():
            await self._launch(spec)
        if self.options.with_node:
            await self._launch_node(stack)
        self._state = "running"
        self._write_run_info()
        self._announce(stack, first_start)

    async def _launch_node(self, stack: Stack) -> None:
        token = "already-joined"  # noqa: S105  # not a secret: a node with an identity never sends it
        if not (self.folder.path / "node" / "identity.json").exists():
            token = (
                await self._command(stack, "django", "join_token", "--labels", "development=yes,production=yes")
            ).strip()
        await self._launch(stack.node(join_token_file(self.folder, token)))

    async def _launch(self, spec: ProcessSpec) -> None:
        process = SupervisedProcess(spec, self._say, self.folder.path / "logs", self._write_run_info)
        self._running.append(process)
        await process.start()

    async def _command(self, stack: Stack, module: str, *arguments: str) -> str:
        """Run ``python -m module arguments`` to its end and return what it printed."""
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", module, *arguments),
            env=stack.environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(_COMMAND_TIMEOUT_SECONDS):
                output, problems = await child.communicate()
        except (TimeoutError, asyncio.CancelledError):
            child.kill()
            await child.wait()
            raise
        if child.returncode != 0:
            raise ProcessFailed(f"{module} {' '.join(arguments[:1])} failed:\n{problems.decode(errors='replace')}")
        return output.decode()

    async def _stop_all(self) -> None:
        if self._running:
            self._say("flotilla", "stopping")
        # the other way round: nobody loses a server that it still needs
        for process in reversed(self._running):
            await process.stop()
        self._running.clear()

    def _refuse_occupied_ports(self) -> None:
        wanted = {"console": self.options.port}
        if self.options.with_node:
            names = ("node HTTP", "node gRPC", "node metrics", "node admin")
            wanted |= {name: self.options.node_port + offset for offset, name in enumerate(names)}
        for name, port in wanted.items():
            if not is_free(port):
                option = "--port" if name == "console" else "--node-port"
                raise ProcessFailed(f"Port {port} ({name}) is in use by another program. Choose another: {option}.")

    def _write_run_info(self) -> None:
        """Tell other commands where we are; again whenever a child gets a new process id."""
        self.folder.write_run_info(
            {
                "pid": os.getpid(),
                "url": f"http://127.0.0.1:{self.options.port}",
                "state": self._state,
                "processes": {process.spec.name: process.pid for process in self._running},
            }
        )

    def _announce(self, stack: Stack, first_start: dict[str, Any]) -> None:
        lines = ["", f"  Flotilla is running: {stack.url}"]
        if self.options.with_node:
            first = self.options.node_port
            lines.append(
                f"  Serving node 'local':  HTTP 127.0.0.1:{first}  gRPC 127.0.0.1:{first + 1}"
                f"  metrics 127.0.0.1:{first + 2}"
            )
        if first_start.get("password"):
            lines += [
                "",
                f"  First login:  {first_start['username']}  {first_start['password']}",
                "  This password is shown once. Change it under Settings.",
            ]
        lines += [f"  Data: {self.folder.path}   Stop: Ctrl-C", ""]
        print("\n".join(lines), flush=True)

    def _say(self, name: str, line: str) -> None:
        label = f"{name:<9}"
        if sys.stdout.isatty():
            label = f"\x1b[{_COLOURS.get(name, 37)}m{label}\x1b[0m"
        print(f"{label}| {line}", flush=True)
