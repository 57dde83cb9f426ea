"""The overhead of a toolbox in Python: a call alone beside the same call in Rust, and 64 at once beside a bare loop.

    WINDLASS_BIN=target/release/windlass python bench.py [--seconds 5]

- Alone: one client makes one call after the other, of `add`, which the server runs itself, and of `add_here`, which a process of a toolbox runs.
- At once: 64 calls in each batch, against a bare loop that moves the same batches of work over the same client library: it posts a batch, takes
  its items, and reports their results, to a server that keeps them in memory and does nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import json
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


async def calls_per_s(client: AsyncClient, seconds: float) -> float:
    """Calls in a second, 64 in each batch."""
    done, began = 0, time.monotonic()
    while time.monotonic() < began + seconds:
        batch = [{"id": f"c{n}", "tool": "add_here", "args": {"a": n, "b": 1}} for n in range(AT_ONCE)]
        answered = await client.batch(batch)
        assert all(call["state"] == "succeeded" for call in answered), answered[0]
        done += len(answered)
    return done / (time.monotonic() - began)


class BareServer:
    """Batches, items and results in memory, behind just enough of HTTP."""

    def __init__(self) -> None:
        self.items: asyncio.Queue[list[dict[str, Any]]] = asyncio.Queue()
        self.batches: dict[str, asyncio.Future[list[Any]]] = {}

    async def answer(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if path == "/batch":
            results: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
            self.batches[body["key"]] = results
            await self.items.put([{"key": body["key"], **call} for call in body["calls"]])
            return {"results": await results}
        if path == "/take":
            return {"items": await self.items.get()}
        self.batches.pop(body["key"]).set_result(body["results"])
        return {}

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


async def bare_per_s(seconds: float) -> float:
    """Items in a second through the bare loop. The server and the worker are processes of their own, as those of a toolbox are."""
    server = subprocess.Popen([sys.executable, __file__, "--bare-server"], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    url = server.stdout.readline().strip()
    worker = subprocess.Popen([sys.executable, __file__, "--bare-worker", url])
    try:
        async with httpx.AsyncClient(base_url=url, timeout=30) as http:
            done, began, number = 0, time.monotonic(), 0
            while time.monotonic() < began + seconds:
                number += 1
                calls = [{"id": f"c{n}", "args": {"a": n, "b": 1}} for n in range(AT_ONCE)]
                answered = (await http.post("/batch", json={"key": str(number), "calls": calls})).json()
                done += len(answered["results"])
            return done / (time.monotonic() - began)
    finally:
        worker.kill()
        server.kill()


async def bare_server() -> None:
    bare = BareServer()
    listening = await asyncio.start_server(bare.talk, "127.0.0.1", 0)
    print(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}", flush=True)
    await listening.serve_forever()


async def bare_worker(url: str) -> None:
    async with httpx.AsyncClient(base_url=url, timeout=None) as http:
        while True:
            items = (await http.post("/take", json={"max": AT_ONCE})).json()["items"]
            results = [item["args"]["a"] + item["args"]["b"] for item in items]
            await http.post("/report", json={"key": items[0]["key"], "results": results})


async def measure(seconds: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder), config="")
        # Without a configuration the server has its example tools, `add` among them.
        (Path(folder) / "windlass.toml").unlink()
        server.start()
        box = subprocess.Popen([sys.executable, __file__, "--box", server.url, server.token])
        try:
            async with AsyncClient("bench", url=server.url, token=server.token) as client:
                while not [box for box in (await client._ask("GET", "/v1/toolboxes", None))["items"] if box["served"]]:
                    await asyncio.sleep(0.02)
                await calls_per_s(client, 1)
                # In turns, so that both have the same noise around them.
                pairs = [(await p50_ms(client, "add", seconds / 5), await p50_ms(client, "add_here", seconds / 5)) for _ in range(5)]
                rust, here = (statistics.median(times) for times in zip(*pairs))
                many = await calls_per_s(client, seconds)
        finally:
            box.kill()
            server.kill()
    bare = await bare_per_s(seconds)
    print(f"alone, p50: {rust:.2f} ms in Rust, {here:.2f} ms through a toolbox: {here - rust:.2f} ms more (aim: at most 3)")
    print(f"{AT_ONCE} at once: {many:.0f} calls/s, the bare loop {bare:.0f}: {100 * many / bare:.0f} % (aim: at least 50)")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=5)
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
