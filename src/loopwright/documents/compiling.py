"""A native document to the objects that Python users write: workflow and steps.

Nothing runs here and no token is paid for: names, needs, circles, templates, functions, conditions and bounds are
checked, and everything wrong is reported at once, each with its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ..composites import fallback, limited, retrying
from ..errors import ConfigurationError, Problem, listed, nearest
from ..nodes import node_expression, node_fill
from ..step import FunctionStep
from ..templates import TemplateError, compile_expression
from ..variables import FIXED, OF_ITEMS, OF_LOOPS, OF_ROUNDS, Filled, fill, needed
from . import functions
from .agents import compile_phased, compile_reasoning
from .commands import compile_command
from .consensus import compile_consensus
from .each import compile_each
from .grouping import compile_memory, compile_parallel, compile_steps
from .loops import compile_loop
from .native import Action, Document, StepSpec
from .ordering import holds_loops, needs_of, running_order
from .prompting import compile_prompt
from .source import Source
from .steps import (
    Called,
    DocumentWorkflow,
    Otherwise,
    Required,
    SetStep,
    Tolerant,
    When,
    prepared,
)  # fmt: skip
from .tooling import compile_tool_step, compile_tools
from .workflow_v2_lints import note_last_output

if TYPE_CHECKING:
    from .loading import Project

__all__ = ["Compiler", "compile_document"]

Path_ = tuple[str | int, ...]
_T = TypeVar("_T")
_COMPARED = 1_000  # names that are compared in all, to find the nearest: that takes time
_MOST = 100  # problems after which no further step is looked at


@dataclass(frozen=True)
class Compiler:
    """The compilation of one document: where it is, what it may name, and what was found wrong.

    `known` are the names that templates may use; `execute` imports functions, without it they are only looked up;
    `lenient` reads templates as loop nodes do. `tools` are those of the document and its servers, `declared` their names.
    """

    source: Source
    folder: Path
    project: Project
    known: frozenset[str] = frozenset()
    problems: list[Problem] = field(default_factory=list)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    lenient: bool = False
    used: list[tuple[Path_, frozenset[str]]] = field(default_factory=list)
    tools: dict[str, Any] = field(default_factory=dict)
    declared: frozenset[str] = frozenset()

    def problem(self, path: Path_, message: str, *, key: bool = False) -> None:
        """Report something wrong at a place."""
        self.problems.append(self.source.problem(path, message, key=key))

    def knowing(self, names: Iterable[str]) -> Compiler:
        """Return the compilation of a part that may use more names."""
        return replace(self, known=self.known | frozenset(names))

    def attempt(self, path: Path_, make: Callable[[], _T]) -> _T | None:
        """Return what `make` makes, or report why it cannot."""
        try:
            return make()
        except (ConfigurationError, TemplateError) as error:
            self.problem(path, str(error))
            return None

    def filled(self, path: Path_, value: Any) -> Filled:
        """Compile a value with templates; unknown names are problems."""
        try:
            found = node_fill(value) if self.lenient else fill(value)
        except TemplateError as error:
            self.problem(path, str(error))
            return Filled(value, lambda _: value, frozenset())
        self.names(path, found.names)
        return found

    def names(self, path: Path_, names: Iterable[str]) -> None:
        """Report names that no step, variable or input supplies."""
        found = frozenset(names)
        self.used.append((path, found))
        unknown = [name for name in found if name not in self.known and name not in FIXED]
        for given in sorted(unknown):
            if given.startswith(("steps.", "loops.")):
                continue  # of those, one that has no value yet is empty
            name = given.removeprefix("given.")
            if name not in self.known and name not in FIXED:
                self.problem(path, f"template: nothing supplies {name!r}{self._instead(name)}")

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
        return hint or listed(name, ["input", *own], more="steps and variables")

    def _nearest(self, name: str, names: Iterable[str]) -> str:
        """Return what a name could have been; of many wrong names, only the first are looked at."""
        known = list(names)
        return nearest(name, known) if len(self.problems) * len(known) < _COMPARED else ""

    def function(self, path: Path_, reference: str) -> Any:
        """Return the function that a reference names, or None with a problem."""

        def find() -> Any:
            functions.looked_up(reference, self.folder)
            if self.project.execute:
                return functions.function(reference, self.folder)
            return _unimported

        return self.attempt(path, find)

    # Steps.

    def action(self, spec: Action, name: str, path: Path_) -> Any:
        """Compile what a step does, with its limits and its way to fail."""
        make = getattr(self, f"_{spec.kind}")
        step = make(spec, name, (*path, spec.kind), path)
        if step is None:
            return None
        if "input" in spec.model_fields_set:
            step = prepared(step, self.filled((*path, "input"), spec.input))
        if spec.timeout is not None:
            step = limited(step, spec.timeout)
        if spec.on_failure == "retry":
            step = retrying(step, attempts=spec.max_retries + 1, delay=spec.retry_delay)
        elif spec.on_failure == "continue":
            step = Tolerant(name, step)
        return step

    def _python(self, spec: Action, name: str, path: Path_, _: Path_) -> Any:
        assert spec.python is not None
        found = self.function(path, spec.python)
        if found is None or hasattr(found, "effect"):
            return found
        idempotent = True if spec.idempotent is None else spec.idempotent
        return self.attempt(path, lambda: FunctionStep(found, name=name, idempotent=idempotent))

    def _shell(self, spec: Action, name: str, path: Path_, at: Path_) -> Any:
        return compile_command(self, spec, name, path, at)

    def _workflow(self, spec: Action, name: str, path: Path_, at: Path_) -> Any:
        assert spec.workflow is not None
        given = self.filled((*at, "with"), spec.with_ or {})
        around = {known for known in self.known if known.partition(".")[0] == "loop"}
        child = self.project.child(
            self, spec.workflow, path, frozenset({*(spec.with_ or {}), *around})
        )
        if child is None:
            return None
        for i, step in enumerate(spec.expose):
            if step not in child.steps:
                what = f"{spec.workflow} has no step {step!r}{nearest(step, child.steps)}"
                self.problem((*at, "expose", i), what)
        note_last_output(self, spec, child, at)
        return Called(name, child, given, tuple(spec.expose))

    def _loop(self, spec: Action, name: str, path: Path_, _: Path_) -> Any:
        assert spec.loop is not None
        return compile_loop(self, spec.loop, name, path)

    def _each(self, spec: Action, name: str, path: Path_, _: Path_) -> Any:
        assert spec.each is not None
        return compile_each(self, spec.each, name, path)

    def _consensus(self, spec: Action, name: str, path: Path_, _: Path_) -> Any:
        assert spec.consensus is not None
        return compile_consensus(self, spec.consensus, name, path)

    def _steps(self, spec: Action, name: str, path: Path_, at: Path_) -> Any:
        return compile_steps(self, spec, name, path, at)

    def _parallel(self, spec: Action, name: str, path: Path_, at: Path_) -> Any:
        return compile_parallel(self, spec, name, path, at)

    def _fallback(self, spec: Action, name: str, path: Path_, _: Path_) -> Any:
        made = self.steps(spec.fallback or [], path, ordered=False)
        return fallback(*made.values(), name=name) if made else None

    def _prompt(self, spec: Action, name: str, path: Path_, at: Path_) -> Any:
        return compile_prompt(self, spec, name, at)

    def _tool(self, spec: Action, name: str, path: Path_, at: Path_) -> Any:
        return compile_tool_step(self, spec, name, path, at)

    def _phased(self, spec: Action, name: str, path: Path_, _: Path_) -> Any:
        assert spec.phased is not None
        return compile_phased(self, spec.phased, name, path)

    def _reasoning(self, spec: Action, name: str, path: Path_, _: Path_) -> Any:
        assert spec.reasoning is not None
        return compile_reasoning(self, spec.reasoning, name, path)

    def _memory(self, spec: Action, name: str, path: Path_, _: Path_) -> Any:
        return compile_memory(self, spec, name, path)

    def _set(self, spec: Action, name: str, path: Path_, _: Path_) -> Any:
        return SetStep(name, self.filled(path, spec.set))

    def steps(self, specs: list[StepSpec], path: Path_, *, ordered: bool = True) -> dict[str, Any]:
        """Compile named steps; each may use the names of those that come before it."""
        made: dict[str, Any] = {}
        seen: dict[str, int] = {}
        order = running_order(specs) if ordered else list(range(len(specs)))
        names = {spec.name for spec in specs}
        compiler = self
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
            step = compiler.action(spec, spec.name, here)
            if step is not None and spec.if_ is not None:
                step = compiler.when(step, spec, here)
            if step is not None and "otherwise" in spec.model_fields_set:
                step = Otherwise(spec.name, step, spec.otherwise)
            if step is not None:
                if spec.required and not step.required:
                    step = Required(spec.name, step)
                made[spec.name] = step
            if ordered:
                compiler = compiler.knowing([spec.name, *(["loop"] if holds_loops(spec) else [])])
        return {spec.name: made[spec.name] for spec in specs if spec.name in made}

    def _later(self, names: set[str], spec: StepSpec, here: Path_) -> None:
        for i, need in enumerate(spec.needs):
            if need not in names:
                hint = self._nearest(need, names - {spec.name})
                self.problem((*here, "needs", i), f"there is no step {need!r}{hint}")

    def when(self, step: Any, spec: StepSpec, here: Path_) -> Any:
        """Compile `if:` around a step."""
        text = (spec.if_ or "").strip()
        if text.startswith("{{") and text.endswith("}}"):
            text = text[2:-2].strip()
        if self.lenient:
            lenient = self.attempt((*here, "if"), lambda: node_expression(text))
            return step if lenient is None else When(spec.name, step, lenient, text)
        found = self.attempt((*here, "if"), lambda: compile_expression(text))
        if found is None:
            return step
        self.names((*here, "if"), needed(found))
        return When(spec.name, step, found, text)


def _unimported(value: Any) -> Any:
    raise AssertionError("a document loaded for checking is not run")


def compile_document(
    document: Document, compiler: Compiler, given: frozenset[str]
) -> DocumentWorkflow | None:
    """Compile a document for a caller that supplies the names in `given`; None if problems were found."""
    declared = frozenset({*document.tools, *document.servers})
    tools = compile_tools(document, compiler)
    inner = replace(compiler.knowing(given), tools=tools, declared=declared)
    made = inner.steps(document.steps, ("steps",))
    names = {spec.name for spec in document.steps}
    if document.output is not None and document.output not in names:
        compiler.problem(
            ("output",), f"there is no step {document.output!r}{nearest(document.output, names)}"
        )
    if compiler.problems or not made:
        return None
    return compiler.attempt(
        ("steps",),
        lambda: DocumentWorkflow(
            document.name,
            made,
            env=document.env,
            needs=needs_of(document, inner.used),
            at_once=document.at_once,
            output=document.output or "",
        ),
    )
