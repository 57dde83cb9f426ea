"""An attempt that runs in this process: its operations, its words and its end, and what of them the server has not answered."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from ._context import Parts, Pending
from ._errors import Stopped
from ._schema import plain

if TYPE_CHECKING:
    from ._serve import Toolbox

LOG_CHARS_MAX = 1 << 18
"""The most of a log that one report has; the rest follows in the next ones."""
ENDS_S = 2.0
"""An end that is under way for longer needs heartbeats beside it."""


class Attempt:
    """An attempt that runs here."""

    def __init__(self, toolbox: Toolbox, taken: dict[str, Any]) -> None:
        self.toolbox = toolbox
        self.taken: Mapping[str, Any] = taken
        self.token = cast("str", taken["attempt"])
        self.task: asyncio.Task[None] | None = None
        self.is_async = toolbox.tools[taken["tool"]].is_async
        self.stop_cause: str | None = None
        self._is_over = False
        self.end: dict[str, Any] | None = None
        self._end_sent = False
        self._ends_under_way = 0
        self._ends_since = 0.0
        self.is_uploading = False
        self.alone: set[int] = set()
        """The operations that are under way in requests of their own."""
        self._is_logging = False
        self._log: list[dict[str, Any]] = []
        self._number = 0
        self._open: dict[int, tuple[dict[str, Any], asyncio.Future[dict[str, Any]]]] = {}
        self._unsent: list[int] = []
        self._words: dict[str, Any] = {}
        self._loop = asyncio.get_running_loop()

    async def operate(self, operation: dict[str, Any]) -> dict[str, Any]:
        """Does an operation, and waits for its answer."""
        if self._is_over:
            # Nobody would ever answer.
            raise Stopped("the attempt is over")
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
            piece = words.pop("log")
            text = cast("str", piece["text"])
            self._log += [{**piece, "text": text[at : at + LOG_CHARS_MAX]} for at in range(0, len(text), LOG_CHARS_MAX)]
        self._words.update(words)
        self.toolbox.wake()

    def _log_now(self) -> list[dict[str, Any]]:
        """The next pieces of the log. None while others are under way: two requests have no order."""
        chars, count = 0, 0
        for piece in [] if self._is_logging else self._log:
            chars += len(piece["text"])
            if count > 0 and chars > LOG_CHARS_MAX:
                break
            count += 1
        now, self._log = self._log[:count], self._log[count:]
        return now

    def news(self) -> dict[str, Any] | None:
        """What was not reported yet."""
        report: dict[str, Any] = {"attempt": self.token, **self._words}
        self._words = {}
        if pieces := self._log_now():
            report["log"] = pieces
        if self._unsent:
            report["operations"] = self._operations(self._unsent)
            self._unsent = []
        # Nothing can be said after the end.
        if self.end is not None and not self._end_sent and not self._log:
            report["end"] = self.end
            self._end_sent = True
        return report if len(report) > 1 else None

    def whole(self) -> dict[str, Any]:
        """Everything that is not answered: after a restart the server knows none of it."""
        report: dict[str, Any] = {"attempt": self.token}
        if self._open:
            report["operations"] = self._operations([number for number in self._open if number not in self.alone])
            self._unsent = []
        if self._end_sent and self._ends_under_way == 0 and not self.is_uploading:
            report["end"] = self.end
        return report

    def _operations(self, numbers: list[int]) -> list[dict[str, Any]]:
        return [{"n": number, "do": self._open[number][0]} for number in numbers if number in self._open]

    def under_way(self, report: dict[str, Any], more: int) -> None:
        """A report of it is under way, or is not any more."""
        if "log" in report:
            self._is_logging = more > 0
            if self._log and not self._is_logging:
                self.toolbox.wake()
        if "end" in report:
            self._ends_under_way += more
            self._ends_since = time.monotonic()

    @property
    def is_ending(self) -> bool:
        """Whether its end was sent just now."""
        return self._ends_under_way > 0 and time.monotonic() < self._ends_since + ENDS_S

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
            self._is_over = True
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


def ended(returned: Any) -> dict[str, Any]:
    """The end of an attempt whose function returned this."""
    if isinstance(returned, Pending):
        end: dict[str, Any] = {"type": "pending", "name": returned.name}
        if returned.deadline is not None:
            end["deadline_ms"] = int(returned.deadline * 1000)
        return end
    if isinstance(returned, Parts):
        end = {"type": "value", "value": plain(returned.value), "parts": [dict(part) for part in returned.parts]}
        return end if returned.control is None else {**end, "control": plain(returned.control)}
    return {"type": "value", "value": plain(returned)}
