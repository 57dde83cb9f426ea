"""The context of an attempt: what a tool can do besides computing. Every operation has a name, by which it is found again."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, cast

from ._errors import (
    CompletionCancelled,
    CompletionFailed,
    CompletionTimeout,
    Misused,
    SecretRefused,
    StepFailed,
    StepUnknown,
    Stopped,
    ToolFailure,
)
from ._schema import plain

Value = TypeVar("Value")


class Reporting(Protocol):
    """The part of a running attempt that its context uses."""

    taken: Mapping[str, Any]
    stop_cause: str | None

    async def operate(self, operation: dict[str, Any]) -> dict[str, Any]: ...

    def say(self, **words: Any) -> None: ...

    async def in_thread(self, run: Callable[[], Any]) -> Any: ...


@dataclass(frozen=True)
class Pending:
    """Returned by a tool that has done its part: the answer to the key of this name is the result of the call."""

    name: str
    deadline: float | None = None


@dataclass(frozen=True)
class Parts:
    """A result with parts for the model behind its value: texts, JSON and images as the API writes them."""

    value: Any = None
    parts: Sequence[Mapping[str, Any]] = field(default_factory=tuple)
    control: Any = None


class _Facts:
    """The facts of an attempt, and its words that nobody waits for."""

    def __init__(self, attempt: Reporting) -> None:
        self._attempt = attempt
        self._used: set[str] = set()

    @property
    def handle(self) -> str:
        """The handle of the call."""
        return cast("str", self._attempt.taken["call"])

    @property
    def session(self) -> str:
        """The session of the call."""
        return cast("str", self._attempt.taken["session"])

    @property
    def number(self) -> int:
        """The number of the attempt, from 1."""
        return cast("int", self._attempt.taken["number"])

    @property
    def is_redrive(self) -> bool:
        """Whether an earlier attempt was running when its owner died."""
        return cast("bool", self._attempt.taken["redrive"])

    @property
    def idempotency_key(self) -> str:
        """A key that is the same in every attempt: send it to systems that deduplicate."""
        return cast("str", self._attempt.taken["idempotency_key"])

    @property
    def is_stopping(self) -> bool:
        """Whether the attempt must stop."""
        return self._attempt.stop_cause is not None

    def progress(
        self,
        current: float | None = None,
        total: float | None = None,
        *,
        unit: str | None = None,
        label: str | None = None,
    ) -> None:
        """Reports how far the tool is."""
        given = {"current": current, "total": total, "unit": unit, "label": label}
        self._attempt.say(progress={key: one for key, one in given.items() if one is not None})

    def status(self, text: str) -> None:
        """Reports the current activity in a few words."""
        self._attempt.say(status=text)

    def log(self, text: str, *, err: bool = False) -> None:
        """Writes to the log of the call."""
        self._attempt.say(log={"text": text, "err": err})

    def heartbeat(self) -> None:
        """A sign of life, for the silence deadline of the tool."""
        self._attempt.say(alive=True)

    def _recorded(self, name: str, given: Any) -> tuple[bool, Any]:
        """The value of a recorded step that came with the attempt."""
        if name in self._used:
            raise Misused(f"the name {name!r} is used twice; each step of a call has a name of its own")
        self._used.add(name)
        for step in cast("list[dict[str, Any]]", self._attempt.taken.get("steps", [])):
            if step["name"] == name and _same(step["input"], given):
                return True, step["value"]
        return False, None


class Context(_Facts):
    """The context of an attempt, for tools that are coroutine functions."""

    async def step(self, name: str, run: Callable[..., Any], *args: Any, once: bool = False) -> Any:
        """Runs a function once: its result is recorded, and returned when the tool runs again.

        A coroutine function runs in the loop, a plain one on a thread. Its arguments are the recorded input, its result is JSON. A step
        that must not be repeated is marked ``once``: if a crash leaves its outcome open, it raises `StepUnknown`.
        """
        given = plain(list(args))
        is_known, value = self._recorded(name, given)
        if is_known:
            return value
        answer = await self._attempt.operate({"type": "step", "name": name, "input": given, "once": once})
        if answer["type"] != "run":
            return _value(answer)
        ended: dict[str, Any] = {"type": "step_end", "name": name, "input": given}
        try:
            if inspect.iscoroutinefunction(run):
                returned = run(*args)
            else:
                # A function that blocks must not keep the process from saying that it lives.
                returned = await self._attempt.in_thread(lambda: run(*args))
            value = plain(await returned if inspect.isawaitable(returned) else returned)
        except Exception as error:
            await self._attempt.operate({**ended, "failure": ToolFailure.of(error)})
            raise
        _value(await self._attempt.operate({**ended, "value": value}))
        return json.loads(json.dumps(value))

    async def sleep(self, name: str, seconds: float) -> None:
        """Sleeps by the wall clock, across restarts. A `stepped` tool leaves its process meanwhile, and runs again afterwards."""
        _value(await self._attempt.operate({"type": "sleep", "name": name, "ms": int(seconds * 1000)}))

    async def completion(self, name: str) -> str:
        """A key by which somebody outside answers. The same name gives the same key."""
        return cast("str", _value(await self._attempt.operate({"type": "completion", "name": name})))

    async def wait(self, name: str, timeout: float | None = None) -> Any:
        """Waits for the answer to the key of this name."""
        operation: dict[str, Any] = {"type": "wait", "name": name}
        if timeout is not None:
            operation["deadline_ms"] = int(timeout * 1000)
        return _completed(_value(await self._attempt.operate(operation)))

    async def call(self, name: str, tool: str, args: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Calls another tool, and returns the call as the API shows it."""
        operation = {"type": "call", "name": name, "tool": tool, "args": plain(dict(args or {}))}
        return cast("dict[str, Any]", _value(await self._attempt.operate(operation)))

    async def ask(self, name: str, question: str, schema: Mapping[str, Any] | None = None) -> Any:
        """Asks a person; `None` if nobody answered in time."""
        operation: dict[str, Any] = {"type": "ask", "name": name, "question": question}
        if schema is not None:
            operation["schema"] = dict(schema)
        return cast("dict[str, Any]", _value(await self._attempt.operate(operation)))["answer"]

    async def secret(self, name: str) -> str:
        """The value of a secret that the tool names and the operator allowed to the toolbox."""
        return cast("str", _value(await self._attempt.operate({"type": "secret", "name": name})))


class SyncContext(_Facts):
    """The context of an attempt, for tools that are plain functions. They run on threads of their own."""

    def __init__(self, attempt: Reporting, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(attempt)
        self._loop = loop
        self._async = Context(attempt)

    def step(self, name: str, run: Callable[..., Value], *args: Any, once: bool = False) -> Value:
        """As `Context.step`, with a plain function."""
        given = plain(list(args))
        is_known, value = self._recorded(name, given)
        if is_known:
            return cast("Value", value)
        answer = self._operate({"type": "step", "name": name, "input": given, "once": once})
        if answer["type"] != "run":
            return cast("Value", _value(answer))
        ended: dict[str, Any] = {"type": "step_end", "name": name, "input": given}
        try:
            value = plain(run(*args))
        except Exception as error:
            self._operate({**ended, "failure": ToolFailure.of(error)})
            raise
        _value(self._operate({**ended, "value": value}))
        return cast("Value", json.loads(json.dumps(value)))

    def sleep(self, name: str, seconds: float) -> None:
        """As `Context.sleep`."""
        self._run(self._async.sleep(name, seconds))

    def completion(self, name: str) -> str:
        """As `Context.completion`."""
        return self._run(self._async.completion(name))

    def wait(self, name: str, timeout: float | None = None) -> Any:
        """As `Context.wait`."""
        return self._run(self._async.wait(name, timeout))

    def call(self, name: str, tool: str, args: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """As `Context.call`."""
        return self._run(self._async.call(name, tool, args))

    def ask(self, name: str, question: str, schema: Mapping[str, Any] | None = None) -> Any:
        """As `Context.ask`."""
        return self._run(self._async.ask(name, question, schema))

    def secret(self, name: str) -> str:
        """As `Context.secret`."""
        return self._run(self._async.secret(name))

    def _operate(self, operation: dict[str, Any]) -> dict[str, Any]:
        return self._run(self._attempt.operate(operation))

    def _run(self, work: Any) -> Any:
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result()
        except (asyncio.CancelledError, concurrent.futures.CancelledError):
            raise Stopped("the attempt is over") from None


def _same(recorded: Any, given: Any) -> bool:
    return json.dumps(recorded, sort_keys=True) == json.dumps(given, sort_keys=True)


def _value(answer: Mapping[str, Any]) -> Any:
    """The value of an answer, or the error that it is."""
    kind = answer["type"]
    if kind == "value":
        return answer["value"]
    if kind == "unknown":
        raise StepUnknown("the step was started before a crash, and nobody knows whether it took effect")
    if kind == "failure":
        failure = cast("dict[str, Any]", answer["failure"])
        raise StepFailed(failure["message"], code=failure.get("code"), retry=failure.get("retry", False))
    errors = {"stopped": Stopped, "secret": SecretRefused}
    raise errors.get(answer["code"], Misused)(answer["message"])


def _completed(answer: Mapping[str, Any]) -> Any:
    if "ok" in answer:
        return answer["ok"]
    if "error" in answer:
        raise CompletionFailed(answer["error"]["code"], answer["error"]["message"])
    if "cancelled" in answer:
        raise CompletionCancelled("whoever was to answer has cancelled")
    raise CompletionTimeout("no answer came in time")
