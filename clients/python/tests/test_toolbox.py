"""A toolbox against a real server: results, steps through kills, cancels, graceful stops, frozen processes."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import tempfile
import threading
import time
import unittest
from pathlib import Path
from typing import Any, Callable

import httpx
from harness import Box, Server

from windlass import AsyncClient, Client, Context, Parts, SyncContext, Tool, Toolbox, ToolFailure, tool

EXAMPLES = Path(__file__).parent.parent / "examples"


def until(found: Callable[[], Any], what: str) -> Any:
    """Looks until it is so."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        if value := found():
            return value
        time.sleep(0.01)
    raise AssertionError(f"{what} did not come")


class InThread:
    """A toolbox that is served on a thread of this process."""

    def __init__(self, server: Server, *tools: Tool) -> None:
        ready = threading.Event()

        def run() -> None:
            async def main() -> None:
                self.loop = asyncio.get_running_loop()
                self.toolbox = Toolbox("here", tools, url=server.url, token=server.token, slots=8)
                ready.set()
                await self.toolbox.serve()

            asyncio.run(main())

        self.thread = threading.Thread(target=run)
        self.thread.start()
        ready.wait()
        listed = f"{server.url}/v1/toolboxes/here"
        headers = {"Authorization": f"Bearer {server.token}"}

        def is_served() -> bool:
            shown = httpx.get(listed, headers=headers).json()
            return shown.get("manifest") == self.toolbox.manifest and shown["served"]

        until(is_served, "the toolbox")

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.toolbox.stop)
        self.thread.join(timeout=30)
        assert not self.thread.is_alive()


class Toolboxes(unittest.TestCase):
    server: Server
    folder: "tempfile.TemporaryDirectory[str]"

    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = tempfile.TemporaryDirectory()
        cls.server = Server(Path(cls.folder.name))
        cls.server.start()

    @classmethod
    def tearDownClass(cls) -> None:
        cls.server.kill()
        cls.folder.cleanup()

    def client(self, session: str) -> Client:
        return Client(session, url=self.server.url, token=self.server.token)

    def test_values_failures_parts_progress_and_nested_calls(self) -> None:
        @tool(effect="read", claims=[])
        async def twice(n: int) -> int:
            """Twice a number."""
            return 2 * n

        @tool(effect="keyed", claims=[])
        def outer(n: int, ctx: SyncContext) -> Parts:
            """Calls another tool."""
            ctx.progress(1, 2, label="calling")
            ctx.log("calling\n")
            inner = ctx.call("inner", "twice", {"n": n})
            return Parts(inner["outcome"]["value"], [{"type": "text", "text": "that is all"}])

        @tool(claims=[])
        def refuses() -> None:
            """Fails on purpose."""
            raise ToolFailure("There is none. Ask for another.", code="none_left")

        @tool(claims=[])
        def breaks() -> None:
            """Fails by mistake."""
            raise KeyError("hidden detail")

        box = InThread(self.server, twice, outer, refuses, breaks)
        try:
            with self.client("values") as client:
                calls = [{"id": name, "tool": name, "args": {"n": 4} if name in ("twice", "outer") else {}} for name in ("twice", "outer", "refuses", "breaks")]
                answered = {call["id"]: call for call in client.batch(calls)}
                self.assertEqual(answered["twice"]["outcome"]["value"], 8)
                self.assertEqual(answered["outer"]["outcome"]["value"], 8)
                self.assertIn("that is all", json.dumps(answered["outer"]["model"]))
                self.assertEqual(answered["refuses"]["outcome"]["failure"]["message"], "There is none. Ask for another.")
                self.assertNotIn("hidden detail", json.dumps(answered["breaks"]["model"]))
                self.assertEqual(answered["breaks"]["outcome"]["failure"]["class"], "internal")
        finally:
            box.stop()

    def test_a_cancel_reaches_the_function_and_a_stop_waits_for_it(self) -> None:
        begun, stopped = threading.Event(), threading.Event()

        @tool(effect="keyed", claims=[])
        async def hang() -> None:
            """Hangs until it is stopped."""
            begun.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                stopped.set()
                raise

        box = InThread(self.server, hang)
        try:
            with self.client("cancel") as client:
                call = client.batch([{"id": "h", "tool": "hang"}], wait="none")[0]
                self.assertTrue(begun.wait(10))
                began = time.monotonic()
                client._ask("POST", f"/v1/calls/{call['call']}/cancel", {})
                self.assertTrue(stopped.wait(10))
                self.assertLess(time.monotonic() - began, 5)
                until(lambda: client._ask("GET", f"/v1/calls/{call['call']}", None)["state"] == "cancelled", "the cancel")
        finally:
            box.stop()

    def test_events_resume_and_what_waits_is_approved(self) -> None:
        @tool(effect="once", claims=[], approval="ask")
        async def risky() -> str:
            """Needs an approval."""
            return "done"

        box = InThread(self.server, risky)
        try:
            with self.client("approve") as client:
                client.batch([{"id": "r", "tool": "risky"}], key="k", wait="none")
                waiting = until(lambda: client.waiting(kind="approval"), "the approval")
                client.approve(waiting[0])
                answered = client.batch([{"id": "r", "tool": "risky"}], key="k")
                self.assertEqual(answered[0]["outcome"]["value"], "done")
                for event in client.events():
                    if event.get("kind") == "ended":
                        break

            async def turn() -> dict[str, Any]:
                async with AsyncClient("wired", url=self.server.url, token=self.server.token) as wired:
                    call = {"id": "t1", "type": "function", "function": {"name": "echo_none", "arguments": "{}"}}
                    response = {"id": "resp-1", "object": "chat.completion", "choices": [{"index": 0, "finish_reason": "tool_calls", "message": {"role": "assistant", "content": None, "tool_calls": [call]}}]}
                    return await wired.turn(response, wire="openai_chat")

            self.assertIn("t1", json.dumps(asyncio.run(turn())))
        finally:
            box.stop()


class Kills(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.server = Server(Path(self.folder.name))
        self.server.start()
        self.box = Box(self.server, EXAMPLES / "orders.py")

    def tearDown(self) -> None:
        self.box.kill()
        self.server.kill()
        self.folder.cleanup()

    def key(self) -> str | None:
        found = re.findall(r"windlass complete (\S+)", self.box.said())
        return found[-1] if found else None

    def test_the_documented_tool_survives_kills_of_box_and_server(self) -> None:
        self.box.start()
        batch = [{"id": "o", "tool": "order", "args": {"item": "tea", "count": 2}}]
        with Client("kills", url=self.server.url, token=self.server.token) as client:
            until(lambda: [box for box in client._ask("GET", "/v1/toolboxes", None)["items"] if box["served"]], "the toolbox")
            client.batch(batch, key="k", wait="none")
            # The server dies while the call sleeps or runs, the box while it waits for the payment.
            self.server.kill()
            self.server.start()
            key = until(self.key, "the invoice")
            self.box.kill()
            self.server.kill()
            self.server.start()
            self.box.start()
            client._ask("POST", f"/v1/completions/{key}", {"ok": True})
            call = client.batch(batch, key="k", timeout=30)[0]
        self.assertEqual(call["state"], "succeeded", call)
        self.assertEqual(call["outcome"]["value"], {"reserved": "2 x tea", "paid": True, "sent": "sent 2 x tea"})

    def test_a_frozen_process_is_refused_when_it_goes_on(self) -> None:
        ledger = Path(self.folder.name) / "ledger"
        box = Box(self.server, Path(__file__).parent / "rig_tools.py", "frozen", LEDGER=str(ledger))
        box.start()
        try:
            with Client("frozen", url=self.server.url, token=self.server.token) as client:
                until(lambda: [box for box in client._ask("GET", "/v1/toolboxes", None)["items"] if box["served"]], "the toolbox")
                asked = [{"id": "p", "tool": "pay", "args": {"order": "pay-f", "ms": 300}}]
                client.batch(asked, key="k", wait="none")
                until(lambda: ledger.exists() and ledger.read_text(), "the payment")
                box.freeze()
                call = client.batch(asked, key="k", timeout=20)[0]
                self.assertEqual(call["state"], "unknown", call)
                box.thaw()
                # The process takes work again, and its late end has changed nothing.
                again = client.batch([{"id": "b", "tool": "book", "args": {"order": "book-f", "ms": 1}}], key="k2", timeout=20)[0]
                self.assertEqual(again["state"], "succeeded", again)
                self.assertEqual(client.batch(asked, key="k")[0]["state"], "unknown")
        finally:
            box.thaw()
            box.kill()

    def test_a_stop_lets_what_runs_end(self) -> None:
        ledger = Path(self.folder.name) / "ledger"
        box = Box(self.server, Path(__file__).parent / "rig_tools.py", "stopping", LEDGER=str(ledger))
        box.start()
        with Client("stop", url=self.server.url, token=self.server.token) as client:
            until(lambda: [box for box in client._ask("GET", "/v1/toolboxes", None)["items"] if box["served"]], "the toolbox")
            asked = [{"id": "p", "tool": "pay", "args": {"order": "pay-s", "ms": 500}}]
            client.batch(asked, key="k", wait="none")
            until(lambda: ledger.exists() and ledger.read_text(), "the payment")
            box.kill(signal.SIGTERM)
            self.assertEqual(client.batch(asked, key="k")[0]["state"], "succeeded")
            listed = client._ask("GET", "/v1/toolboxes", None)["items"]
            self.assertEqual([box["served"] for box in listed], [False])


if __name__ == "__main__":
    unittest.main()
