"""What translations of documents share: the report of problems and notes, open models, and native documents with places."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict

from ..documents.project import Project
from ..documents.schema.document import Document
from ..documents.schema.fields import Part
from ..documents.schema.validate import Model, validated
from ..documents.yaml.reader import Location, Source, translated
from ..errors import DocumentError, Problem, nearest
from ..records.codec import Json

__all__ = ["CHOOSE", "Open", "Translation", "literal", "quoted", "reference"]

CHOOSE = "loopwright.dialects.gates:choose"
_SIMPLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TAGS = re.compile(r"\{[{%#]+")


class Open(Part):
    """A model that takes unknown keys, which the translation reports or notes."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)


def quoted(value: Json) -> str:
    """Return a JSON value other than null as an expression."""
    return json.dumps(value, ensure_ascii=False)


def literal(text: str) -> str:
    """Return a text that a native template renders unchanged."""
    return _TAGS.sub(lambda match: f"{{{{ {quoted(match[0])} }}}}", text)


def reference(*names: str) -> str:
    """Return the expression of a step's output and of fields in it: `draft.title`, or `steps["a-b"].title`."""
    first, *rest = names
    # Through `steps`, because a step may have the name of another variable.
    path = f"steps.{first}" if _SIMPLE.fullmatch(first) else f"steps[{quoted(first)}]"
    return path + "".join(f".{n}" if _SIMPLE.fullmatch(n) else f"[{quoted(n)}]" for n in rest)


@dataclass
class Translation:
    """The translation of one document, with its problems, notes and places."""

    source: Source
    project: Project
    problems: list[Problem] = field(default_factory=list)
    places: dict[Location, Location] = field(default_factory=dict)

    def report(self, at: Location, message: str, *, key: bool = False) -> None:
        """Report what cannot be carried over, or is wrong."""
        self.problems.append(self.source.problem(at, message, key=key))

    def note(self, at: Location, message: str) -> None:
        """Note what has no effect, or another one."""
        self.project.notes.append(
            self.source.problem(at, message, key=bool(at), code="dialect_difference")
        )

    def model(self, model: type[Model], value: Json, at: Location) -> Model | None:
        """Return a value as a model, or None with its problems reported."""
        try:
            return validated(model, value, self.source, at)
        except DocumentError as error:
            self.problems += error.problems
            return None

    def unknown(
        self, spec: BaseModel, at: Location, ignored: Mapping[str, str], refused: Mapping[str, str]
    ) -> None:
        """Note the keys that have no effect here, and report those that change what runs, each with what to write instead.

        Args:
            spec: a part of the document.
            at: its place.
            ignored: keys without an effect, with the reason, which is "" for labels.
            refused: keys that would change what runs, with what to write instead.
        """
        for name in spec.model_extra or ():
            if name in ignored:
                # Labels and descriptions are too common for a note.
                if ignored[name]:
                    self.note((*at, name), f"{name} has no effect here: {ignored[name]}")
            elif name in refused:
                self.report(
                    (*at, name), f"{name} cannot be carried over: {refused[name]}", key=True
                )
            else:
                hint = nearest(name, [*type(spec).model_fields, *ignored, *refused])
                self.report((*at, name), f"this key is unknown{hint}", key=True)

    def document(self, native: dict[str, Json]) -> tuple[Source, Document]:
        """Return the native document, and a source that takes its paths.

        Raises:
            DocumentError: with every problem of the document.
        """
        if self.problems:
            raise DocumentError(dict.fromkeys(self.problems))
        mapped = translated(self.source, self.places)
        return mapped, validated(Document, native, mapped)
