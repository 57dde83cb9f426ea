"""A process that serves a toolbox: it takes attempts, runs them, and reports what they do."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import secrets
import signal
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import httpx

from ._context import Context, Parts, Pending, SyncContext
from ._errors import Problem, Stopped, ToolFailure
from ._schema import plain
from ._tool import Tool
from ._wire import problem_of

log = logging.getLogger("windlass")

TAKE_WAIT_MS = 4_000
"""How long a request for work waits: less than the silence of the server, so that the next one is in time."""
BEAT_MS = 1_000
"""How long a heartbeat waits for news."""
CONTENT_STATUSES = (400, 413, 422)
"""The statuses of requests whose content is at fault: sent again, they are refused again."""
REPORT_BYTES_MAX = 7 << 20
"""The largest report, and about the most that one request has: the server takes 8 MiB."""
RETRY_S_MAX = 1.0
"""The longest wait before a lost connection is tried again."""


class Toolbox:
    """The tools of one process, under the name of a toolbox.

    Several processes may serve one toolbox, if they have the same tools. ``slots`` is the number of calls that run here at once.
    """

    def __init__(
        self,
        name: str,
        tools: Iterable[Tool],
        *,
        url: str = "http://127.0.0.1:7420",
        token: str,
        slots: int = 16,
        worker: str | None = None,
    ) -> None:
        self.name = name
        self.tools = {tool.name: tool for tool in tools}
        self.slots = slots
        self.worker = worker or f"py-{os.getpid()}-{secrets.token_hex(4)}"
        self.manifest = ""
        limits = httpx.Limits(max_connections=16, max_keepalive_connections=16)
        timeout = httpx.Timeout(30.0)
        headers = {"Authorization": f"Bearer {token}"}
        self._http = httpx.AsyncClient(base_url=url, headers=headers, timeout=timeout, limits=limits)
        self._attempts: dict[str, _Attempt] = {}
        self._running = 0
        # Calls inside calls have slots of their own, down to their deepest.
        self.threads = ThreadPoolExecutor(max_workers=slots * 8, thread_name_prefix="windlass-tool")
        self._stopping = asyncio.Event()
        self._freed = asyncio.Event()
        self._dirty = asyncio.Event()
        self._busy = asyncio.Event()
        self._serving: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        """Serves until `stop`, then until the running attempts have ended."""
        await self._put()
        log.info("serving the toolbox %s with %d tools", self.name, len(self.tools))
        loops = [asyncio.create_task(work) for work in (self._beat(), self._flush())]
        try:
            await self._take()
            await self._drain()
        finally:
            for loop in loops:
                loop.cancel()
            await asyncio.gather(*loops, return_exceptions=True)
            self.threads.shutdown(wait=False, cancel_futures=True)
            await self._http.aclose()

    @property
    def is_stopping(self) -> bool:
        """Whether it takes no more attempts."""
        return self._stopping.is_set()

    def stop(self) -> None:
        """Takes no more attempts; `serve` returns once the running ones have ended."""
        self._stopping.set()
        self._freed.set()

    async def _put(self) -> None:
        body = {"tools": [tool.manifest for tool in self.tools.values()]}
        put = await self._ask("PUT", f"/v1/toolboxes/{self.name}", body)
        self.manifest = cast("str", put["manifest"])

    async def _take(self) -> None:
        while not self._stopping.is_set():
            free = self.slots - self._running
            if free <= 0:
                self._freed.clear()
                await self._freed.wait()
                continue
            body = {"worker": self.worker, "manifest": self.manifest, "max": free, "wait_ms": TAKE_WAIT_MS}
            asked = asyncio.ensure_future(self._ask("POST", f"/v1/toolboxes/{self.name}/take", body))
            stops = asyncio.ensure_future(self._stopping.wait())
            await asyncio.wait({asked, stops}, return_when=asyncio.FIRST_COMPLETED)
            stops.cancel()
            try:
                # An answer that is under way may hold attempts: they are run, not lost.
                taken = await asked
            except Problem as problem:
                if problem.code == "manifest_changed":
                    log.warning("a newer process serves the toolbox %s: this one ends", self.name)
                    return
                if problem.code != "not_found":
                    raise
                await self._put()
                continue
            for attempt in cast("list[dict[str, Any]]", taken["attempts"]):
                self._begin(attempt)

    async def _drain(self) -> None:
        """Says that it takes nothing more, and waits for what runs."""
        while self._attempts:
            await asyncio.wait({attempt.task for attempt in self._attempts.values() if attempt.task}, timeout=0.1)
            self._dirty.set()
            await asyncio.sleep(0.01)
        body = {"worker": self.worker, "manifest": self.manifest, "max": 0}
        with contextlib.suppress(Problem, httpx.HTTPError):
            response = await self._http.post(f"/v1/toolboxes/{self.name}/take", json=body, timeout=2.0)
            response.raise_for_status()

    def _begin(self, taken: dict[str, Any]) -> None:
        attempt = _Attempt(self, taken)
        self._attempts[attempt.token] = attempt
        self._running += 1
        attempt.task = asyncio.create_task(self._run(attempt))
        self._busy.set()

    async def _run(self, attempt: _Attempt) -> None:
        try:
            attempt.end = await self._end_of(attempt)
        finally:
            self._running -= 1
            self._freed.set()
            self._dirty.set()

    async def _end_of(self, attempt: _Attempt) -> dict[str, Any]:
        tool = self.tools[attempt.taken["tool"]]
        loop = asyncio.get_running_loop()
        try:
            args = attempt.taken["args"] if "args" in attempt.taken else await self._arguments(attempt)
            if tool.is_async:
                arguments = tool.arguments(args, Context(attempt))
                returned = await tool.function(**arguments)
            else:
                arguments = tool.arguments(args, SyncContext(attempt, loop))
                returned = await loop.run_in_executor(self.threads, lambda: tool.function(**arguments))
            return _ended(returned)
        except (asyncio.CancelledError, Stopped):
            return {"type": "stopped"}
        except Exception as error:
            if not isinstance(error, ToolFailure):
                log.exception("the tool %s failed", tool.name)
            return {"type": "failure", "failure": ToolFailure.of(error)}

    async def _arguments(self, attempt: _Attempt) -> dict[str, Any]:
        """Arguments that are too large to come with the attempt."""
        try:
            return await self._ask("GET", f"/v1/toolboxes/{self.name}/attempts/{attempt.token}/arguments", None)
        except Problem as problem:
            raise Stopped(str(problem)) from None

    async def _upload(self, attempt: _Attempt, end: dict[str, Any]) -> None:
        """Uploads the value of an end that is too large for a report: the end then names the artifact."""
        value = end["value"]
        media_type, text = ("text/plain; charset=utf-8", value) if isinstance(value, str) else ("application/json", json.dumps(value))
        path = f"/v1/toolboxes/{self.name}/attempts/{attempt.token}/artifacts"
        try:
            uploaded = await self._ask("POST", path, text, media_type)
        except Problem as problem:
            attempt.refused({"end": end}, str(problem))
        else:
            attempt.ends({**{key: one for key, one in end.items() if key != "value"}, "artifact": uploaded["artifact"]})
        finally:
            attempt.is_uploading = False

    async def _flush(self) -> None:
        """Sends what is new, of all attempts together."""
        while True:
            await self._dirty.wait()
            # What one turn of the loop makes travels together.
            await asyncio.sleep(0)
            self._dirty.clear()
            reports = [report for attempt in self._attempts.values() if (report := attempt.news())]
            if reports:
                self._spawn(self._send(reports, 0))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _beat(self) -> None:
        """Says that the process lives, and asks for what is still missing."""
        while True:
            if not self._attempts:
                self._busy.clear()
                await self._busy.wait()
                await asyncio.sleep(BEAT_MS / 4_000)
                continue
            # An end that is under way needs no heartbeat: its request is sent until it is answered.
            reports = [attempt.whole() for attempt in self._attempts.values() if not attempt.is_ending]
            if reports:
                await self._send(reports, BEAT_MS)
            await asyncio.sleep(0.05)

    async def _send(self, reports: list[dict[str, Any]], wait_ms: int) -> None:
        """Sends reports, in several requests if they are large. A value that is too large for any is uploaded first."""
        group: list[_Written] = []
        bytes_in_group = 0
        for report in reports:
            written = _Written(report)
            size = len(written.text)
            if size > REPORT_BYTES_MAX:
                self._too_large(report, size)
                continue
            if group and bytes_in_group + size > REPORT_BYTES_MAX:
                await self._send_group(group, 0)
                group, bytes_in_group = [], 0
            group.append(written)
            bytes_in_group += size
        if group:
            await self._send_group(group, wait_ms)

    async def _send_group(self, reports: list[_Written], wait_ms: int) -> None:
        head = json.dumps({"worker": self.worker, "wait_ms": wait_ms})[:-1]
        body = f'{head}, "reports": [{", ".join(report.text for report in reports)}]}}'
        ending = [attempt for one in reports if "end" in one.report and (attempt := self._attempts.get(one.report["attempt"]))]
        for attempt in ending:
            attempt.ends_under_way += 1
        try:
            news = await self._ask("POST", f"/v1/toolboxes/{self.name}/reports", body)
        except Problem as problem:
            await self._refused(reports, problem)
            return
        finally:
            for attempt in ending:
                attempt.ends_under_way -= 1
        for one in cast("list[dict[str, Any]]", news["attempts"]):
            attempt = self._attempts.get(one["attempt"])
            if attempt is not None:
                attempt.hear(one)

    async def _refused(self, reports: list[_Written], problem: Problem) -> None:
        """The server does not take a request. Of several reports one may be at fault; the attempt of that one must not hang."""
        log.error("a report is refused: %s", problem)
        if problem.status not in CONTENT_STATUSES:
            return
        if len(reports) > 1:
            for report in reports:
                await self._send_group([report], 0)
            return
        self._fail(reports[0].report, str(problem))

    def _too_large(self, report: dict[str, Any], size: int) -> None:
        attempt, end = self._attempts.get(report["attempt"]), report.get("end")
        if attempt is not None and end is not None and end["type"] == "value" and "artifact" not in end:
            attempt.is_uploading = True
            self._spawn(self._upload(attempt, end))
        else:
            self._fail(report, f"it has {size} bytes as JSON, and may have {REPORT_BYTES_MAX}")

    def _fail(self, report: dict[str, Any], why: str) -> None:
        attempt = self._attempts.get(report["attempt"])
        if attempt is not None:
            attempt.refused(report, why)

    def lend(self, slots: int) -> None:
        """An attempt waits for a nested call, which may need its slot; or it takes the slot back."""
        self._running -= slots
        if slots > 0:
            self._freed.set()

    def forget(self, attempt: _Attempt) -> None:
        """The attempt is over."""
        self._attempts.pop(attempt.token, None)

    def wake(self) -> None:
        """Something is to be sent."""
        self._dirty.set()

    async def _ask(
        self, method: str, path: str, body: Mapping[str, Any] | str | None, media_type: str = "application/json"
    ) -> dict[str, Any]:
        """Sends a request until it is answered: everything in it may be sent again."""
        delay = 0.02
        content = None if body is None else (body if isinstance(body, str) else json.dumps(body)).encode()
        headers = {} if content is None else {"Content-Type": media_type}
        while True:
            try:
                response = await self._http.request(method, path, content=content, headers=headers)
                if response.status_code not in (429, 502, 503, 504):
                    break
                wait = float(response.headers.get("Retry-After", delay))
            except httpx.HTTPError as lost:
                log.debug("%s: %s; trying again", path, lost)
                wait = delay
            await asyncio.sleep(min(wait, RETRY_S_MAX))
            delay = min(delay * 2, RETRY_S_MAX)
        if response.is_error:
            raise problem_of(response)
        return cast("dict[str, Any]", json.loads(response.content))


class _Written:
    """A report, and its text."""

    def __init__(self, report: dict[str, Any]) -> None:
        self.report = report
        self.text = json.dumps(report)


class _Attempt:
    """An attempt that runs here."""

    def __init__(self, toolbox: Toolbox, taken: dict[str, Any]) -> None:
        self.toolbox = toolbox
        self.taken: Mapping[str, Any] = taken
        self.token = cast("str", taken["attempt"])
        self.task: asyncio.Task[None] | None = None
        self.is_async = toolbox.tools[taken["tool"]].is_async
        self.stop_cause: str | None = None
        self.end: dict[str, Any] | None = None
        self._end_sent = False
        self.ends_under_way = 0
        self.is_uploading = False
        self._number = 0
        self._open: dict[int, tuple[dict[str, Any], asyncio.Future[dict[str, Any]]]] = {}
        self._unsent: list[int] = []
        self._words: dict[str, Any] = {}
        self._loop = asyncio.get_running_loop()

    async def operate(self, operation: dict[str, Any]) -> dict[str, Any]:
        """Does an operation, and waits for its answer."""
        self._number += 1
        answer: asyncio.Future[dict[str, Any]] = self._loop.create_future()
        self._open[self._number] = (operation, answer)
        self._unsent.append(self._number)
        self.toolbox.wake()
        if operation["type"] != "call":
            return await answer
        self.toolbox.lend(1)
        try:
            return await answer
        finally:
            self.toolbox.lend(-1)

    async def in_thread(self, run: Callable[[], Any]) -> Any:
        """Runs a function on a thread of the toolbox."""
        return await self._loop.run_in_executor(self.toolbox.threads, run)

    def say(self, **words: Any) -> None:
        """Keeps words for the next report. May be called from any thread."""
        self._loop.call_soon_threadsafe(self._keep, words)

    def _keep(self, words: dict[str, Any]) -> None:
        if "log" in words:
            self._words.setdefault("log", []).append(words.pop("log"))
        self._words.update(words)
        self.toolbox.wake()

    def news(self) -> dict[str, Any] | None:
        """What was not reported yet."""
        report: dict[str, Any] = {"attempt": self.token, **self._words}
        self._words = {}
        if self._unsent:
            report["operations"] = self._operations(self._unsent)
            self._unsent = []
        if self.end is not None and not self._end_sent:
            report["end"] = self.end
            self._end_sent = True
        return report if len(report) > 1 else None

    def whole(self) -> dict[str, Any]:
        """Everything that is not answered: after a restart the server knows none of it."""
        report: dict[str, Any] = {"attempt": self.token}
        if self._open:
            report["operations"] = self._operations(list(self._open))
            self._unsent = []
        if self.end is not None:
            report["end"] = self.end
        return report

    def _operations(self, numbers: list[int]) -> list[dict[str, Any]]:
        return [{"n": number, "do": self._open[number][0]} for number in numbers if number in self._open]

    @property
    def is_ending(self) -> bool:
        """Whether its end is under way."""
        return self.ends_under_way > 0 or self.is_uploading

    def ends(self, end: dict[str, Any]) -> None:
        """It ends so, unless it is over."""
        self.end, self._end_sent = end, False
        self.toolbox.wake()

    def hear(self, news: dict[str, Any]) -> None:
        """Takes the news of the server."""
        for one in cast("list[dict[str, Any]]", news["answers"]):
            open_one = self._open.pop(one["n"], None)
            if open_one is not None and not open_one[1].done():
                open_one[1].set_result(one["answer"])
        if news["state"] == "over":
            self.toolbox.forget(self)
            self._cancel("over")
        elif news.get("stop") and self.stop_cause is None:
            self._cancel(cast("str", news["stop"]))

    def refused(self, report: Mapping[str, Any], why: str) -> None:
        """The server does not take this report, such as one that is too large: its operations and its end have failed."""
        for one in cast("list[dict[str, Any]]", report.get("operations", [])):
            open_one = self._open.pop(one["n"], None)
            if open_one is not None and not open_one[1].done():
                open_one[1].set_result({"type": "refused", "code": "misused", "message": why})
        if report.get("end") is not None and report["end"] is self.end:
            failure = {"message": f"The result was not taken: {why}", "internal": True}
            self.ends({"type": "failure", "failure": failure})

    def _cancel(self, cause: str) -> None:
        self.stop_cause = cause
        for _, answer in self._open.values():
            answer.cancel()
        # A thread cannot be cancelled: it learns of the stop at its next operation, or when it asks.
        if self.task is not None and self.end is None and self.is_async:
            self.task.cancel()


def _ended(returned: Any) -> dict[str, Any]:
    if isinstance(returned, Pending):
        end: dict[str, Any] = {"type": "pending", "name": returned.name}
        if returned.deadline is not None:
            end["deadline_ms"] = int(returned.deadline * 1000)
        return end
    if isinstance(returned, Parts):
        end = {"type": "value", "value": plain(returned.value), "parts": [dict(part) for part in returned.parts]}
        return end if returned.control is None else {**end, "control": plain(returned.control)}
    return {"type": "value", "value": plain(returned)}


def serve(
    *tools: Tool,
    toolbox: str,
    url: str | None = None,
    token: str | None = None,
    slots: int = 16,
    reload: bool = False,
) -> None:
    """Serves tools until SIGINT or SIGTERM, then lets the running ones end; a second signal ends it at once.

    The server is `url` or ``WINDLASS_URL``, the token `token` or ``WINDLASS_TOKEN``. SIGHUP, and with ``reload`` any change of a loaded
    module's file, lets the running ones end and starts the program anew.
    """
    url = url or os.environ.get("WINDLASS_URL", "http://127.0.0.1:7420")
    token = token or os.environ.get("WINDLASS_TOKEN", "")

    def make() -> Toolbox:
        return Toolbox(toolbox, tools, url=url, token=token, slots=slots)

    if asyncio.run(_serve(make, reload)):
        log.info("starting anew")
        os.execv(sys.executable, [sys.executable, *sys.argv])


async def _serve(make: Callable[[], Toolbox], reload: bool) -> bool:
    """Whether the program is to start anew."""
    toolbox = make()
    loop = asyncio.get_running_loop()
    again = False

    def stop(anew: bool) -> None:
        nonlocal again
        if toolbox.is_stopping:
            os._exit(130)
        again = anew
        toolbox.stop()

    for sign, anew in ((signal.SIGINT, False), (signal.SIGTERM, False), (signal.SIGHUP, True)):
        loop.add_signal_handler(sign, stop, anew)
    watching = asyncio.create_task(_watch(lambda: stop(True))) if reload else None
    try:
        await toolbox.serve()
    finally:
        if watching is not None:
            watching.cancel()
    return again


async def _watch(changed: Callable[[], None]) -> None:
    """Calls `changed` once a file of a loaded module has changed."""
    before = _times()
    while True:
        await asyncio.sleep(0.5)
        if any(before.get(path, at) != at for path, at in _times().items()):
            changed()
            return


def _times() -> dict[str, float]:
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    return {path: Path(path).stat().st_mtime for path in files if path and path.endswith(".py") and Path(path).exists()}
