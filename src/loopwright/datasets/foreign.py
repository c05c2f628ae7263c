"""Evaluations of other tools as cases and evaluators of ours; what has no counterpart is a problem at its line.

An evaluator that compares an output with a constant becomes a check of its case. Judges and programs stay apart,
because only a document can have them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..errors import DocumentError, Problem, nearest
from ..records.codec import Json

__all__ = ["Foreign", "ForeignCase", "Located", "equal_to", "of_case", "one_of"]

Place = tuple[str | int, ...]


class Located(NamedTuple):
    """A part of a document, and its place there."""

    value: Json
    at: Place


@dataclass(slots=True)
class ForeignCase:
    """A case with the evaluators of its own.

    Args:
        line: where it stands.
        values: the fields of a case.
        judges: the judges, each as the value of `judge:` in a document, but for a `criterion` that is no template, and
            `expected`, whether it sees what is expected.
        programs: the Python assertions: `code`, and `inverse`, whether it must not hold.
    """

    line: int
    values: dict[str, Json]
    judges: list[Located] = field(default_factory=list)
    programs: list[Located] = field(default_factory=list)


class Foreign:
    """What is read of an evaluation of another tool, and the problems with it.

    Args:
        source: the text of the file with its positions.
    """

    def __init__(self, source: Any) -> None:
        self.source = source
        self.name = ""
        self.cases: list[ForeignCase] = []
        self.evaluate: list[Located] = []  # evaluators of all cases, as in a document
        self.notes: list[str] = []
        self.problems: list[Problem] = []

    def refuse(self, at: Place, message: str, *, key: bool = False) -> None:
        """Add a problem at the place of a value, or of its key."""
        # What all cases share is read with each of them.
        if (problem := self.source.problem(at, message, key=key)) not in self.problems:
            self.problems.append(problem)

    def note(self, at: Place, message: str) -> None:
        """Add a remark about a place."""
        self.notes.append(f"{self.source.file}:{self.source.position(at)[0]}: {message}")

    def mapping(self, value: Json, at: Place) -> Mapping[str, Json]:
        """Return an object; an empty one for None, and with a problem for another value."""
        if value is None or isinstance(value, Mapping):
            return value or {}
        self.refuse(at, "expected an object, written here and not in another file")
        return {}

    def items(self, value: Json, at: Place) -> list[Located]:
        """Return the items of a list; none for None, and with a problem for another value."""
        if value is None or isinstance(value, list):
            return [Located(item, (*at, number)) for number, item in enumerate(value or [])]
        self.refuse(at, "expected a list, written here and not in another file")
        return []

    def only(self, at: Place, value: Mapping[str, Json], known: Sequence[str]) -> None:
        """Refuse keys that are not known."""
        for name in value:
            if name not in known:
                hint = nearest(name, known) or "; remove it"
                self.refuse((*at, name), f"`{name}` has no counterpart{hint}", key=True)

    def checked(self) -> Foreign:
        """Return it if it has no problem.

        Raises:
            DocumentError: with every problem.
        """
        if self.problems:
            raise DocumentError(self.problems)
        return self

    def rows(self) -> Iterator[tuple[int, Json]]:
        """Yield line and values of each case, whose own evaluators follow those of all cases.

        Raises:
            DocumentError: for a judge or a program, which no case can have.
        """
        for item in [
            *(one for one in self.evaluate if "judge" in one.value),
            *(one for case in self.cases for one in (*case.judges, *case.programs)),
        ]:
            self.refuse(
                item.at,
                "a case has no judge and no program; `loopwright convert` writes a document with them",
            )
        if not self.cases and not self.problems:
            self.refuse((), "there is no case")
        self.checked()
        for case in self.cases:
            own = case.values.get("evaluators", [])
            shared = [of_case(one.value, case.values) for one in self.evaluate]
            evaluators = [one for one in [*shared, *own] if one is not None]
            yield case.line, {**case.values, **({"evaluators": evaluators} if evaluators else {})}


def of_case(evaluator: Json, values: Mapping[str, Json]) -> Json:
    """Return an evaluator of all cases as that of one case; None if the case has nothing to compare with."""
    if evaluator != {"check": "equals_expected"}:
        return evaluator
    expected = values.get("expected")
    return None if expected is None else {"check": equal_to(expected)}


def equal_to(value: Json) -> dict[str, Json]:
    """Return a check that an output is this value."""
    return (
        {"matches": rf"\A{re.escape(value)}\Z"}
        if isinstance(value, str)
        else {"schema": {"const": value}}
    )


def one_of(values: Sequence[str], *, ignore_case: bool = False) -> str:
    """Return a regular expression that finds one of several texts."""
    return f"{'(?i)' if ignore_case else ''}{'|'.join(map(re.escape, values))}"
