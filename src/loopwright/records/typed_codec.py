"""One declared type and JSON text, by pydantic; loaded when the first such type is used.

Source of the rules: https://docs.pydantic.dev/latest/concepts/type_adapter/
"""

from __future__ import annotations

import dataclasses
import functools
import re
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import typing_extensions
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, to_json

from ..errors import ConfigurationError
from . import codec
from .codec import Json

__all__ = [
    "DoesNotFit",
    "TypeCodec",
    "codec_of",
    "to_json",
]

# pydantic's default for bytes is UTF-8 text, which most bytes are not.
_BYTES = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
_LONG_NUMBER = re.compile(rb"[0-9]{4200}")
_PLACES = 3  # of a value that does not fit, in a message


class DoesNotFit(ValueError):
    """A value does not have the declared type; the message names the places."""


class TypeCodec:
    """The serialiser and the validator of a type, with bytes as base64."""

    __slots__ = ("_adapter", "_portable", "_wrapped")

    def __init__(self, declared: Any) -> None:
        portable = _portable(declared)
        # pydantic takes a configuration for a list of a class that may have its own, not for the class.
        self._wrapped = _may_have_config(portable)
        self._adapter: TypeAdapter[Any] = (
            TypeAdapter(list[portable], config=_BYTES)  # type: ignore[valid-type]
            if self._wrapped
            else TypeAdapter(portable, config=_BYTES)
        )
        if not self._adapter.pydantic_complete:
            raise TypeError("one of its annotations names an unknown class")
        self._portable = portable

    def schema(self) -> dict[str, Json]:
        """Return the JSON Schema of the type."""
        adapter: TypeAdapter[Any] = TypeAdapter(self._portable)
        return adapter.json_schema()

    def dump(self, value: object) -> Json:
        """Return JSON values of a value of the type.

        Raises:
            DoesNotFit: for a value of another type.
        """
        try:
            if self._wrapped:
                return self._adapter.dump_python([value], mode="json", warnings="error")[0]
            return self._adapter.dump_python(value, mode="json", warnings="error")
        except PydanticSerializationError as error:
            raise DoesNotFit(f"it is a {type(value).__name__}") from error
        except (ValueError, TypeError, RecursionError) as error:
            raise DoesNotFit(codec.error_text(error)) from error

    def load(self, data: bytes, *, strict: bool | None = None) -> Any:
        """Return a new value of the type from JSON text.

        Raises:
            DoesNotFit: if the text is of another type.
        """
        try:
            if self._wrapped:
                return self._adapter.validate_json(b"[" + data + b"]", strict=strict)[0]
            return self._adapter.validate_json(data, strict=strict)
        except ValidationError as error:
            raise DoesNotFit(self._places(error)) from error

    @staticmethod
    def checked_text(plain: Json, what: str) -> tuple[Json, bytes]:
        """Return JSON and its text, after the checks of `codec`: text, numbers and depth."""
        try:
            data = to_json(plain)
        except (PydanticSerializationError, ValueError):  # a lone surrogate
            plain = codec.normalise(plain, what=what)
            return plain, to_json(plain)
        # Each test is sure where it finds nothing; where it finds something, the codec decides.
        if (
            b"\\u0000" in data
            or b"NaN" in data
            or b"Infinity" in data
            or data.count(b"[") + data.count(b"{") > codec.MAX_DEPTH
            or (len(data) > 4000 and _LONG_NUMBER.search(data))
        ):
            plain = codec.normalise(plain, what=what)
            data = to_json(plain)
        return plain, data

    @staticmethod
    def equal(decoded: object, value: object) -> bool:
        """Return whether a value is equal to its decoded form; a class without `==` is not."""
        try:
            return bool(decoded == value)
        except Exception:  # from a method of the user's class
            return False

    @staticmethod
    def lost_subclass(value: object, decoded: object) -> tuple[str, type, type] | None:
        """Return the place of an instance of a subclass, whose other fields are lost, with both classes."""
        for place, actual, declared in _other_classes(value, decoded, ""):
            if issubclass(actual, declared):
                return place.lstrip("."), actual, declared
        return None

    def _places(self, error: ValidationError) -> str:
        """Return the places and reasons of a validation error."""
        problems = error.errors(include_url=False, include_input=False, include_context=False)
        shown = []
        for problem in problems[:_PLACES]:
            location = problem["loc"][1:] if self._wrapped else problem["loc"]
            place = ".".join(str(part) for part in location)
            shown.append(f"{place}: {problem['msg']}" if place else problem["msg"])
        if len(problems) > _PLACES:
            shown.append(f"and {len(problems) - _PLACES} more")
        return "; ".join(shown)


def codec_of(declared: Any) -> TypeCodec:
    """Return the codec of a type, one for each type.

    Raises:
        ConfigurationError: for a type that has no JSON form.
    """
    build: Callable[[Any], TypeCodec] = _cached_codec
    try:
        hash(declared)
    except TypeError:
        build = _built
    return build(declared)


def _built(declared: Any) -> TypeCodec:
    try:
        return TypeCodec(declared)
    except Exception as error:  # of pydantic, or of a class that takes part in its schema
        reason = codec.error_text(error).partition("\n")[0]
        raise ConfigurationError(f"{declared!r} has no JSON form: {reason}") from error


_cached_codec = functools.lru_cache(maxsize=1024)(_built)


def _may_have_config(declared: Any) -> bool:
    plain = declared
    while typing.get_origin(plain) is typing.Annotated:
        plain = typing.get_args(plain)[0]
    plain = typing.get_origin(plain) or plain
    if not isinstance(plain, type):
        return False
    model = issubclass(plain, BaseModel) or dataclasses.is_dataclass(plain)
    return model or typing_extensions.is_typeddict(plain)


def _portable(declared: Any) -> Any:
    """Return a type with each `typing.TypedDict` as one of `typing_extensions`, before Python 3.12.

    pydantic refuses the former there, because its required keys cannot be read.
    """
    if sys.version_info >= (3, 12):
        return declared
    if typing.is_typeddict(declared) and type(declared) is not type(_SAMPLE):
        return _rebuilt(declared)
    arguments = typing.get_args(declared)
    if not arguments or typing.get_origin(declared) is typing.Literal:
        return declared
    parts = tuple(_portable(part) for part in arguments)
    if all(new is old for new, old in zip(parts, arguments, strict=True)):
        return declared
    origin = typing.get_origin(declared)
    if origin in (typing.Union, types.UnionType):
        return typing.Union[parts]  # noqa: UP007
    if origin is typing.Annotated:
        return typing.Annotated[(parts[0], *declared.__metadata__)]
    return origin[parts]


class _SAMPLE(typing_extensions.TypedDict):
    """A TypedDict that pydantic accepts."""


@functools.lru_cache(maxsize=1024)
def _rebuilt(declared: Any) -> Any:
    hints = typing.get_type_hints(declared, include_extras=True)
    fields: dict[str, Any] = {}
    for name, hint in hints.items():
        while typing.get_origin(hint) in (typing.Required, typing.NotRequired):
            (hint,) = typing.get_args(hint)
        required = name in declared.__required_keys__
        marker: Any = typing_extensions.Required if required else typing_extensions.NotRequired
        fields[name] = marker[_portable(hint)]
    return typing_extensions.TypedDict(declared.__name__, fields)  # type: ignore[operator]


def _other_classes(
    value: object, decoded: object, place: str, depth: int = 0
) -> Iterator[tuple[str, type, type]]:
    """Iterate over the places where a value and its decoded form differ in class."""
    actual, declared = type(value), type(decoded)
    if depth > codec.MAX_DEPTH:  # values may refer to themselves
        return
    if actual is not declared:
        if dataclasses.is_dataclass(declared) or issubclass(declared, BaseModel):
            yield place, actual, declared
        return
    for name, one, other in _pairs(value, decoded):
        yield from _other_classes(one, other, f"{place}{name}", depth + 1)


def _pairs(value: Any, decoded: Any) -> Iterator[tuple[str, object, object]]:
    if isinstance(value, Mapping):
        yield from ((f"[{key!r}]", value[key], decoded[key]) for key in value if key in decoded)
    elif isinstance(value, list | tuple):
        pairs = zip(value, decoded, strict=False)
        yield from ((f"[{i}]", one, other) for i, (one, other) in enumerate(pairs))
    elif isinstance(value, BaseModel) or dataclasses.is_dataclass(value):
        for name in vars(value) if isinstance(value, BaseModel) else value.__dataclass_fields__:
            if hasattr(value, name) and hasattr(decoded, name):
                yield f".{name}", getattr(value, name), getattr(decoded, name)
