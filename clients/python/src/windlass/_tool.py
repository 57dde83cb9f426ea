"""Functions as tools."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, cast, get_type_hints, overload

from ._context import Context, SyncContext
from ._schema import schema_of, value_of

EffectClass = Literal["read", "keyed", "stepped", "once"]


class Tool:
    """A function that a toolbox offers. It can still be called as the function that it is."""

    def __init__(self, function: Callable[..., Any], manifest: dict[str, Any]) -> None:
        self.function = function
        self.is_async = inspect.iscoroutinefunction(function)
        hints = get_type_hints(function, include_extras=True)
        self.returns = hints.pop("return", inspect.Parameter.empty)
        self.context: str | None = None
        self.parameters: dict[str, Any] = {}
        described = _arguments(inspect.getdoc(function) or "")
        properties: dict[str, Any] = {}
        required: list[str] = []
        for name, parameter in inspect.signature(function).parameters.items():
            hint = hints.get(name, inspect.Parameter.empty)
            if hint in (Context, SyncContext) or (name == "ctx" and hint is inspect.Parameter.empty):
                self.context = name
                continue
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise TypeError(f"the tool {function.__name__!r} takes *{name}; a tool names each of its arguments")
            self.parameters[name] = hint
            schema = schema_of(hint)
            if name in described:
                schema.setdefault("description", described[name])
            if parameter.default is parameter.empty:
                required.append(name)
            properties[name] = schema
        schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
        if required:
            schema["required"] = required
        self.manifest: dict[str, Any] = {
            "name": function.__name__,
            "description": _summary(inspect.getdoc(function) or ""),
            "input": schema,
            **manifest,
        }

    @property
    def name(self) -> str:
        """The name of the tool."""
        return cast("str", self.manifest["name"])

    def arguments(self, args: Mapping[str, Any], context: Callable[[], Context | SyncContext]) -> dict[str, Any]:
        """The arguments of the function for a call."""
        given = {name: value_of(self.parameters.get(name), one) for name, one in args.items()}
        if self.context is not None:
            given[self.context] = context()
        return given

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...


@overload
def tool(
    *,
    name: str | None = None,
    id: str | None = None,
    effect: EffectClass | None = None,
    title: str | None = None,
    description: str | None = None,
    output: Mapping[str, Any] | None = None,
    background: bool = False,
    stays_direct: bool = False,
    claims: Sequence[str] | None = None,
    deadlines: Mapping[str, int] | None = None,
    grace_ms: int | None = None,
    retry: Mapping[str, int] | None = None,
    running_max: int | None = None,
    approval: Literal["never", "ask"] | None = None,
    deferral: Literal["auto", "never", "always"] | None = None,
    secrets: Sequence[str] = (),
    hints: Mapping[str, bool] | None = None,
    version: str | None = None,
    category: str | None = None,
    tags: Sequence[str] = (),
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Makes a function a tool: its type hints become the schema, its docstring the description.

    ``effect`` is the effect class: ``read``, ``keyed``, ``stepped`` or, by default, ``once``.
    """
    effect = options.pop("effect", None)
    manifest = {key: one for key, one in options.items() if one not in (None, (), False)}
    if effect is not None:
        manifest["class"] = effect
    for key in ("claims", "secrets", "tags"):
        if key in manifest:
            manifest[key] = list(manifest[key])
    if options.get("claims") is not None:
        manifest["claims"] = list(options["claims"])
    if function is not None:
        return Tool(function, manifest)

    def decorate(decorated: Callable[..., Any]) -> Tool:
        return Tool(decorated, manifest)

    return decorate


def _summary(doc: str) -> str:
    """The docstring without its list of arguments."""
    return re.split(r"\n\s*(?:Args|Arguments|Parameters|Returns|Raises):\s*\n", doc)[0].strip()


def _arguments(doc: str) -> dict[str, str]:
    """What the docstring says of each argument, in the section `Args:`."""
    section = re.search(r"\n\s*(?:Args|Arguments):\s*\n(.*?)(?:\n\s*\n|\n\s*(?:Returns|Raises):|\Z)", doc + "\n", re.S)
    if section is None:
        return {}
    found = re.findall(r"^\s*(\w+)\s*(?:\([^)]*\))?:\s*(.+(?:\n(?!\s*\w+\s*(?:\([^)]*\))?:).+)*)", section.group(1), re.M)
    return {name: " ".join(text.split()) for name, text in found}
