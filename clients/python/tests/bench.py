"""The overhead of a toolbox in Python: a call alone beside the same call in Rust, and 64 at once beside a bare loop.

    WINDLASS_BIN=target/release/windlass python bench.py [--seconds 20]

- Alone: one client makes one call after the other, of `add`, which the server runs itself, and of `add_here`, which a process of a toolbox runs.
- At once: 64 calls in each batch, against a bare loop that moves the same batches of work over the same client library: it posts a batch, takes
  its items, and reports their results, with the fields that those of a toolbox have, to a server that keeps them in memory and does nothing else.

Each is measured in turns with its floor, in several rounds, so that both have the same noise around them; the medians are told, with the least
and the most of the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
from harness import Server

from windlass import AsyncClient, serve, tool

AT_ONCE = 64
ROUNDS = 9
CONFIG = f"""
builtin = ["demo"]

[limits]
session_calls_running_max = {AT_ONCE}
"""
"""The example tools, `add` among them. By default a session runs only 32 calls at once."""


@tool(effect="read", claims=[])
async def add_here(a: int, b: int) -> int:
    """The sum of two numbers."""
    return a + b


async def p50_ms(client: AsyncClient, name: str, seconds: float) -> float:
    """The median time of a call alone."""
    times: list[float] = []
    until = time.monotonic() + seconds
    while time.monotonic() < until or len(times) < 20:
        began = time.perf_counter()
        # Other arguments each time: a model that repeats itself is stopped.
        call = await client.call(name, {"a": time.monotonic_ns() % 1_000_000, "b": 23})
        times.append((time.perf_counter() - began) * 1000)
        assert call["state"] == "succeeded", call
    return statistics.median(times)


def batch_of() -> list[dict[str, Any]]:
    """The calls of one batch. Other arguments each time: a model that repeats itself is stopped."""
    first = time.monotonic_ns() % 1_000_000_000
    return [{"id": f"c{n}", "tool": "add_here", "args": {"a": first + n, "b": 1}} for n in range(AT_ONCE)]


async def calls_per_s(client: AsyncClient, seconds: float) -> float:
    """Calls in a second, 64 in each batch."""
    done, began = 0, time.monotonic()
    while time.monotonic() < began + seconds:
        answered = await client.batch(batch_of())
        assert all(call["state"] == "succeeded" for call in answered), answered[0]
        done += len(answered)
    return done / (time.monotonic() - began)


class BareServer:
    """Batches, items and results in memory, behind just enough of HTTP. Items and answers have the fields that those of a toolbox have."""

    def __init__(self) -> None:
        self.items: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.batches: dict[str, tuple[dict[str, Any], asyncio.Future[None]]] = {}
        self.calls: dict[str, tuple[str, dict[str, Any]]] = {}

    async def answer(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if path == "/batch":
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            key = body["key"]
            calls: dict[str, Any] = {call["id"]: dict(call, call=secrets.token_hex(13)) for call in body["calls"]}
            self.batches[key] = (dict(calls), done)
            for call in calls.values():
                token = f"{call['call']}.{secrets.token_hex(16)}"
                self.calls[token] = (key, call)
                self.items.put_nowait(taken(token, call))
            await done
            return {"calls": list(calls.values())}
        if path == "/take":
            items = [await self.items.get()]
            while len(items) < body["max"] and not self.items.empty():
                items.append(self.items.get_nowait())
            return {"attempts": items}
        for report in body["reports"]:
            key, call = self.calls.pop(report["attempt"])
            value = report["end"]["value"]
            call |= {"state": "succeeded", "attempts": 1, "outcome": {"state": "succeeded", "value": value}, "model": {"parts": [{"type": "text", "text": str(value)}]}}
            left, done = self.batches[key]
            del left[call["id"]]
            if not left:
                del self.batches[key]
                done.set_result(None)
        return {"attempts": [{"attempt": report["attempt"], "state": "over", "answers": []} for report in body["reports"]]}

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.decode().lower().split("\r\n")
                length = next(int(line[16:]) for line in lines if line.startswith("content-length: "))
                body = json.loads(await reader.readexactly(length))
                text = json.dumps(await self.answer(lines[0].split()[1], body)).encode()
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(text) + text)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()


def taken(token: str, call: dict[str, Any]) -> dict[str, Any]:
    """An item with the fields of an attempt."""
    return {
        "attempt": token,
        "call": call["call"],
        "id": call["id"],
        "tool": call["tool"],
        "args": call["args"],
        "session": "bench",
        "principal": "admin",
        "number": 1,
        "attempts_max": 3,
        "redrive": False,
        "idempotency_key": token[:26],
        "deadline": "2026-01-01T00:00:00.000000Z",
        "left_ms": 30000,
        "steps": [],
    }


class Bare:
    """The bare loop. Its server and its worker are processes of their own, as those of a toolbox are."""

    def __init__(self) -> None:
        self.server = subprocess.Popen([sys.executable, __file__, "--bare-server"], stdout=subprocess.PIPE, text=True)
        assert self.server.stdout is not None
        self.url = self.server.stdout.readline().strip()
        self.worker = subprocess.Popen([sys.executable, __file__, "--bare-worker", self.url])
        self.http = httpx.AsyncClient(base_url=self.url, timeout=30)
        self.number = 0

    async def per_s(self, seconds: float) -> float:
        """Items in a second."""
        done, began = 0, time.monotonic()
        while time.monotonic() < began + seconds:
            self.number += 1
            response = await self.http.post("/batch", json={"key": str(self.number), "calls": batch_of()})
            done += len(response.json()["calls"])
        return done / (time.monotonic() - began)

    async def close(self) -> None:
        await self.http.aclose()
        self.worker.kill()
        self.server.kill()


async def bare_server() -> None:
    bare = BareServer()
    listening = await asyncio.start_server(bare.talk, "127.0.0.1", 0)
    print(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}", flush=True)
    await listening.serve_forever()


async def bare_worker(url: str) -> None:
    async with httpx.AsyncClient(base_url=url, timeout=None) as http:
        while True:
            items = (await http.post("/take", json={"max": AT_ONCE})).json()["attempts"]
            reports = [{"attempt": item["attempt"], "end": {"type": "value", "value": item["args"]["a"] + item["args"]["b"]}} for item in items]
            await http.post("/report", json={"worker": "w", "reports": reports})


async def until_served(client: AsyncClient) -> None:
    while not [box for box in (await client._ask("GET", "/v1/toolboxes", None))["items"] if box["served"]]:
        await asyncio.sleep(0.02)


async def measure(seconds: float) -> None:
    bare = Bare()
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder), CONFIG)
        server.start()
        box = subprocess.Popen([sys.executable, __file__, "--box", server.url, server.token])
        try:
            async with AsyncClient("bench", url=server.url, token=server.token) as client:
                await until_served(client)
                await calls_per_s(client, 1)
                await bare.per_s(1)
                piece = seconds / ROUNDS
                # In turns, so that both of each pair have the same noise around them.
                alone = [(await p50_ms(client, "add", piece), await p50_ms(client, "add_here", piece)) for _ in range(ROUNDS)]
                many = [(await calls_per_s(client, piece), await bare.per_s(piece)) for _ in range(ROUNDS)]
        finally:
            box.kill()
            server.kill()
            await bare.close()
    print(f"{'':24}{'floor':>12}{'toolbox':>12}{'difference, ratio':>20}{'rounds':>18}  aim")
    line("alone, p50", "ms", alone, [here - rust for rust, here in alone], "at most 3 ms more")
    line(f"{AT_ONCE} at once", "/s", [(items, calls) for calls, items in many], [calls / items for calls, items in many], "at least 0.5")


def line(what: str, unit: str, pairs: list[tuple[float, float]], compared: list[float], aim: str) -> None:
    """One line of the table: a floor, the same through a toolbox, and how they compare in the rounds."""
    floor, here = (f"{statistics.median(one):.4g} {unit}" for one in zip(*pairs))
    between = f"{min(compared):.2f} .. {max(compared):.2f}"
    print(f"{what:24}{floor:>12}{here:>12}{statistics.median(compared):>20.2f}{between:>18}  {aim}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--bare-server", action="store_true")
    parser.add_argument("--bare-worker")
    parser.add_argument("--box", nargs=2)
    options = parser.parse_args()
    if options.bare_server:
        asyncio.run(bare_server())
    elif options.bare_worker:
        asyncio.run(bare_worker(options.bare_worker))
    elif options.box:
        serve(add_here, toolbox="bench", url=options.box[0], token=options.box[1], slots=AT_ONCE)
    else:
        asyncio.run(measure(options.seconds))


if __name__ == "__main__":
    main()
