"""Durable tools for AI agents: tools written in Python, and a client of a Windlass server."""

from ._client import AsyncClient, Client, model_text
from ._context import Context, Parts, Pending, SyncContext
from ._errors import (
    CompletionCancelled,
    CompletionFailed,
    CompletionTimeout,
    Misused,
    Problem,
    SecretRefused,
    StepFailed,
    StepUnknown,
    Stopped,
    ToolFailure,
)
from ._serve import Toolbox, serve
from ._tool import Tool, tool

__all__ = [
    "AsyncClient",
    "Client",
    "CompletionCancelled",
    "CompletionFailed",
    "CompletionTimeout",
    "Context",
    "Misused",
    "Parts",
    "Pending",
    "Problem",
    "SecretRefused",
    "StepFailed",
    "StepUnknown",
    "Stopped",
    "SyncContext",
    "Tool",
    "ToolFailure",
    "Toolbox",
    "model_text",
    "serve",
    "tool",
]
