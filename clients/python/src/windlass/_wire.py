"""The parts of requests that the clients and toolboxes share."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any, cast

import httpx

from ._errors import Problem

# The HTTP library looks for this package several times in each request. Where it is not installed, Python searches all folders each time,
# which takes a quarter of a request's time; a name without a module is known to be missing.
if "sniffio" not in sys.modules and importlib.util.find_spec("sniffio") is None:
    sys.modules["sniffio"] = None  # type: ignore[assignment]

URLS_MAX = 64
"""The largest number of addresses that are kept: most requests are to a few."""


class RequestMaker:
    """Makes the requests of an HTTP client. The client could do so itself, in four times the time: it merges addresses, headers,
    cookies and parameters anew for each one."""

    def __init__(self, http: httpx.Client | httpx.AsyncClient) -> None:
        self._base = str(http.base_url).rstrip("/")
        self._headers = http.headers
        self._extensions = {"timeout": http.timeout.as_dict()}
        self._urls: dict[str, httpx.URL] = {}

    def make(
        self, method: str, path: str, content: bytes | None, media_type: str = "application/json"
    ) -> httpx.Request:
        """A request for a path of the server."""
        headers = self._headers
        if content is not None:
            headers = headers.copy()
            headers["Content-Type"] = media_type
        return httpx.Request(method, self._url(path), headers=headers, content=content, extensions=self._extensions)

    def _url(self, path: str) -> httpx.URL:
        url = self._urls.get(path)
        if url is None:
            url = httpx.URL(self._base + path)
            if len(self._urls) < URLS_MAX:
                self._urls[path] = url
        return url


def problem_of(response: httpx.Response) -> Problem:
    """The problem that a refused request was answered with."""
    try:
        body = cast("dict[str, Any]", response.json())
        return Problem(response.status_code, str(body["code"]), str(body["detail"]))
    except (ValueError, KeyError, TypeError):
        return Problem(response.status_code, "unknown", response.text[:500])


def wait_of(response: httpx.Response, usual: float) -> float:
    """How long a busy server asks to wait, in seconds; the header knows only whole ones."""
    try:
        return float(response.json()["retry_after_ms"]) / 1000
    except (ValueError, KeyError, TypeError):
        return usual
