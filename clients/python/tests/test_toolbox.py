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
from unittest import mock

import httpx
from harness import Box, Server

from windlass import AsyncClient, Client, Context, Misused, Parts, Problem, Stopped, SyncContext, Tool, Toolbox, ToolFailure, tool

EXAMPLES = Path(__file__).parent.parent / "examples"


def until(found: Callable[[], Any], what: str) -> Any:
    """Looks until it is so."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        if value := found():
            return value
        time.sleep(0.01)
    raise AssertionError(f"{what} did not come")


def until_served(client: Client) -> None:
    """A call of a tool that is not known yet would fail."""
    until(lambda: [box for box in client._ask("GET", "/v1/toolboxes", None)["items"] if box["served"]], "the toolbox")


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
        # Nobody falls silent here, so that a slow machine is not taken for a frozen process.
        cls.server = Server(Path(cls.folder.name), config="")
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

    def test_large_values_go_by_artifact(self) -> None:
        @tool(effect="read", claims=[])
        async def grow(text: str, times: int) -> str:
            """A text, many times."""
            return text * times

        @tool(effect="read", claims=[])
        def rows(count: int) -> list[dict[str, Any]]:
            """Many rows."""
            return [{"row": number, "text": "x" * 1000} for number in range(count)]

        box = InThread(self.server, grow, rows)
        try:
            with self.client("large") as client:
                large = client.call("grow", {"text": "x" * 500_000, "times": 4})
                self.assertEqual(large["state"], "succeeded", large)
                self.assertIn("artifact", json.dumps(large["outcome"])[:200])
                # These fit into no report: they are uploaded, whole.
                text = client.call("grow", {"text": "y" * 500_000, "times": 20})
                self.assertEqual(text["state"], "succeeded", str(text)[:500])
                self.assertEqual(self.artifact(client, text), b"y" * 10_000_000)
                listed = client.call("rows", {"count": 9_000})
                self.assertEqual(listed["state"], "succeeded", str(listed)[:500])
                self.assertEqual(len(json.loads(self.artifact(client, listed))), 9_000)
                # Together they are more than a request may have.
                calls = [{"id": f"g{n}", "tool": "grow", "args": {"text": "x" * 500_000, "times": 4}} for n in range(4)]
                self.assertEqual({call["state"] for call in client.batch(calls)}, {"succeeded"})
                self.assertEqual(client.call("grow", {"text": "x", "times": 2})["outcome"]["value"], "xx")
        finally:
            box.stop()

    def test_large_steps_are_recorded_and_returned_when_the_tool_runs_again(self) -> None:
        ran: list[str] = []

        @tool(effect="stepped", claims=[])
        async def dump(megabytes: int, ctx: Context) -> list[int]:
            """Steps with large values and large inputs."""

            def read(megabytes: int) -> str:
                ran.append("read")
                return "x" * (megabytes << 20)

            def measure(text: str) -> int:
                ran.append("measure")
                return len(text)

            rows = await ctx.step("read", read, megabytes)
            length = await ctx.step("measure", measure, rows)
            # It leaves its process, and runs again.
            await ctx.sleep("rest", 0.1)
            return [len(rows), length]

        @tool(effect="stepped", claims=[])
        def too_much(ctx: SyncContext) -> str:
            """A step that no request can have."""
            try:
                ctx.step("read", lambda: "x" * (40 << 20))
            except Misused as refused:
                return str(refused)
            return "recorded"

        box = InThread(self.server, dump, too_much)
        try:
            with self.client("steps") as client:
                call = client.call("dump", {"megabytes": 9})
                self.assertEqual(call["outcome"].get("value"), [9 << 20, 9 << 20], str(call)[:500])
                self.assertEqual(ran, ["read", "measure"])
                self.assertIn("may have", client.call("too_much")["outcome"]["value"])
        finally:
            box.stop()

    def test_a_long_log_arrives_whole_and_in_order_before_the_end(self) -> None:
        lines = [f"{number:07}" for number in range(30_000)]

        @tool(effect="read", claims=[], background=True)
        async def talk(ctx: Context) -> None:
            """Says much."""
            for start in range(0, len(lines), 1000):
                ctx.log("".join(f"{line}\n" for line in lines[start : start + 1000]))
                await asyncio.sleep(0)

        box = InThread(self.server, talk)
        try:
            # Each piece needs several reports.
            with mock.patch("windlass._attempt.LOG_CHARS_MAX", 3_000), self.client("log") as client:
                [call] = client.batch([{"id": "t", "tool": "talk", "task": {}}], key="k")
                until(lambda: client._ask("GET", f"/v1/calls/{call['call']}", None)["state"] == "succeeded", "the end")
                text, after = "", ""
                while True:
                    page = client._ask("GET", f"/v1/sessions/log/tasks/{call['task']}/log?limit=200{after}", None)
                    text += "".join(piece["text"] for piece in page["items"])
                    if page["next"] is None:
                        break
                    after = f"&after={page['next']}"
                self.assertEqual(text.split(), lines)
        finally:
            box.stop()

    def artifact(self, client: Client, call: dict[str, Any]) -> bytes:
        """The bytes of the artifact that an outcome names."""
        found = re.search(r'"artifact": "(\w+)"', json.dumps(call["outcome"]))
        assert found is not None, str(call)[:500]
        response = client._http.get(f"/v1/artifacts/{found[1]}")
        response.raise_for_status()
        return response.content

    def test_a_token_that_cannot_be_right_is_told_at_once(self) -> None:
        async def serve(token: str) -> None:
            await asyncio.wait_for(Toolbox("here", [], url=self.server.url, token=token).serve(), 10)

        with self.assertRaisesRegex(Problem, "wrong_token|no_token"):
            asyncio.run(serve("forged"))
        with self.assertRaises(httpx.LocalProtocolError):
            asyncio.run(serve("a\nb"))

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

    def test_a_thread_whose_attempt_is_over_learns_it_at_its_next_operation(self) -> None:
        begun, goes_on, told = threading.Event(), threading.Event(), threading.Event()

        @tool(effect="keyed", claims=[], grace_ms=50)
        def deaf(ctx: SyncContext) -> None:
            """Does not look whether it must stop."""
            begun.set()
            goes_on.wait()
            try:
                ctx.completion("late")
            except Stopped:
                told.set()

        box = InThread(self.server, deaf)
        try:
            with self.client("deaf") as client:
                call = client.batch([{"id": "d", "tool": "deaf"}], wait="none")[0]
                self.assertTrue(begun.wait(10))
                client._ask("POST", f"/v1/calls/{call['call']}/cancel", {})
                until(lambda: not box.toolbox._attempts, "the end of the attempt")
                goes_on.set()
                self.assertTrue(told.wait(10))
        finally:
            goes_on.set()
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


class WithoutServer(unittest.TestCase):
    def test_a_toolbox_without_its_server_stops_when_it_is_told(self) -> None:
        @tool
        def idle() -> None:
            """Does nothing."""

        async def main() -> None:
            toolbox = Toolbox("here", [idle], url="http://127.0.0.1:9", token="t")
            serving = asyncio.create_task(toolbox.serve())
            with self.assertLogs("windlass", "WARNING") as logs:
                while not logs.output:
                    await asyncio.sleep(0.01)
            toolbox.stop()
            await asyncio.wait_for(serving, 10)
            self.assertIn("http://127.0.0.1:9", logs.output[0])

        asyncio.run(main())

    def test_a_missing_token_is_told_at_once(self) -> None:
        with self.assertRaisesRegex(ValueError, "WINDLASS_TOKEN"):
            Toolbox("here", [], token="")


PLACES = ["reserve begins", "reserve ends", "sleep", "invoice begins", "invoice ends", "wait", "send begins", "send ends"]
"""Where the documented tool is killed: in each step before and after its effect, in the sleep, and in the wait."""


class Order:
    """One call of the documented tool, and the kill of a server, a box or both at one place of it."""

    def __init__(self, server: Server, box: Box, victim: str, place: str) -> None:
        self.server, self.box, self.victim, self.place = server, box, victim, place
        self.folder = Path(box.environment["LEDGER"])
        self.session = f"{victim}-{place.replace(' ', '-')}"
        self.batch = [{"id": "o", "tool": "order", "args": {"item": "tea", "count": 2}}]

    def run(self) -> None:
        ledger = self.folder / "ledger"
        ledger.write_text("")
        invoices = len(self.keys())
        (self.folder / f"pause {self.place}").touch()
        with Client(self.session, url=self.server.url, token=self.server.token) as client:
            until_served(client)
            handle = client.batch(self.batch, key="k", wait="none")[0]["call"]
            if not self.place.startswith("send"):
                self.kill(client, handle)
            until(lambda: len(self.keys()) > invoices, "the invoice")
            client._ask("POST", f"/v1/completions/{self.keys()[-1]}", {"ok": True})
            if self.place.startswith("send"):
                self.kill(client, handle)
            call = client.batch(self.batch, key="k", timeout=40)[0]
        ran = ledger.read_text().split()
        told = f"{self.victim} at {self.place}: {call['state']}, ran {ran}: {call.get('outcome')}"
        assert call["state"] == "succeeded", told
        is_lost = self.victim != "server"
        is_unsure = is_lost and self.place.startswith("send")
        value = call["outcome"]["value"]
        assert (value["reserved"], value["paid"]) == ("2 x tea", True), told
        assert value["sent"].startswith("perhaps" if is_unsure else "sent 2 x tea"), told
        for step in ("reserve", "invoice", "send"):
            # One that was not recorded when its process died runs again, unless it must not.
            again = is_lost and self.place == f"{step} ends" and step != "send"
            never = is_lost and self.place == f"{step} begins" and step == "send"
            assert ran.count(step) == (2 if again else 0 if never else 1), told

    def keys(self) -> list[str]:
        return re.findall(r"windlass complete (\S+)", self.box.said())

    def kill(self, client: Client, handle: str) -> None:
        waits = {"sleep": "sleep", "wait": "completion"}.get(self.place)
        if waits is not None:
            until(lambda: waits in str(client._ask("GET", f"/v1/calls/{handle}", None).get("waiting_for")), f"the {waits}")
        else:
            until((self.folder / f"at {self.place}").exists, self.place)
        if self.victim != "box":
            self.server.kill()
        if self.victim != "server":
            self.box.kill()
        if self.victim != "box":
            self.server.start()
        (self.folder / f"go on {self.place}").touch()
        if self.victim != "server":
            self.box.start()


class EveryStep(unittest.TestCase):
    """The documented tool is killed at every step, with its server, without it, and the server alone."""

    def kills(self, victim: str) -> None:
        with tempfile.TemporaryDirectory() as folder:
            server = Server(Path(folder))
            box = Box(server, Path(__file__).parent / "orders_slowly.py", LEDGER=folder)
            server.start()
            try:
                box.start()
                for place in PLACES:
                    Order(server, box, victim, place).run()
            finally:
                box.kill()
                server.kill()

    def test_the_documented_tool_survives_kills_at_every_step(self) -> None:
        failed: list[BaseException] = []

        def run(victim: str) -> None:
            try:
                self.kills(victim)
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=run, args=(victim,)) for victim in ("server", "box", "both")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failed:
            raise failed[0]


class Kills(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.server = Server(Path(self.folder.name))
        self.server.start()

    def tearDown(self) -> None:
        self.server.kill()
        self.folder.cleanup()

    def test_a_frozen_process_is_refused_when_it_goes_on(self) -> None:
        ledger = Path(self.folder.name) / "ledger"
        box = Box(self.server, Path(__file__).parent / "rig_tools.py", "frozen", LEDGER=str(ledger))
        box.start()
        try:
            with Client("frozen", url=self.server.url, token=self.server.token) as client:
                until_served(client)
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
            until_served(client)
            asked = [{"id": "p", "tool": "pay", "args": {"order": "pay-s", "ms": 500}}]
            client.batch(asked, key="k", wait="none")
            until(lambda: ledger.exists() and ledger.read_text(), "the payment")
            box.kill(signal.SIGTERM)
            self.assertEqual(client.batch(asked, key="k")[0]["state"], "succeeded")
            listed = client._ask("GET", "/v1/toolboxes", None)["items"]
            self.assertEqual([box["served"] for box in listed], [False])


if __name__ == "__main__":
    unittest.main()
