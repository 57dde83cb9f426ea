"""A server and processes of a toolbox, as processes of their own that a test may kill."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx

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
                if httpx.get(f"{self.url}/readyz", timeout=2).status_code == 200:
                    return
            except httpx.HTTPError:
                pass
            assert self.process is not None and self.process.poll() is None, (self.folder / "server.log").read_text()
            time.sleep(0.02)
        raise AssertionError("the server is not ready: " + (self.folder / "server.log").read_text())

    def kill(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None


class Box:
    """A process that serves a toolbox."""

    def __init__(self, server: Server, program: Path, log: str = "box", **environment: str) -> None:
        self.server = server
        self.program = program
        self.environment = environment
        self.log = server.folder / f"{log}.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        environment = {**os.environ, "WINDLASS_URL": self.server.url, "WINDLASS_TOKEN": self.server.token, **self.environment}
        interpreter = "node" if self.program.suffix == ".mjs" else sys.executable
        words = [interpreter, str(self.program)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(words, env=environment, stdout=log, stderr=log)

    def kill(self, sign: int = signal.SIGKILL) -> None:
        if self.process is not None:
            self.process.send_signal(sign)
            self.process.wait()
            self.process = None

    def freeze(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def said(self) -> str:
        return self.log.read_text() if self.log.exists() else ""
