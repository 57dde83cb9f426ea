"""Errors of tools, of their operations, and of requests."""

from __future__ import annotations

from typing import Any


class ToolFailure(Exception):
    """A failure that a tool raises on purpose. The model reads the message, so it says what to do instead."""

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        retry: bool = False,
        retry_after: float | None = None,
        did_not_happen: bool = False,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.retry = retry or retry_after is not None
        self.retry_after = retry_after
        self.did_not_happen = did_not_happen

    def body(self) -> dict[str, Any]:
        """The failure as it is reported."""
        body: dict[str, Any] = {"message": self.message, "retry": self.retry, "did_not_happen": self.did_not_happen}
        if self.code is not None:
            body["code"] = self.code
        if self.retry_after is not None:
            body["retry_after_ms"] = int(self.retry_after * 1000)
        return body

    @staticmethod
    def of(error: BaseException) -> dict[str, Any]:
        """Any error as it is reported: one that was not raised on purpose is hidden from the model."""
        if isinstance(error, ToolFailure):
            return error.body()
        return {"message": f"{type(error).__name__}: {error}", "internal": True}


class StepFailed(ToolFailure):
    """A recorded step failed in this round of its call."""


class StepUnknown(Exception):
    """A step that must not be repeated was started before a crash, and nobody knows whether it took effect."""


class Stopped(Exception):
    """The attempt must stop: it was cancelled, its time is up, or it is over here."""


class Misused(Exception):
    """An operation is used in a way that cannot be replayed: a name twice, another input than the recorded one."""


class SecretRefused(Exception):
    """The secret is not there, not named by the tool, or not allowed to the toolbox."""


class CompletionFailed(Exception):
    """Whoever was to answer says that it failed."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class CompletionTimeout(Exception):
    """No answer came in time."""


class CompletionCancelled(Exception):
    """Whoever was to answer has cancelled."""


class Problem(Exception):
    """A request that the server refused, with the code and the sentence it gave."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.status = status
        self.code = code
        self.detail = detail
