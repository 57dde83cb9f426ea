"""A client of a Windlass server. Requests are repeated until they are answered: the same key is the same batch."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, Literal, cast

import httpx

from ._errors import Problem
from ._schema import plain, written
from ._wire import RequestMaker, problem_of, wait_of

Wire = Literal["openai_chat", "openai_responses", "anthropic", "gemini"]
RETRY_S = 0.1
RETRY_S_MAX = 2.0
BUSY = (429, 502, 503, 504)


class _Requests:
    """Paths and bodies, for both clients."""

    def __init__(self, session: str) -> None:
        self.session = session

    def batch(
        self, calls: Sequence[Mapping[str, Any]], key: str | None, wait: str, timeout: float | None
    ) -> tuple[str, dict[str, Any]]:
        body: dict[str, Any] = {"key": key or secrets.token_hex(16), "calls": list(calls), "wait": wait}
        if timeout is not None:
            body["timeout_ms"] = int(timeout * 1000)
        return f"/v1/sessions/{self.session}/batches", body

    def turn(self, wire: Wire) -> str:
        return f"/v1/sessions/{self.session}/batches?wire={wire}"

    def tools(self, wire: Wire) -> str:
        return f"/v1/sessions/{self.session}/tools?wire={wire}"

    def events(self, after: int) -> str:
        return f"/v1/sessions/{self.session}/events?after={after}"

    @staticmethod
    def decision(
        approval: Mapping[str, Any],
        decision: str,
        reason: str | None,
        args: Mapping[str, Any] | None,
    ) -> tuple[str, dict[str, Any]]:
        body: dict[str, Any] = {"decision": decision, "digest": approval["digest"]}
        if reason is not None:
            body["reason"] = reason
        if args is not None:
            body["args"] = dict(args)
        return f"/v1/approvals/{approval['id']}", body


def _server(url: str | None, token: str | None) -> tuple[str, dict[str, str]]:
    """The address of the server, and the headers of requests to it."""
    url = url or os.environ.get("WINDLASS_URL", "http://127.0.0.1:7420")
    return url, {"Authorization": f"Bearer {token or os.environ.get('WINDLASS_TOKEN', '')}"}


def model_text(call: Mapping[str, Any]) -> str:
    """The answer of a call for the model, as text: its texts and JSON values, a line for each."""
    parts = cast("list[dict[str, Any]]", call["model"]["parts"])
    return "\n".join(text for part in parts if (text := _text(part)) is not None)


def _text(part: Mapping[str, Any]) -> str | None:
    if part["type"] == "text":
        return cast("str", part["text"])
    return json.dumps(part["json"]) if part["type"] == "json" else None


class Client:
    """A client of one session, for plain functions.

    The server is `url` or ``WINDLASS_URL``, the token `token` or ``WINDLASS_TOKEN``.
    """

    def __init__(
        self, session: str, *, url: str | None = None, token: str | None = None, timeout: float = 90.0
    ) -> None:
        self._requests = _Requests(session)
        url, headers = _server(url, token)
        self._http = httpx.Client(base_url=url, headers=headers, timeout=timeout)
        self._maker = RequestMaker(self._http)
        self._give_up = timeout

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes its connections."""
        self._http.close()

    def batch(
        self,
        calls: Sequence[Mapping[str, Any]],
        *,
        key: str | None = None,
        wait: Literal["settled", "inline", "none"] = "settled",
        timeout: float | None = None,
    ) -> list[dict[str, Any]]:
        """Submits a batch and returns its calls as the API shows them. It is sent again under its key until it is answered."""
        path, body = self._requests.batch(calls, key, wait, timeout)
        return cast("list[dict[str, Any]]", self._ask("POST", path, body)["calls"])

    def call(self, tool: str, args: Mapping[str, Any] | None = None, *, key: str | None = None) -> dict[str, Any]:
        """Makes one call."""
        return self.batch([{"id": "call", "tool": tool, "args": dict(args or {})}], key=key)[0]

    def turn(self, response: Any, *, wire: Wire) -> dict[str, Any]:
        """Runs the tool calls of a model's response, and returns the messages for its next request in the provider's own shape."""
        return self._ask("POST", self._requests.turn(wire), cast("dict[str, Any]", plain(response)))

    def tools(self, *, wire: Wire) -> dict[str, Any]:
        """The tools of the session in the provider's own shape. Opens the session if it is new."""
        try:
            return self._ask("GET", self._requests.tools(wire), None)
        except Problem as problem:
            if problem.code != "not_found":
                raise
        self._ask("POST", "/v1/sessions", {"id": self._requests.session})
        return self._ask("GET", self._requests.tools(wire), None)

    def events(self, after: int = 0) -> Iterator[dict[str, Any]]:
        """The events of the session, each once, also through restarts of the server."""
        cursor = after
        while True:
            try:
                with self._http.stream("GET", self._requests.events(cursor), timeout=None) as stream:
                    if stream.is_error:
                        stream.read()
                        if stream.status_code not in BUSY:
                            raise problem_of(stream)
                    else:
                        event = _Event()
                        for line in stream.iter_lines():
                            if (told := event.line(line)) is not None:
                                cursor = int(told.get("cursor", cursor))
                                yield told
            except httpx.HTTPError:
                pass
            time.sleep(RETRY_S)

    def waiting(self, **filters: str) -> list[dict[str, Any]]:
        """Everything that waits for a person, in this session unless the filters say otherwise."""
        query = str(httpx.QueryParams({"session": self._requests.session, **filters}))
        return cast("list[dict[str, Any]]", self._ask("GET", f"/v1/waiting?{query}", None)["items"])

    def approve(self, approval: Mapping[str, Any], *, args: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Approves what `waiting` showed, with other arguments if they are given."""
        path, body = _Requests.decision(approval, "approve", None, args)
        return self._ask("POST", path, body)

    def deny(self, approval: Mapping[str, Any], reason: str) -> dict[str, Any]:
        """Denies what `waiting` showed."""
        path, body = _Requests.decision(approval, "deny", reason, None)
        return self._ask("POST", path, body)

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        delay, until = RETRY_S, time.monotonic() + self._give_up
        content = None if body is None else written(body)
        while True:
            try:
                response = self._http.send(self._maker.make(method, path, content))
                if response.status_code not in BUSY:
                    break
                if time.monotonic() > until:
                    raise problem_of(response)
                wait = wait_of(response, delay)
            except httpx.HTTPError:
                if time.monotonic() > until:
                    raise
                wait = delay
            time.sleep(min(wait, RETRY_S_MAX))
            delay = min(delay * 2, RETRY_S_MAX)
        if response.is_error:
            raise problem_of(response)
        return cast("dict[str, Any]", response.json())


class AsyncClient:
    """A client of one session, for coroutines: as `Client`."""

    def __init__(
        self, session: str, *, url: str | None = None, token: str | None = None, timeout: float = 90.0
    ) -> None:
        self._requests = _Requests(session)
        url, headers = _server(url, token)
        self._http = httpx.AsyncClient(base_url=url, headers=headers, timeout=timeout)
        self._maker = RequestMaker(self._http)
        self._give_up = timeout

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes its connections."""
        await self._http.aclose()

    async def batch(
        self,
        calls: Sequence[Mapping[str, Any]],
        *,
        key: str | None = None,
        wait: Literal["settled", "inline", "none"] = "settled",
        timeout: float | None = None,
    ) -> list[dict[str, Any]]:
        """As `Client.batch`."""
        path, body = self._requests.batch(calls, key, wait, timeout)
        return cast("list[dict[str, Any]]", (await self._ask("POST", path, body))["calls"])

    async def call(self, tool: str, args: Mapping[str, Any] | None = None, *, key: str | None = None) -> dict[str, Any]:
        """As `Client.call`."""
        return (await self.batch([{"id": "call", "tool": tool, "args": dict(args or {})}], key=key))[0]

    async def turn(self, response: Any, *, wire: Wire) -> dict[str, Any]:
        """As `Client.turn`."""
        return await self._ask("POST", self._requests.turn(wire), cast("dict[str, Any]", plain(response)))

    async def tools(self, *, wire: Wire) -> dict[str, Any]:
        """As `Client.tools`."""
        try:
            return await self._ask("GET", self._requests.tools(wire), None)
        except Problem as problem:
            if problem.code != "not_found":
                raise
        await self._ask("POST", "/v1/sessions", {"id": self._requests.session})
        return await self._ask("GET", self._requests.tools(wire), None)

    async def events(self, after: int = 0) -> AsyncIterator[dict[str, Any]]:
        """As `Client.events`."""
        cursor = after
        while True:
            try:
                async with self._http.stream("GET", self._requests.events(cursor), timeout=None) as stream:
                    if stream.is_error:
                        await stream.aread()
                        if stream.status_code not in BUSY:
                            raise problem_of(stream)
                    else:
                        event = _Event()
                        async for line in stream.aiter_lines():
                            if (told := event.line(line)) is not None:
                                cursor = int(told.get("cursor", cursor))
                                yield told
            except httpx.HTTPError:
                pass
            await asyncio.sleep(RETRY_S)

    async def waiting(self, **filters: str) -> list[dict[str, Any]]:
        """As `Client.waiting`."""
        query = str(httpx.QueryParams({"session": self._requests.session, **filters}))
        return cast("list[dict[str, Any]]", (await self._ask("GET", f"/v1/waiting?{query}", None))["items"])

    async def approve(self, approval: Mapping[str, Any], *, args: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """As `Client.approve`."""
        path, body = _Requests.decision(approval, "approve", None, args)
        return await self._ask("POST", path, body)

    async def deny(self, approval: Mapping[str, Any], reason: str) -> dict[str, Any]:
        """As `Client.deny`."""
        path, body = _Requests.decision(approval, "deny", reason, None)
        return await self._ask("POST", path, body)

    async def _ask(self, method: str, path: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        delay, until = RETRY_S, time.monotonic() + self._give_up
        content = None if body is None else written(body)
        while True:
            try:
                response = await self._http.send(self._maker.make(method, path, content))
                if response.status_code not in BUSY:
                    break
                if time.monotonic() > until:
                    raise problem_of(response)
                wait = wait_of(response, delay)
            except httpx.HTTPError:
                if time.monotonic() > until:
                    raise
                wait = delay
            await asyncio.sleep(min(wait, RETRY_S_MAX))
            delay = min(delay * 2, RETRY_S_MAX)
        if response.is_error:
            raise problem_of(response)
        return cast("dict[str, Any]", response.json())


class _Event:
    """Server-sent events, line by line."""

    def __init__(self) -> None:
        self._fields: dict[str, str] = {}

    def line(self, line: str) -> dict[str, Any] | None:
        """The event that ends with this line, if one does."""
        if line:
            name, _, value = line.partition(":")
            if name:
                self._fields[name] = value.removeprefix(" ")
            return None
        fields, self._fields = self._fields, {}
        if "data" not in fields:
            return None
        return cast("dict[str, Any]", json.loads(fields["data"]))


__all__ = ["AsyncClient", "Client", "Problem", "model_text"]
