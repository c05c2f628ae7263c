"""The compilation of one document: what it may name, what is wrong with it, and the steps in it.

It knows no kind of step: it is given a table of them (`registry`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from ...engine.composites import acceptable, limited, retrying
from ...engine.step import Leaf, Step
from ...errors import ConfigurationError, Problem, listed, nearest
from ...templates import TemplateError
from ...templates.variables import FIXED, OF_ITEMS, OF_LOOPS, OF_ROUNDS, TemplatedValue
from ..project import Project
from ..schema.document import Action, StepSpec
from ..schema.partial import NOTHING_LEFT_OUT, Gaps
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
from . import functions
from .order import holds_loops, is_loop, running_order
from .template_languages import NATIVE, TemplateLanguage

__all__ = ["Compilation", "CompileCall", "CompileKind", "Path_"]

Path_ = tuple[str | int, ...]
_T = TypeVar("_T")
_COMPARED = 1_000  # names that are compared in all, to find the nearest: that takes time
_TAG = re.compile(r"\{[{%]")
_MOST = 100  # problems after which no further step is looked at


# Compiles a step of one kind: its action, its name and its place; None if problems were found.
CompileKind = Callable[["Compilation", Action, str, Path_], Step | None]
# Compiles the document that a step names, for the names that the step supplies; None if problems were found.
CompileCall = Callable[["Compilation", str, Path_, frozenset[str]], DocumentWorkflow | None]


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
    defaults: Mapping[str, Any] = field(default_factory=dict)
    templates: TemplateLanguage = NATIVE
    used: list[tuple[Path_, frozenset[str]]] = field(default_factory=list)
    tools: dict[str, Any] = field(default_factory=dict)
    declared: frozenset[str] = frozenset()
    gaps: Gaps = NOTHING_LEFT_OUT

    def problem(self, path: Path_, message: str, *, key: bool = False) -> None:
        """Report something wrong at a place."""
        self.problems.append(self.source.problem(path, message, key=key))

    def knowing(self, names: Iterable[str]) -> Compilation:
        """Return the compilation of a part that may use more names."""
        return replace(self, known=self.known | frozenset(names))

    def attempt(self, path: Path_, make: Callable[[], _T]) -> _T | None:
        """Return what `make` makes, or report why it cannot."""
        try:
            return make()
        except TemplateError as error:
            self.template_problem(path, error)
        except ConfigurationError as error:
            self.problem(path, str(error))
        return None

    def filled(self, path: Path_, value: Any) -> TemplatedValue:
        """Compile a value with templates; unknown names are problems."""
        try:
            found = self.templates.fill(value)
        except TemplateError as error:
            self._unreadable(path, value, error)
            return TemplatedValue(value, lambda _: value, frozenset())
        self.names(path, found.names)
        return found

    def _unreadable(self, path: Path_, value: Any, error: TemplateError) -> None:
        """Report each text in a value that is no template."""
        if not isinstance(value, Mapping | list):
            self.template_problem(path, error)
            return
        for key, inner in value.items() if isinstance(value, Mapping) else enumerate(value):
            try:
                found = self.templates.fill(inner)
            except TemplateError as inside:
                self._unreadable((*path, key), inner, inside)
            else:
                self.names((*path, key), found.names)

    def template_problem(self, path: Path_, error: TemplateError) -> None:
        """Report a template that cannot be read, at its line and column in the file."""
        self.problems.append(template_problem(self.source, path, error))

    def names(self, path: Path_, names: Iterable[str]) -> None:
        """Report names that no step, variable or input supplies."""
        found = frozenset(names)
        self.used.append((path, found))
        if self.gaps.names:
            return
        unknown = [name for name in found if name not in self.known and name not in FIXED]
        for given in sorted(unknown):
            if given.startswith(("steps.", "loops.")):
                continue  # of those, one that has no value yet is empty
            name = given.removeprefix("given.")
            if name not in self.known and name not in FIXED:
                message = f"template: nothing supplies {name!r}{self._instead(name)}"
                self.problems.append(self.source.problem_at_word(path, message, name))

    def _instead(self, name: str) -> str:
        """Return what a name could have been: the nearest, or all there are."""
        field = name.removeprefix("loop.")
        if field != name and field not in OF_ITEMS:
            if field in OF_ROUNDS:
                return f"; did you mean 'loop.last.{field}'?"
            over_list = OF_ITEMS if "loop.current" in self.known else ()
            there = [f"loop.{known}" for known in sorted({*OF_LOOPS, *over_list})]
            return nearest(name, there) or f"; there are {', '.join(there)}"
        if name.partition(".")[0] == "loop":
            return "; no loop is around it or has ended before it"
        own = sorted(known for known in self.known if not known.startswith("loop."))
        hint = self._nearest(name, [*own, "input", "value", "env"])
        if hint:
            return hint
        told = listed(name, ["input", *own], more="steps and variables")
        alone = len(self.project.open) <= 1 and "." not in name
        return f"{told}; --set {name}=… gives it a value" if alone else told

    def _nearest(self, name: str, names: Iterable[str]) -> str:
        """Return what a name could have been; of many wrong names, only the first are looked at."""
        known = list(names)
        return nearest(name, known) if len(self.problems) * len(known) < _COMPARED else ""

    def function(self, path: Path_, reference: str) -> Any:
        """Return the function that a reference names, or None with a problem."""

        agreed = self.project.agreed(reference)

        def find() -> Any:
            # What was agreed to was looked up before, and its file may differ by now.
            takes_context = agreed is None and functions.resolve_reference(reference, self.folder)
            if self.project.execute:
                return functions.function(reference, self.folder, agreed)
            return _unimported_with_context if takes_context else _unimported

        return self.attempt(path, find)

    def inside(self, name: str, path: Path_, folder: Path | None = None) -> str:
        """Return a path, relative to the document's folder, as an absolute one; outside of the root is a problem."""
        folder = folder or self.folder
        found = Path(os.path.realpath(folder / name))
        if not found.is_relative_to(os.path.realpath(self.project.root_of(folder))):
            self.problem(path, f"{name!r} leads out of the project folder")
        return str(found)

    def action(self, spec: Action, name: str, path: Path_) -> Step | None:
        """Compile what a step does, with its limits and its way to fail."""
        step = self.kinds[spec.kind](self, spec, name, path)
        if step is None:
            return None
        if "input" in spec.model_fields_set:
            step = prepared(step, self.filled((*path, "input"), spec.input))
        if spec.timeout is not None:
            step = limited(step, spec.timeout)
        if spec.on_failure == "retry":
            step = retrying(step, attempts=spec.max_retries + 1, delay=spec.retry_delay)
        elif spec.on_failure == "continue":
            step = ContinueOnError(name, step, counts=is_loop(spec))
        return step

    def steps(self, specs: list[StepSpec], path: Path_, *, ordered: bool = True) -> dict[str, Step]:
        """Compile named steps; each may use the names of those that come before it."""
        made: dict[str, Step] = {}
        seen: dict[str, int] = {}
        order = running_order(specs) if ordered else list(range(len(specs)))
        names = {spec.name for spec in specs}
        here_on = self
        for i in order:
            spec = specs[i]
            here = (*path, i)
            if len(self.problems) >= _MOST:
                self.problem(here, f"no further step is looked at after {_MOST} problems")
                break
            if spec.name in seen:
                first = self.source.position((*path, seen[spec.name], "name"))[0]
                self.problem((*here, "name"), f"{spec.name!r} is already a step, on line {first}")
                continue
            seen[spec.name] = i
            self._later(names, spec, here)
            step = here_on.action(spec, spec.name, here)
            if step is not None and spec.if_ is not None:
                step = here_on.when(step, spec, here)
            if step is not None and "otherwise" in spec.model_fields_set:
                step = DefaultOutput(spec.name, step, spec.otherwise)
            if step is not None:
                if spec.accept:
                    step = here_on.accepting(step, spec, here)
                if spec.required and not step.required:
                    step = Required(spec.name, step)
                made[spec.name] = step
            if ordered:
                here_on = here_on.knowing([spec.name, *(["loop"] if holds_loops(spec) else [])])
        return {spec.name: made[spec.name] for spec in specs if spec.name in made}

    def accepting(self, step: Step, spec: StepSpec, here: Path_) -> Step:
        """Compile `accept:` around a step."""
        at = (*here, "accept")
        if isinstance(step, Leaf) and spec.kind != "python":
            self.problem(
                at, f"accept is for loops and what is made of them; {spec.kind} is none", key=True
            )
        required = spec.required or step.required
        made = self.attempt(at, lambda: acceptable("step", spec.accept, required=required))
        return step if made is None else Accepting(spec.name, step, made)

    def _later(self, names: set[str], spec: StepSpec, here: Path_) -> None:
        for i, need in enumerate(spec.needs):
            if need not in names and not self.gaps.names:
                hint = self._nearest(need, names - {spec.name})
                self.problem((*here, "needs", i), f"there is no step {need!r}{hint}")

    def when(self, step: Step, spec: StepSpec, here: Path_) -> Step:
        """Compile `if:` around a step."""
        text = (spec.if_ or "").strip()
        if text.startswith("{{") and text.endswith("}}"):
            text = text[2:-2].strip()
        found = self.attempt((*here, "if"), lambda: self.templates.expression(text))
        if found is None:
            return step
        self.names((*here, "if"), self.templates.names(found))
        return Conditional(spec.name, step, found, text)


def template_problem(source: Source, path: Path_, error: TemplateError) -> Problem:
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


def _unimported(value: Any) -> Any:
    raise AssertionError("a document loaded for checking is not run")


def _unimported_with_context(value: Any, ctx: Any) -> Any:
    _unimported(value)
