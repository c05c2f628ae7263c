"""The inputs that a document declares: their types, their values from text and JSON, and their JSON Schema."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from ...errors import ConfigurationError, listed, nearest
from ...records.codec import Json, flow_text, strict_json, text_of
from ..yaml.bounds import shorten
from .fields import Part

__all__ = ["DeclaredInputs", "InputName", "InputSpec"]

_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,), "array": (list,),
    "object": (dict,),
}  # fmt: skip
_WORDS = {
    "string": "text", "integer": "an integer", "number": "a number", "boolean": "true or false",
    "array": "a list", "object": "an object",
}  # fmt: skip

# As templates, command lines and JSON write it: `input.topic`, `--set topic=…`.
InputName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")]


class InputSpec(Part):
    """An input of a document."""

    type: Literal["string", "integer", "number", "boolean", "array", "object"] = Field(
        "string", description="The type of its values, as in JSON Schema."
    )
    description: str = Field("", description="Text for readers, which help and forms show.")
    default: Json = Field(
        None, description="The value if the caller gives none. Without it, the input is required."
    )
    choices: list[Json] = Field([], min_length=1, description="The values that are valid.")

    @property
    def required(self) -> bool:
        """Whether each run needs a value from its caller."""
        return "default" not in self.model_fields_set

    def problem_of(self, value: Json) -> str:
        """Return why a value is not valid, or ""."""
        fits = isinstance(value, _TYPES[self.type]) and (
            self.type == "boolean" or not isinstance(value, bool)
        )
        shown = shorten(flow_text(value))
        if not fits or (isinstance(value, float) and not math.isfinite(value)):
            return f"{shown} is not {_WORDS[self.type]}"
        if self.choices and value not in self.choices:
            hint = nearest(value, self.choices) if isinstance(value, str) else ""
            return f"{shown} is not one of {', '.join(map(flow_text, self.choices))}{hint}"
        return ""

    def texts(self) -> list[str]:
        """Return the values that may be chosen, as texts; none if there are no choices."""
        values = [True, False] if self.type == "boolean" and not self.choices else self.choices
        return [text_of(value) for value in values]

    def schema_of(self) -> dict[str, Json]:
        """Return the JSON Schema of its values."""
        made: dict[str, Json] = {"type": self.type}
        if self.description:
            made["description"] = self.description
        if not self.required:
            made["default"] = self.default
        if self.choices:
            made["enum"] = self.choices
        return made

    @model_validator(mode="after")
    def _valid_values(self) -> InputSpec:
        free = self.model_copy(update={"choices": []})
        wrong = next(filter(None, map(free.problem_of, self.choices)), "")
        named = "choices" if wrong else "default"
        if wrong := wrong or ("" if self.required else self.problem_of(self.default)):
            raise PydanticCustomError("input", "{named}: {wrong}", {"named": named, "wrong": wrong})
        return self


@dataclass(frozen=True)
class DeclaredInputs:
    """The inputs of a document, and the values of some that were given by name.

    Args:
        owner: the name of the document.
        specs: the inputs by name.
        given: values of the caller; they replace those of the input as a whole.

    Example:
        >>> inputs = DeclaredInputs("poem", {"topic": InputSpec(), "lines": InputSpec(type="integer", default=4)})
        >>> inputs.complete("rain")
        {'topic': 'rain', 'lines': 4}
    """

    owner: str
    specs: Mapping[str, InputSpec]
    given: Mapping[str, Json] = field(default_factory=dict)

    def value(self, name: str, value: Json, *, text: bool = False) -> Json:
        """Return a value of an input; with `text`, a text is read as the type of the input.

        Raises:
            ConfigurationError: for an unknown input, or a value that is not valid.
        """
        spec = self.specs.get(name)
        if spec is None:
            hint = nearest(name, self.specs) or listed(name, self.specs, lead="it takes")
            raise ConfigurationError(f"{self.owner} has no input {name!r}{hint}")
        if text and isinstance(value, str) and spec.type != "string":
            # Else the text itself is not of the type, which the sentence says.
            with suppress(ValueError, RecursionError):
                value = strict_json(value)
        if wrong := spec.problem_of(value):
            raise ConfigurationError(f"input {name}: {wrong}")
        return value

    def complete(self, value: Json, *, called: bool = False) -> dict[str, Json]:
        """Return the input of a new run: the values of the caller, and the defaults of the others.

        Args:
            value: an object with values by name, or None. A text is the only input of type `string`; of several,
                the only one that is required.
            called: whether a step of another document gives it.

        Raises:
            ConfigurationError: for an input that is missing, unknown or not valid.
        """
        values = {**self.named(value), **self.given}
        for name, one in values.items():
            self.value(name, one)
        self.require(values, called=called)
        return {name: values.get(name, spec.default) for name, spec in self.specs.items()}

    def require(self, names: Collection[str], *, called: bool = False) -> None:
        """Raise ConfigurationError unless the inputs without a default are among some names."""
        missing = [name for name, spec in self.specs.items() if spec.required and name not in names]
        if missing:
            noun, first = ("inputs" if len(missing) > 1 else "input"), missing[0]
            how = f'give it with --set {first}=…, or as {{"{first}": …}} in the input'
            if called:
                how = f"write with: {{{first}: …}}"
            raise ConfigurationError(
                f"{self.owner} needs the {noun} {' and '.join(missing)}; {how}"
            )

    def named(self, value: Json) -> Mapping[str, Json]:
        """Return an input as a whole as values by name. Raises ConfigurationError."""
        if value is None or isinstance(value, Mapping):
            return value or {}
        texts = [name for name, spec in self.specs.items() if spec.type == "string"]
        required = [name for name in texts if self.specs[name].required]
        only = texts if len(texts) == 1 else required
        if isinstance(value, str) and len(only) == 1:
            return {only[0]: value}
        raise ConfigurationError(
            f"input: {self.owner} takes an object with {', '.join(self.specs)}, not {shorten(flow_text(value))}"
        )

    def of_call(self, given: Mapping[str, Json], value: Json) -> dict[str, Json]:
        """Return the input for a step that calls the document with the values in `given`.

        Args:
            given: values by name; `input` is an object with further values.
            value: the input of the step, which counts if nothing is given.

        Raises:
            ConfigurationError: as `complete` does.
        """
        whole = self.named(given.get("input", {} if given else value))
        values = {**whole, **{name: one for name, one in given.items() if name != "input"}}
        return self.complete(
            {name: self.value(name, one, text=True) for name, one in values.items()}, called=True
        )

    def schema(self) -> dict[str, Json]:
        """Return the JSON Schema of the input as a whole."""
        return {
            "type": "object",
            "properties": {name: spec.schema_of() for name, spec in self.specs.items()},
            "required": [name for name, spec in self.specs.items() if spec.required],
            "additionalProperties": False,
        }
