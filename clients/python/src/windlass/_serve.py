"""A process that serves a toolbox: it takes attempts, runs them, and reports what they do."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import random
import secrets
import signal
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import httpx

from ._attempt import Attempt, ended
from ._context import Context, SyncContext
from ._errors import Problem, Stopped, ToolFailure
from ._tool import Tool
from ._wire import RequestMaker, problem_of, wait_of

log = logging.getLogger("windlass")

TAKE_WAIT_MS = 4_000
"""How long a request for work waits: less than the silence of the server, so that the next one is in time."""
BEAT_MS = 1_000
"""How long a heartbeat waits for news."""
CONTENT_STATUSES = (400, 413, 422)
"""The statuses of requests whose content is at fault: sent again, they are refused again."""
REPORT_BYTES_MAX = 7 << 20
"""The largest report, and about the most that one request has: the server takes 8 MiB. Larger operations have requests of their own."""
OPERATION_BYTES_MAX = 31 << 20
"""The largest operation: the server takes 32 MiB."""
UPLOAD_BYTES_MAX = 64 << 20
"""The largest result: the server takes artifacts of 64 MiB."""
SENDS_MAX = 4
"""How many requests with news are under way at once at most."""
TOGETHER_S = 0.01
"""How long news wait for the answer to the request before, so that what comes meanwhile travels with them."""
RETRY_S_MAX = 0.5
"""The longest wait before a lost connection is tried again: a server that starts again waits for its processes."""


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
        if not token:
            raise ValueError("there is no token; set WINDLASS_TOKEN, or give `token`: `windlass token create NAME --scope tools` makes one")
        self.name = name
        self.tools = {tool.name: tool for tool in tools}
        self.slots = slots
        self.worker = worker or f"py-{os.getpid()}-{secrets.token_hex(4)}"
        self.manifest = ""
        limits = httpx.Limits(max_connections=16, max_keepalive_connections=16)
        timeout = httpx.Timeout(30.0)
        headers = {"Authorization": f"Bearer {token}"}
        self._http = httpx.AsyncClient(base_url=url, headers=headers, timeout=timeout, limits=limits)
        self._requests = RequestMaker(self._http)
        self._attempts: dict[str, Attempt] = {}
        self._running = 0
        self._is_away = False
        # Calls inside calls have slots of their own, down to their deepest.
        self.threads = ThreadPoolExecutor(max_workers=slots * 8, thread_name_prefix="windlass-tool")
        self._stopping = asyncio.Event()
        self._freed = asyncio.Event()
        self._dirty = asyncio.Event()
        self._busy = asyncio.Event()
        self._serving: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        """Serves until `stop`, then until the running attempts have ended."""
        try:
            await self._put()
        except _NotWanted:
            await self._http.aclose()
            return
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

    def _goes_on(self) -> bool:
        return not self._stopping.is_set()

    async def _put(self) -> None:
        body = {"tools": [tool.manifest for tool in self.tools.values()]}
        put = await self._ask("PUT", f"/v1/toolboxes/{self.name}", body, is_wanted=self._goes_on)
        self.manifest = cast("str", put["manifest"])

    async def _take(self) -> None:
        while not self._stopping.is_set():
            free = self.slots - self._running
            if free <= 0:
                self._freed.clear()
                await self._freed.wait()
                continue
            body = {"worker": self.worker, "manifest": self.manifest, "max": free, "slots": self.slots, "wait_ms": TAKE_WAIT_MS}
            work = self._ask("POST", f"/v1/toolboxes/{self.name}/take", body, is_wanted=self._goes_on)
            asked = asyncio.ensure_future(work)
            stops = asyncio.ensure_future(self._stopping.wait())
            await asyncio.wait({asked, stops}, return_when=asyncio.FIRST_COMPLETED)
            stops.cancel()
            if not asked.done():
                await self._leave()
            try:
                # An answer that is under way may hold attempts: they are run, not lost.
                taken = await asked
            except _NotWanted:
                return
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
            # Those that need no time are over then, and the next request is not for the few slots that are left.
            await asyncio.sleep(0)

    async def _drain(self) -> None:
        """Says that it takes nothing more, and waits for what runs."""
        while self._attempts:
            await asyncio.wait({attempt.task for attempt in self._attempts.values() if attempt.task}, timeout=0.1)
            self._dirty.set()
            await asyncio.sleep(0.01)
        await self._leave()

    async def _leave(self) -> None:
        """Says that it takes no more attempts: a request that waits for some returns."""
        body = {"worker": self.worker, "manifest": self.manifest, "max": 0}
        with contextlib.suppress(httpx.HTTPError):
            response = await self._http.post(f"/v1/toolboxes/{self.name}/take", json=body, timeout=2.0)
            response.raise_for_status()

    def _begin(self, taken: dict[str, Any]) -> None:
        attempt = Attempt(self, taken)
        self._attempts[attempt.token] = attempt
        self._running += 1
        attempt.task = asyncio.create_task(self._run(attempt))
        self._busy.set()

    async def _run(self, attempt: Attempt) -> None:
        try:
            attempt.end = await self._end_of(attempt)
        finally:
            self._running -= 1
            self._freed.set()
            self._dirty.set()

    async def _end_of(self, attempt: Attempt) -> dict[str, Any]:
        tool = self.tools[attempt.taken["tool"]]
        loop = asyncio.get_running_loop()
        try:
            args = attempt.taken["args"] if "args" in attempt.taken else await self._arguments(attempt)
            if tool.is_async:
                arguments = tool.arguments(args, lambda: Context(attempt))
                returned = await tool.function(**arguments)
            else:
                arguments = tool.arguments(args, lambda: SyncContext(attempt, loop))
                returned = await loop.run_in_executor(self.threads, lambda: tool.function(**arguments))
            return ended(returned)
        except (asyncio.CancelledError, Stopped):
            return {"type": "stopped"}
        except Exception as error:
            if not isinstance(error, ToolFailure):
                log.exception("the tool %s failed", tool.name)
            return {"type": "failure", "failure": ToolFailure.of(error)}

    async def _arguments(self, attempt: Attempt) -> dict[str, Any]:
        """Arguments that are too large to come with the attempt."""
        try:
            return await self._ask("GET", f"/v1/toolboxes/{self.name}/attempts/{attempt.token}/arguments", None)
        except Problem as problem:
            raise Stopped(str(problem)) from None

    async def _upload(self, attempt: Attempt, end: dict[str, Any]) -> None:
        """Uploads the value of an end that is too large for a report: the end then names the artifact."""
        value = end["value"]
        media_type, text = ("text/plain; charset=utf-8", value) if isinstance(value, str) else ("application/json", json.dumps(value))
        path = f"/v1/toolboxes/{self.name}/attempts/{attempt.token}/artifacts"
        try:
            uploaded = await self._ask_for(attempt, path, text, UPLOAD_BYTES_MAX, media_type)
        except Problem as problem:
            attempt.refused({"end": end}, str(problem))
        else:
            attempt.ends({**{key: one for key, one in end.items() if key != "value"}, "artifact": uploaded["artifact"]})
        finally:
            attempt.is_uploading = False

    async def _flush(self) -> None:
        """Sends what is new, of all attempts together: at once if nothing is under way, else with what comes meanwhile."""
        sends: set[asyncio.Task[None]] = set()
        while True:
            await self._dirty.wait()
            # What one turn of the loop makes travels together.
            await asyncio.sleep(0)
            if sends:
                timeout = TOGETHER_S if len(sends) < SENDS_MAX else None
                await asyncio.wait(sends, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            self._dirty.clear()
            if reports := [report for attempt in self._attempts.values() if (report := attempt.news())]:
                task = self._spawn(self._send(reports, 0))
                sends.add(task)
                task.add_done_callback(sends.discard)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        return task

    async def _beat(self) -> None:
        """Says that the process lives, and asks for what is still missing."""
        while True:
            if not self._attempts:
                self._busy.clear()
                await self._busy.wait()
                await asyncio.sleep(BEAT_MS / 4_000)
                continue
            # An end that is just under way needs no heartbeat: its request is sent until it is answered.
            reports = [attempt.whole() for attempt in self._attempts.values() if not attempt.is_ending]
            if reports:
                await self._send(reports, BEAT_MS)
            await asyncio.sleep(0.05)

    async def _send(self, reports: list[dict[str, Any]], wait_ms: int) -> None:
        """Sends reports, in several requests if they are large."""
        text = json.dumps(reports)
        if len(text) <= REPORT_BYTES_MAX:
            await self._send_text(reports, text, wait_ms)
            return
        group: list[_Written] = []
        bytes_in_group = 0
        for report in reports:
            written = _Written(report)
            size = len(written.text)
            if size > REPORT_BYTES_MAX:
                await self._send_apart(report)
                continue
            if group and bytes_in_group + size > REPORT_BYTES_MAX:
                await self._send_group(group, 0)
                group, bytes_in_group = [], 0
            group.append(written)
            bytes_in_group += size
        if group:
            await self._send_group(group, wait_ms)

    async def _send_apart(self, report: dict[str, Any]) -> None:
        """A report that is too large: its operations have requests of their own, and the value of its end is uploaded."""
        attempt = self._attempts.get(report["attempt"])
        if attempt is None:
            return
        for operation in cast("list[dict[str, Any]]", report.pop("operations", [])):
            attempt.alone.add(operation["n"])
            self._spawn(self._operate(attempt, operation))
        rest, end = _Written(report), report.get("end")
        if len(rest.text) <= REPORT_BYTES_MAX:
            await self._send_group([rest], 0)
        elif end is not None and end["type"] == "value" and "artifact" not in end:
            attempt.is_uploading = True
            self._spawn(self._upload(attempt, end))
        else:
            self._fail(report, f"it has {len(rest.text)} bytes as JSON, and may have {REPORT_BYTES_MAX}")

    async def _operate(self, attempt: Attempt, operation: dict[str, Any]) -> None:
        """Does one operation that is too large to travel with others."""
        path = f"/v1/toolboxes/{self.name}/attempts/{attempt.token}/operations"
        text = json.dumps({"worker": self.worker, **operation})
        try:
            attempt.hear(await self._ask_for(attempt, path, text, OPERATION_BYTES_MAX))
        except Problem as problem:
            attempt.refused({"operations": [operation]}, str(problem))
        finally:
            attempt.alone.discard(operation["n"])

    async def _send_group(self, written: list[_Written], wait_ms: int) -> None:
        text = f"[{', '.join(one.text for one in written)}]"
        await self._send_text([one.report for one in written], text, wait_ms)

    async def _send_text(self, reports: list[dict[str, Any]], text: str, wait_ms: int) -> None:
        """Sends reports that fit into one request, of which this is the text."""
        head = json.dumps({"worker": self.worker, "wait_ms": wait_ms})[:-1]
        body = f'{head}, "reports": {text}}}'
        about = [(report, attempt) for report in reports if (attempt := self._attempts.get(report["attempt"]))]
        for report, attempt in about:
            attempt.under_way(report, 1)
        try:
            news = await self._ask("POST", f"/v1/toolboxes/{self.name}/reports", body)
        except Problem as problem:
            await self._refused(reports, problem)
            return
        finally:
            for report, attempt in about:
                attempt.under_way(report, -1)
        for one in cast("list[dict[str, Any]]", news["attempts"]):
            attempt = self._attempts.get(one["attempt"])
            if attempt is not None:
                attempt.hear(one)

    async def _refused(self, reports: list[dict[str, Any]], problem: Problem) -> None:
        """The server does not take a request. Of several reports one may be at fault; the attempt of that one must not hang."""
        log.error("a report is refused: %s", problem)
        if problem.status not in CONTENT_STATUSES:
            return
        if len(reports) > 1:
            for report in reports:
                await self._send_group([_Written(report)], 0)
            return
        self._fail(reports[0], str(problem))

    def _fail(self, report: dict[str, Any], why: str) -> None:
        attempt = self._attempts.get(report["attempt"])
        if attempt is not None:
            attempt.refused(report, why)

    def lend(self, slots: int) -> None:
        """An attempt waits for a nested call, which may need its slot; or it takes the slot back."""
        self._running -= slots
        if slots > 0:
            self._freed.set()

    def forget(self, attempt: Attempt) -> None:
        """The attempt is over."""
        self._attempts.pop(attempt.token, None)

    def wake(self) -> None:
        """Something is to be sent."""
        self._dirty.set()

    async def _ask_for(
        self, attempt: Attempt, path: str, text: str, bytes_max: int, media_type: str = "application/json"
    ) -> dict[str, Any]:
        """Sends a large request for an attempt, until it is answered or the attempt is over.

        A server that does not take so much may close the connection before it has read all, and its answer is lost then.
        """
        if (size := len(text.encode())) > bytes_max:
            raise Problem(413, "too_large", f"it has {size} bytes, and may have {bytes_max}")
        return await self._ask("POST", path, text, media_type, lambda: attempt.token in self._attempts)

    async def _ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | str | None,
        media_type: str = "application/json",
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> dict[str, Any]:
        """Sends a request until it is answered or not wanted any more: everything in it may be sent again."""
        delay = 0.02
        content = None if body is None else (body if isinstance(body, str) else json.dumps(body)).encode()
        while True:
            try:
                response = await self._http.send(self._requests.make(method, path, content, media_type))
                if response.status_code not in (429, 502, 503, 504):
                    break
                wait = wait_of(response, delay)
                self._is_away = False
            except (httpx.LocalProtocolError, httpx.UnsupportedProtocol):
                # A wrong address or token does not become right.
                raise
            except httpx.HTTPError as lost:
                if not self._is_away:
                    log.warning("the server at %s is away (%s); trying again", self._http.base_url, lost or type(lost).__name__)
                self._is_away = True
                wait = delay
            if not is_wanted():
                raise _NotWanted(410, "over", "it is not wanted any more")
            # Not all processes at the same moment.
            await asyncio.sleep(min(wait, RETRY_S_MAX) * random.uniform(0.5, 1.0))
            delay = min(delay * 2, RETRY_S_MAX)
        if response.is_error:
            raise problem_of(response)
        return cast("dict[str, Any]", json.loads(response.content))


class _NotWanted(Problem):
    """A request that was not answered, and is not needed any more."""


class _Written:
    """A report, and its text."""

    def __init__(self, report: dict[str, Any]) -> None:
        self.report = report
        self.text = json.dumps(report)


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
    if not log.hasHandlers():
        log.addHandler(logging.StreamHandler())
        log.setLevel(logging.INFO)

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
