"""What requests of the client and of toolboxes share."""

from __future__ import annotations

from typing import Any, cast

import httpx

from ._errors import Problem


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
