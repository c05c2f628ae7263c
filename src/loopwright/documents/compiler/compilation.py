"""The compilation of one document: what it may name, what is wrong with it, and the steps in it.

It knows no kind of step: it is given a table of them (`registry`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from ...engine.composites import acceptable, limited, retrying
from ...errors import ConfigurationError, Problem, listed, nearest
from ...records.codec import Json
from ...templates import TemplateError, compile_expression
from ...templates.variables import (
    FIXED,
    OF_ITEMS,
    OF_LOOPS,
    OF_ROUNDS,
    TemplatedValue,
    fill,
    needed,
)
from ..project import Project
from ..schema.document import Action, StepSpec
from ..schema.traverse import holds_loops, is_loop, running_order
from ..schema.validate import NOTHING_LEFT_OUT, Gaps
from ..steps.loop_node import node_expression, node_fill
from ..steps.steps import (
    Accepting,
    Conditional,
    ContinueOnError,
    DefaultOutput,
    DocumentWorkflow,
    Required,
    prepared,
)
from ..yaml.reader import Source
from ..yaml.source import Location
from . import functions

__all__ = [
    "LANGUAGES",
    "NATIVE",
    "Compilation",
    "CompileCall",
    "CompileKind",
    "Location",
    "TemplateLanguage",
]


@dataclass(frozen=True, slots=True)
class TemplateLanguage:
    """How templates are read: `fill` compiles a value, `expression` a condition, `names` says what that needs."""

    fill: Callable[[Json], TemplatedValue]
    expression: Callable[[str], Json]
    names: Callable[[Json], Iterable[str]]


def _none(_: Json) -> Iterable[str]:
    """Return no names: what a loop node's condition lacks is empty there."""
    return ()


NATIVE = TemplateLanguage(fill, compile_expression, needed)
# By the `templates` of a document.
LANGUAGES: Mapping[str, TemplateLanguage] = MappingProxyType(
    {"native": NATIVE, "loop_node": TemplateLanguage(node_fill, node_expression, _none)}
)


_Result = TypeVar("_Result")
MAX_COMPARISONS = 1_000  # names that are compared in all, to find the nearest: that takes time
_TAG = re.compile(r"\{[{%]")
MAX_PROBLEMS = 100  # problems after which no further step is looked at


# Compiles a step of one kind: its action, its name and its place; None if problems were found.
CompileKind = Callable[["Compilation", Action, str, Location], Json]
# Compiles the document that a step names, for the names that the step supplies; None if problems were found.
CompileCall = Callable[["Compilation", str, Location, frozenset[str]], DocumentWorkflow | None]


@dataclass(frozen=True)
class Compilation:
    """The compilation of one document: where it is, what it may name, and what was found wrong.

    `known` are the names that templates may use; `execute` imports functions, without it they are only looked up;
    `kinds` compile the kinds of steps by name, `call` the document that a step calls. `templates` is the language of
    its templates, `tools` are those of the document and its servers, `declared` their names.
    `gaps` is what is left out of a document that is wrong in places.
    """

    source: Source
    folder: Path
    project: Project
    kinds: Mapping[str, CompileKind]
    call: CompileCall
    known: frozenset[str] = frozenset()
    problems: list[Problem] = field(default_factory=list)
    defaults: Mapping[str, Json] = field(default_factory=dict)
    templates: TemplateLanguage = NATIVE
    used: list[tuple[Location, frozenset[str]]] = field(default_factory=list)
    tools: dict[str, Json] = field(default_factory=dict)
    declared: frozenset[str] = frozenset()
    gaps: Gaps = NOTHING_LEFT_OUT

    def problem(self, path: Location, message: str, *, key: bool = False) -> None:
        """Report something wrong at a place."""
        self.problems.append(self.source.problem(path, message, key=key))

    def with_names(self, names: Iterable[str]) -> Compilation:
        """Return the compilation of a part that may use more names."""
        return replace(self, known=self.known | frozenset(names))

    def attempt(self, path: Location, make: Callable[[], _Result]) -> _Result | None:
        """Return what `make` makes, or report why it cannot."""
        try:
            return make()
        except TemplateError as error:
            self.template_problem(path, error)
        except ConfigurationError as error:
            self.problem(path, str(error))
        return None

    def template(self, path: Location, value: Json) -> TemplatedValue:
        """Compile a value with templates; unknown names are problems."""
        try:
            result = self.templates.fill(value)
        except TemplateError as error:
            self._unreadable(path, value, error)
            return TemplatedValue(value, lambda _: value, frozenset())
        self.names(path, result.names)
        return result

    def _unreadable(self, path: Location, value: Json, error: TemplateError) -> None:
        """Report each text in a value that is no template."""
        if not isinstance(value, Mapping | list):
            self.template_problem(path, error)
            return
        for key, inner in value.items() if isinstance(value, Mapping) else enumerate(value):
            try:
                result = self.templates.fill(inner)
            except TemplateError as inside:
                self._unreadable((*path, key), inner, inside)
            else:
                self.names((*path, key), result.names)

    def template_problem(self, path: Location, error: TemplateError) -> None:
        """Report a template that cannot be read, at its line and column in the file."""
        self.problems.append(template_problem(self.source, path, error))

    def names(self, path: Location, names: Iterable[str]) -> None:
        """Report names that no step, variable or input supplies."""
        result = frozenset(names)
        self.used.append((path, result))
        if self.gaps.names:
            return
        unknown = [name for name in result if name not in self.known and name not in FIXED]
        for value in sorted(unknown):
            if value.startswith(("steps.", "loops.")):
                continue  # of those, one that has no value yet is empty
            name = value.removeprefix("given.")
            if name not in self.known and name not in FIXED:
                message = f"template: nothing supplies {name!r}{self._suggestion(name)}"
                self.problems.append(self.source.problem_at_word(path, message, name))

    def _suggestion(self, name: str) -> str:
        """Return what a name could have been: the nearest, or all there are."""
        field = name.removeprefix("loop.")
        if field != name and field not in OF_ITEMS:
            if field in OF_ROUNDS:
                return f"; did you mean 'loop.last.{field}'?"
            over_list = OF_ITEMS if "loop.current" in self.known else ()
            there = [f"loop.{names}" for names in sorted({*OF_LOOPS, *over_list})]
            return nearest(name, there) or f"; there are {', '.join(there)}"
        if name.partition(".")[0] == "loop":
            return "; no loop contains this step or ends before it"
        own = sorted(names for names in self.known if not names.startswith("loop."))
        hint = self._nearest(name, [*own, "input", "value", "env"])
        if hint:
            return hint
        message = listed(name, ["input", *own], more="steps and variables")
        alone = len(self.project.open) <= 1 and "." not in name
        return f"{message}; --set {name}=… gives it a value" if alone else message

    def _nearest(self, name: str, names: Iterable[str]) -> str:
        """Return what a name could have been; of many wrong names, only the first are looked at."""
        defined = list(names)
        return nearest(name, defined) if len(self.problems) * len(defined) < MAX_COMPARISONS else ""

    def function(self, path: Location, reference: str) -> Json:
        """Return the function that a reference names, or None with a problem."""

        agreed = self.project.agreed(reference)

        def find() -> Json:
            # What was agreed to was looked up before, and its file may differ by now.
            takes_context = agreed is None and functions.resolve_reference(reference, self.folder)
            if self.project.execute:
                return functions.function(reference, self.folder, agreed)
            return _unimported_with_context if takes_context else _unimported

        return self.attempt(path, find)

    def inside(self, name: str, path: Location, folder: Path | None = None) -> str:
        """Return a path, relative to the document's folder, as an absolute one; outside of the root is a problem."""
        folder = folder or self.folder
        result = Path(os.path.realpath(folder / name))
        if not result.is_relative_to(os.path.realpath(self.project.root_of(folder))):
            self.problem(path, f"{name!r} is outside the project folder")
        return str(result)

    def action(self, spec: Action, name: str, path: Location) -> Json:
        """Compile what a step does, with its limits and its way to fail."""
        step = self.kinds[spec.kind](self, spec, name, path)
        if step is None:
            return None
        if "input" in spec.model_fields_set:
            step = prepared(step, self.template((*path, "input"), spec.input))
        if spec.timeout is not None:
            step = limited(step, spec.timeout)
        if spec.on_failure == "retry":
            step = retrying(step, attempts=spec.max_retries + 1, delay=spec.retry_delay)
        elif spec.on_failure == "continue":
            step = ContinueOnError(name, step, counts=is_loop(spec))
        return step

    def steps(
        self, specs: list[StepSpec], path: Location, *, ordered: bool = True
    ) -> dict[str, Json]:
        """Compile named steps; each may use the names of those that come before it."""
        result: dict[str, Json] = {}
        visited: dict[str, int] = {}
        order = running_order(specs) if ordered else list(range(len(specs)))
        names = {spec.name for spec in specs}
        here_on = self
        for i in order:
            spec = specs[i]
            place = (*path, i)
            if len(self.problems) >= MAX_PROBLEMS:
                self.problem(place, f"checking stops after {MAX_PROBLEMS} problems")
                break
            if spec.name in visited:
                first = self.source.position((*path, visited[spec.name], "name"))[0]
                self.problem((*place, "name"), f"{spec.name!r} is already a step, on line {first}")
                continue
            visited[spec.name] = i
            self._check_needs(names, spec, place)
            step = here_on.action(spec, spec.name, place)
            if step is not None and spec.if_ is not None:
                step = here_on.when(step, spec, place)
            if step is not None and "otherwise" in spec.model_fields_set:
                step = DefaultOutput(spec.name, step, spec.otherwise)
            if step is not None:
                if spec.accept:
                    step = here_on.accepting(step, spec, place)
                if spec.required and not step.required:
                    step = Required(spec.name, step)
                result[spec.name] = step
            if ordered:
                here_on = here_on.with_names([spec.name, *(["loop"] if holds_loops(spec) else [])])
        return {spec.name: result[spec.name] for spec in specs if spec.name in result}

    def accepting(self, step: Json, spec: StepSpec, here: Location) -> Json:
        """Compile `accept:` around a step."""
        at = (*here, "accept")
        if step.effect and spec.kind != "python":
            self.problem(
                at,
                f"accept applies to loops and to steps that contain loops, not to {spec.kind}",
                key=True,
            )
        required = spec.required or step.required
        result = self.attempt(at, lambda: acceptable("step", spec.accept, required=required))
        return step if result is None else Accepting(spec.name, step, result)

    def _check_needs(self, names: set[str], spec: StepSpec, here: Location) -> None:
        for i, need in enumerate(spec.needs):
            if need not in names and not self.gaps.names:
                hint = self._nearest(need, names - {spec.name})
                self.problem((*here, "needs", i), f"there is no step {need!r}{hint}")

    def when(self, step: Json, spec: StepSpec, here: Location) -> Json:
        """Compile `if:` around a step."""
        text = (spec.if_ or "").strip()
        if text.startswith("{{") and text.endswith("}}"):
            text = text[2:-2].strip()
        result = self.attempt((*here, "if"), lambda: self.templates.expression(text))
        if result is None:
            return step
        self.names((*here, "if"), self.templates.names(result))
        return Conditional(spec.name, step, result, text)


def template_problem(source: Source, path: Location, error: TemplateError) -> Problem:
    """Return the problem of a template at its place in the file, or at its text where that has none."""
    text = source.text(path)
    if text is None or not error.line:
        return source.problem(path, str(error))
    lines = text.split("\n")
    offset = sum(len(line) + 1 for line in lines[: error.line - 1])
    if error.column:
        offset += error.column - 1
    elif (tag := _TAG.search(text, offset)) is not None:
        offset = tag.start()
    return source.problem_inside(path, f"template: {error.reason}", offset)


def _unimported(value: Json) -> Json:
    raise AssertionError("a document loaded for checking is not run")


def _unimported_with_context(value: Json, ctx: Json) -> Json:
    _unimported(value)
