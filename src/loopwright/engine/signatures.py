"""The declared types of a user's function, and how its input is read and its output is written."""

from __future__ import annotations

import collections.abc
import dataclasses
import functools
import inspect
import types as python_types
import typing
from collections.abc import Callable
from typing import Any

from ..errors import ConfigurationError
from ..records import Evaluation, Record, codec, own
from ..records.codec import ATOMS, Json
from ..records.isolation import own_json
from ..records.typed import ValueType, value_type

__all__ = ["ANNOTATION_UNREADABLE", "UNTYPED_OUTPUT", "FunctionTypes", "types_of"]

ANNOTATION_UNREADABLE = "annotation_unreadable"  # codes of warnings
UNTYPED_OUTPUT = "untyped_output"
_AWAITABLE = (collections.abc.Awaitable, collections.abc.Coroutine)


class FunctionTypes:
    """The declared types of a function, each None if there is none.

    `problem` is a sentence on an annotation that cannot be read. `like` is the step whose input type the
    output has, if the function declares none: an adapter makes the input of `execute`. `read` returns the
    function's own copy of a recorded value, in its declared type.
    """

    __slots__ = ("input", "json_output", "like", "name", "output", "problem", "read")

    def __init__(
        self,
        name: str,
        input: ValueType | None = None,
        output: ValueType | None = None,
        problem: str = "",
    ) -> None:
        self.name = name
        self.input = input
        self.output = output
        self.problem = problem
        self.like: Any = None
        self.read: Callable[[Json], object] = own if input is None else self._read
        # Whether an output that is JSON is written as it is, without the declared type.
        self.json_output = not problem and (output is None or output.is_json)

    def for_input_as_json(self) -> FunctionTypes:
        """Return the types of a step that has this output and whose own input is JSON."""
        result = FunctionTypes(self.name, None, self.output, self.problem)
        result.read = own_json
        return result

    def for_reader(self) -> FunctionTypes:
        """Return the types of a step that passes its input to this function and has an output of its own."""
        return FunctionTypes(self.name, self.input, None, self.problem)

    def _read(self, value: Json) -> object:
        kind, declared = type(value), self.input
        # A record, such as the Iteration that adapt receives, is a type of its own.
        if declared is None or kind in declared.flat or isinstance(value, Record):
            return own(value)
        return declared.read(value, self.name)

    def write(self, output: object, clean: Callable[[Json], Json] | None) -> Json:
        """Return the output as JSON that carries its declared type, without secrets."""
        if (declared := self.output) is not None and not isinstance(output, Evaluation):
            return declared.write(output, clean)
        if self.like is not None and type(output) not in ATOMS:
            expected: ValueType | None = self.like.input_type
            if expected is not None and not expected.is_json:
                return expected.write_input(output, what="output")
        plain = codec.normalise(output, what="output")
        return plain if clean is None else clean(plain)

    def untyped(self, output: object) -> str:
        """Return the sentence on a dataclass or model without a declared type, or ""."""
        kind = type(output)
        if kind in ATOMS or kind is dict or kind is list or self.output is not None:
            return ""
        if self.like is not None and self.like.input_type is not None:
            return ""
        # `model_dump` rather than an import of pydantic: most programs have no models.
        model = dataclasses.is_dataclass(kind) or hasattr(kind, "model_dump")
        if not model or isinstance(output, Record):
            return ""
        return (
            f"{self.name} returned {kind.__name__} and has no return annotation, so the next step "
            f"receives a dict; add -> {kind.__name__}"
        )


def types_of(function: Callable[..., Any], name: str) -> FunctionTypes:
    """Return the declared types of a function, by its annotations."""
    if isinstance(function, type):
        is_model = dataclasses.is_dataclass(function) or hasattr(function, "model_fields")
        return FunctionTypes(name, None, value_type(function, name) if is_model else None)
    hints, parameters, problem = _hints(function)
    declared: dict[str, ValueType | None] = {}
    first = next(iter(parameters), "")
    for place in (first, "return"):
        annotation = hints.get(place)
        if annotation is None:
            continue
        if place == "return":
            annotation = _awaited(annotation)
        elif parameters[place].default is not inspect.Parameter.empty:
            annotation = typing.Union[annotation, None]  # noqa: UP007 - not all annotations have |
        try:
            declared[place] = value_type(annotation, name)
        except ConfigurationError as error:
            problem = problem or str(error)
    if problem:
        problem = f"{name}: {problem}; its values are passed as JSON"
    return FunctionTypes(name, declared.get(first), declared.get("return"), problem)


def _hints(function: Any) -> tuple[dict[str, Any], dict[str, inspect.Parameter], str]:
    """Return the annotations by name, the parameters, and why one of them cannot be read."""
    inner = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    if not inspect.isroutine(inner):
        inner = getattr(inner, "__call__", inner)  # noqa: B004 - a callable object
    annotations = getattr(inner, "__annotations__", None)
    if not annotations:
        return {}, {}, ""
    try:
        parameters = dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        parameters = {}
    hints: dict[str, Any] = {}
    problem = ""
    # A decorator has other globals than the function whose annotations it copied.
    names = inspect.unwrap(inner)
    read_here = {next(iter(parameters), ""), "return"}
    for name, annotation in annotations.items():
        # The annotation of `ctx` often names a class that only type checkers import.
        if name not in read_here:
            continue
        if not isinstance(annotation, str):
            hints[name] = annotation
            continue
        try:
            # One by one: an annotation that cannot be read must not hide the others.
            holder = python_types.SimpleNamespace(__annotations__={name: annotation})
            read = typing.get_type_hints(holder, names.__globals__, include_extras=True)
        except Exception as error:  # an annotation is any expression of the user's
            problem = f"the annotation {annotation!r} cannot be read ({codec.error_line(error)})"
        else:
            hints[name] = read[name]
    return hints, parameters, problem


def _awaited(annotation: Any) -> Any:
    """Return the type that an awaitable returns."""
    if typing.get_origin(annotation) in _AWAITABLE:
        arguments = typing.get_args(annotation)
        return arguments[-1] if arguments else None
    return annotation
