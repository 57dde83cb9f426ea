"""A server and processes of a toolbox, as processes of their own that a test may kill."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

CONFIG = """
[limits]
toolbox_silence_ms = 1500
toolbox_wait_ms_max = 300
"""


class Server:
    """A server on a data folder."""

    def __init__(self, folder: Path, config: str = CONFIG) -> None:
        self.folder = folder
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "windlass.toml").write_text(config)
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def token(self) -> str:
        return (self.folder / "token").read_text().strip()

    def start(self, wait: bool = True) -> None:
        binary = os.environ.get("WINDLASS_BIN", "windlass")
        words = [binary, "serve", "--data", str(self.folder), "--listen", f"127.0.0.1:{self.port}"]
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(words, stdout=log, stderr=log, cwd=self.folder)
        if wait:
            self.until_ready()

    def until_ready(self) -> None:
        until = time.monotonic() + 120
        while time.monotonic() < until:
            try:
                if self.get("/readyz", timeout=2)[0] == 200:
                    return
            except (OSError, http.client.HTTPException):
                pass
            assert self.process is not None and self.process.poll() is None, (self.folder / "server.log").read_text()
            time.sleep(0.01)
        raise AssertionError("the server is not ready: " + (self.folder / "server.log").read_text())

    def get(self, path: str, timeout: float = 30) -> tuple[int, bytes]:
        """One request, by the means of the standard library: those are cheap to set up."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            token = self.folder / "token"
            headers = {"Authorization": f"Bearer {self.token}"} if token.exists() else {}
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def shows(self, path: str) -> Any:
        """What is shown at a path."""
        status, text = self.get(path)
        assert status == 200, f"{path}: {status} {text.decode()}"
        return json.loads(text)

    def served(self) -> list[bool]:
        """Of each toolbox, whether a process serves it."""
        return [toolbox["served"] for toolbox in self.shows("/v1/toolboxes")["items"]]

    def kill(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None


class Nursery:
    """A process that has loaded a program, and forks one for each box that is started: that takes milliseconds, where a new interpreter
    and its imports take a third of a second of processor time. A fork is a process as any other."""

    def __init__(self, program: Path) -> None:
        words = [sys.executable, str(Path(__file__).parent / "nursery.py"), str(program)]
        self.lock = threading.Lock()
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def start(self, environment: dict[str, str], log: Path) -> int:
        """Starts the program, and returns its process id."""
        assert self.process.stdin is not None and self.process.stdout is not None
        with self.lock:
            self.process.stdin.write(json.dumps({"environment": environment, "log": str(log)}) + "\n")
            self.process.stdin.flush()
            return int(self.process.stdout.readline())

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


class Box:
    """A process that serves a toolbox."""

    def __init__(self, server: Server, program: Path, log: str = "box", nursery: Nursery | None = None, **environment: str) -> None:
        self.server = server
        self.program = program
        self.nursery = nursery
        self.environment = environment
        self.log = server.folder / f"{log}.log"
        self.process: subprocess.Popen[bytes] | int | None = None

    def start(self) -> None:
        environment = {"WINDLASS_URL": self.server.url, "WINDLASS_TOKEN": self.server.token, **self.environment}
        if self.nursery is not None:
            self.process = self.nursery.start(environment, self.log)
            return
        interpreter = "node" if self.program.suffix == ".mjs" else sys.executable
        words = [interpreter, str(self.program)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(words, env={**os.environ, **environment}, stdout=log, stderr=log)

    def kill(self, sign: int = signal.SIGKILL) -> None:
        if isinstance(self.process, int):
            # One that has ended by itself is not there any more.
            with contextlib.suppress(ProcessLookupError):
                ended = os.pidfd_open(self.process)
                try:
                    os.kill(self.process, sign)
                    select.select([ended], [], [])
                finally:
                    os.close(ended)
        elif self.process is not None:
            self.process.send_signal(sign)
            self.process.wait()
        self.process = None

    def signal(self, sign: int) -> None:
        assert self.process is not None
        os.kill(self.process if isinstance(self.process, int) else self.process.pid, sign)

    def freeze(self) -> None:
        self.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.signal(signal.SIGCONT)

    def said(self) -> str:
        return self.log.read_text() if self.log.exists() else ""
