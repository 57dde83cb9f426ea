"""JSON Schema from type hints, and values from JSON."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import json
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints

JSON = Any
"""Anything that JSON can hold."""


def schema_of(hint: Any) -> dict[str, Any]:
    """The JSON Schema of a type hint; an unknown type takes anything."""
    simple: dict[Any, dict[str, Any]] = {
        str: {"type": "string"},
        int: {"type": "integer"},
        float: {"type": "number"},
        bool: {"type": "boolean"},
        type(None): {"type": "null"},
        dict: {"type": "object"},
        list: {"type": "array"},
    }
    if hint in (Any, inspect.Parameter.empty):
        return {}
    if isinstance(hint, type) and hint in simple:
        return dict(simple[hint])
    if hint is None:
        return {"type": "null"}
    origin = get_origin(hint)
    if origin is typing.Annotated:
        inner, *notes = get_args(hint)
        schema = schema_of(inner)
        for note in notes:
            if isinstance(note, str):
                schema["description"] = note
            elif isinstance(note, Mapping):
                schema.update(cast("Mapping[str, Any]", note))
        return schema
    if origin in (Union, types.UnionType):
        return {"anyOf": [schema_of(one) for one in get_args(hint)]}
    if origin is Literal:
        return {"enum": list(get_args(hint))}
    if origin in (list, Sequence, set, frozenset):
        items = get_args(hint)
        return {"type": "array", "items": schema_of(items[0])} if items else {"type": "array"}
    if origin is tuple:
        items = get_args(hint)
        if len(items) == 2 and items[1] is Ellipsis:
            return {"type": "array", "items": schema_of(items[0])}
        return {"type": "array", "prefixItems": [schema_of(one) for one in items], "minItems": len(items), "maxItems": len(items)}
    if origin in (dict, Mapping):
        values = get_args(hint)
        return {"type": "object", "additionalProperties": schema_of(values[1])} if len(values) == 2 else {"type": "object"}
    return _schema_of_class(hint)


def _schema_of_class(hint: Any) -> dict[str, Any]:
    model_schema = getattr(hint, "model_json_schema", None)
    if callable(model_schema):
        return cast("dict[str, Any]", model_schema())
    if _is_enum(hint):
        return {"enum": [one.value for one in hint]}
    if typing.is_typeddict(hint):
        hints = get_type_hints(hint, include_extras=True)
        return _object({name: schema_of(one) for name, one in hints.items()}, sorted(hint.__required_keys__))
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        hints = get_type_hints(hint, include_extras=True)
        required = [
            field.name
            for field in dataclasses.fields(hint)
            if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        ]
        return _object({field.name: schema_of(hints[field.name]) for field in dataclasses.fields(hint)}, required)
    return {}


def _is_enum(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, enum.Enum)


def _object(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        schema["required"] = required
    return schema


SCALARS = (str, int, float, bool, type(None))
"""Types whose values are JSON as they are."""


def value_of(hint: Any, given: JSON) -> Any:
    """A JSON value as the type that a parameter asks for. The server has checked it against the schema."""
    if hint in SCALARS:
        return given
    origin = get_origin(hint)
    if origin is typing.Annotated:
        return value_of(get_args(hint)[0], given)
    if origin in (Union, types.UnionType):
        for one in get_args(hint):
            if one is type(None):
                if given is None:
                    return None
                continue
            try:
                return value_of(one, given)
            except (TypeError, ValueError, KeyError):
                continue
        return given
    if origin in (list, Sequence) and isinstance(given, list):
        items = get_args(hint)
        return [value_of(items[0], one) for one in cast("list[Any]", given)] if items else cast("list[Any]", given)
    if origin is tuple and isinstance(given, list):
        return tuple(cast("list[Any]", given))
    if origin is set and isinstance(given, list):
        return set(cast("list[Any]", given))
    if origin is frozenset and isinstance(given, list):
        return frozenset(cast("list[Any]", given))
    validate = getattr(hint, "model_validate", None)
    if callable(validate):
        return validate(given)
    if _is_enum(hint):
        return hint(given)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type) and isinstance(given, dict):
        hints = get_type_hints(hint)
        fields = cast("dict[str, Any]", given)
        return hint(**{name: value_of(hints[name], one) for name, one in fields.items()})
    return given


def plain(value: Any) -> JSON:
    """A value as JSON: models, dataclasses and enums become what they hold."""
    if type(value) in SCALARS:
        return value
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(one) for one in cast("Sequence[Any]", value)]
    return value


def written(value: Any) -> bytes:
    """A value as the text of its JSON; only what is no JSON by itself is converted."""
    return json.dumps(value, default=_converted).encode()


def _converted(value: Any) -> JSON:
    if (converted := plain(value)) is value:
        raise TypeError(f"a value of the type {type(value).__name__} cannot be written as JSON")
    return converted
