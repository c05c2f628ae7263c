"""The compilation of one document: the names it can use, its problems and its steps.

The kinds of steps come in as a table of texts, `kinds`, and a kind is loaded with the first step of it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from ...engine.composites import retry, with_timeout
from ...engine.context import Context
from ...engine.functions import ANNOTATION_UNREADABLE
from ...engine.step import Leaf, Step, acceptable
from ...errors import ConfigurationError, DocumentError, Problem, TemplateError, listed, nearest
from ...records.codec import Json
from ...templates.variables import (
    FIXED,
    OF_ITEMS,
    OF_ITERATIONS,
    OF_LOOPS,
    OF_ROUNDS,
    SIGNAL_URL,
    TemplatedValue,
    expression,
    fill,
)
from ..project import Project, Sent
from ..schema.document import Action, StepSpec
from ..schema.traverse import holds_loops, is_loop, running_order
from ..schema.validate import NOTHING_LEFT_OUT, Gaps
from ..steps import (
    Accepting,
    Conditional,
    ContinueOnError,
    DefaultOutput,
    DocumentWorkflow,
    Required,
    prepared,
)
from ..yaml.reader import Location, Source
from .functions import (
    Function,
    function,
    resolve_reference,
    undefined_annotation,
    unreadable_annotation,
)

if TYPE_CHECKING:
    from ...tools.base import Tool
    from ...tools.mcp import McpServer

__all__ = [
    "COMPILER",
    "NATIVE",
    "Compilation",
    "CompileCall",
    "CompileKind",
    "Location",
    "TemplateLanguage",
    "extension",
    "named",
]


@dataclass(frozen=True, slots=True)
class TemplateLanguage:
    """A template language: `fill` compiles a value, `expression` a condition."""

    fill: Callable[[Json], TemplatedValue]
    expression: Callable[[str], TemplatedValue]


NATIVE = TemplateLanguage(fill, expression)

COMPILER = "loopwright.documents.compiler"
# What gives keys and words of a document the meaning that another dialect knows. As text, so that a document without
# them loads no dialect.
_EXTENSIONS: Mapping[str, str] = MappingProxyType(
    {
        "loop_node": "loopwright.dialects.orka.compile:LANGUAGE",
        "node": "loopwright.dialects.orka.compile:compile_node",
        "criteria": "loopwright.dialects.orka.compile:compile_criteria",
        "steps": "loopwright.dialects.orka.loop_node:AgentGroup",
        "parallel": "loopwright.dialects.orka.loop_node:AgentsAtOnce",
        "output": "loopwright.dialects.orka.loop_node:ungrouped",
        "read": "loopwright.dialects.orka.loop_node:MemoryRead",
        "write": "loopwright.dialects.orka.loop_node:MemoryWrite",
        "consensus": "loopwright.dialects.workflow_v2.compile:compile_consensus",
        "yes_no": "loopwright.dialects.workflow_v2.compile:YesNo",
        "termination": "loopwright.dialects.controller:compile_termination",
        "type": "loopwright.dialects.controller:controller_condition",
    }
)


def extension(key: str) -> Any:
    """Return what another dialect has for a key or a word of native documents, loaded at first use."""
    return named(_EXTENSIONS[key])


def named(reference: str) -> Any:
    """Return what a text `module:name` stands for; its module is loaded at first use."""
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)


_Result = TypeVar("_Result")
MAX_COMPARISONS = (
    1_000  # comparisons of names to find the nearest, because each takes quadratic time
)
LONGEST_NAME = 255  # bytes
_TAG = re.compile(r"\{[{%#]")
MAX_PROBLEMS = 100  # compilation stops here: a broken document of 1 MiB could have 100,000 problems


# Compiles a step of one kind: its action, its name and its place; None if it has problems.
CompileKind = Callable[["Compilation", Action, str, Location], Step | None]
# Compiles the document that a step calls, for the names that the step supplies; None if it has problems.
CompileCall = Callable[["Compilation", str, Location, frozenset[str]], DocumentWorkflow | None]


@dataclass(frozen=True)
class Compilation:
    """The compilation of one document.

    `defined` holds the names that templates can use, `used` the names that they need, by place, and `optional` those
    with a default. `kinds` name what compiles the kinds of steps, `call` compiles the document that a step calls.
    `tools` are the tools and servers by name, `declared` also has the names of those with problems.
    `gaps` are the parts that were left out for their problems. `in_workspace` is whether a workspace surrounds the
    part, `inputs` are the names of the declared inputs. `refine_from` is the rule that a recorded document has at a
    workspace around.
    """

    source: Source
    folder: Path
    project: Project
    kinds: Mapping[str, str]
    call: CompileCall
    defined: frozenset[str] = frozenset()
    problems: list[Problem] = field(default_factory=list)
    defaults: Mapping[str, Json] = field(default_factory=dict)
    templates: TemplateLanguage = NATIVE
    used: list[tuple[Location, frozenset[str]]] = field(default_factory=list)
    optional: set[str] = field(default_factory=set)
    tools: dict[str, Tool | McpServer | None] = field(default_factory=dict)
    declared: frozenset[str] = frozenset()
    gaps: Gaps = NOTHING_LEFT_OUT
    in_workspace: bool = False
    inputs: frozenset[str] = frozenset()
    refine_from: str | None = None

    def problem(
        self, path: Location, message: str, *, key: bool = False, own: bool = False
    ) -> None:
        """Add a problem at a place; `own` if it does not depend on the fields beside that place."""
        # A field that was left out could have made the rest valid.
        if not own and self.gaps.explains(path):
            return
        self.problems.append(self.source.problem(path, message, key=key))

    def need(self, path: Location, missing: Callable[[], str]) -> None:
        """Record what says that a program, a file or a folder is missing on this machine."""
        self.project.needs.append((self.source.problem(path, ""), missing))

    def need_folder(self, path: Location, folder: Path) -> None:
        """Record that steps need a folder."""
        self.need(path, lambda: "" if folder.is_dir() else f"there is no folder {str(folder)!r}")

    def with_names(self, names: Iterable[str]) -> Compilation:
        """Return the compilation of a part that can use more names."""
        return replace(self, defined=self.defined | frozenset(names))

    def attempt(
        self, path: Location, make: Callable[[], _Result], *, own: bool = False
    ) -> _Result | None:
        """Return the result of `make`; None, with a problem, if it raises a ConfigurationError."""
        try:
            return make()
        except TemplateError as error:
            self.template_problem(path, error)
        except ConfigurationError as error:
            self.problem((*path, error.option) if error.option else path, str(error), own=own)
        return None

    def template(self, path: Location, value: Json) -> TemplatedValue:
        """Compile a value with templates; undefined names are problems."""
        try:
            result = self.templates.fill(value)
        except TemplateError as error:
            self._unreadable(path, value, error)
            return TemplatedValue(value, lambda _: value, frozenset())
        self.names(path, result.names, result.optional)
        return result

    def _unreadable(self, path: Location, value: Json, error: TemplateError) -> None:
        """Add a problem for each text in a value that is not a valid template."""
        if not isinstance(value, Mapping | list):
            self.template_problem(path, error)
            return
        for key, inner in value.items() if isinstance(value, Mapping) else enumerate(value):
            try:
                result = self.templates.fill(inner)
            except TemplateError as inside:
                self._unreadable((*path, key), inner, inside)
            else:
                self.names((*path, key), result.names, result.optional)

    def template_problem(self, path: Location, error: TemplateError) -> None:
        """Add the problem of an invalid template, at its line and column in the file."""
        self.problems.append(template_problem(self.source, path, error))

    def names(
        self, path: Location, names: Iterable[str], optional: frozenset[str] = frozenset()
    ) -> None:
        """Add a problem for each name that no step, variable or input defines; an optional one may be absent."""
        result = frozenset(names)
        self.used.append((path, result))
        self.optional.update(optional)
        if SIGNAL_URL in result:
            from ...journal.signal_urls import PUBLIC_URL  # for the few documents with addresses

            if not os.environ.get(PUBLIC_URL):
                what = f"signal_url() fails without {PUBLIC_URL}, the address at which others reach `loopwright ui --signals PORT`"
                self.project.notes.append(self.source.problem(path, what, code="no_public_url"))
        # A step that was left out without a readable name may define any of the names.
        if self.gaps.names:
            return
        # A loop may define these by a key that was left out.
        known = FIXED | {"memory", "strategy"} if self.gaps.fields else FIXED
        if self.project.recorded:
            known |= {"loop.restarts"}
        unknown = [name for name in result if name not in self.defined and name not in known]
        for value in sorted(unknown):
            # `steps.x` is empty for a step that has not run, so it may name a later step.
            if value.startswith(("steps.", "loops.")):
                continue
            of_input, _, field = value.partition(".")
            # The members of an input that is not declared are not known.
            if of_input == "input" and (not self.inputs or field in self.inputs):
                continue
            name = value.removeprefix("given.")
            if name not in self.defined and name not in known:
                message = f"template: {name!r} is not defined{self._suggestion(name)}"
                self.problems.append(self.source.problem_at_word(path, message, name))

    def _suggestion(self, name: str) -> str:
        """Return the nearest name, or all names, for a message."""
        if name.startswith(("loop.last.", "loop.best.")):
            fields = sorted(OF_ITERATIONS)
            return (
                nearest(name.rpartition(".")[2], fields) or f"; its fields are {', '.join(fields)}"
            )
        if name == "loop.restarts":
            return "; it is loop.chain now, which is 1 before the first stall"
        field = name.removeprefix("loop.")
        if field != name and field not in OF_ITEMS:
            if field in OF_ROUNDS:
                return f"; did you mean 'loop.last.{field}'?"
            over_list = OF_ITEMS if "loop.current" in self.defined else ()
            fields = [f"loop.{field}" for field in sorted({*OF_LOOPS, *over_list})]
            return nearest(name, fields) or f"; the fields are {', '.join(fields)}"
        if name.partition(".")[0] == "loop":
            return "; no loop contains this step or ends before it"
        if name in self.inputs:
            return f"; did you mean 'input.{name}'?"
        if name.startswith("input."):
            inputs = sorted(f"input.{one}" for one in self.inputs)
            return self._nearest(name, inputs) or listed(name, inputs, lead="its inputs are")
        own = sorted(name for name in self.defined if not name.startswith("loop."))
        hint = self._nearest(name, [*own, "input", "value", "env"])
        if hint:
            return hint
        message = listed(name, ["input", *own], more="steps and variables")
        # --set reaches the first document only, and its names have no dots.
        alone = len(self.project.open) <= 1 and "." not in name
        return f"{message}; to set it, use --set {name}=…" if alone else message

    def _nearest(self, name: str, names: Iterable[str]) -> str:
        """Return the nearest name for a message; only the first of many undefined names are compared."""
        defined = list(names)
        return nearest(name, defined) if len(self.problems) * len(defined) < MAX_COMPARISONS else ""

    def function(self, path: Location, reference: str) -> Function | None:
        """Return the function, class or step that a reference names; None if it has problems."""
        agreed = self.project.agreed(reference)

        def find() -> Function:
            # An approved function was checked before its approval, and its file may have changed since.
            takes_context = agreed is None and resolve_reference(reference, self.folder)
            if self.project.execute:
                result = function(reference, self.folder, agreed)
                self._note_annotation(path, unreadable_annotation(result))
                return result
            if agreed is None:
                self._note_annotation(path, undefined_annotation(reference, self.folder))
            return _unimported_with_context if takes_context else _unimported

        return self.attempt(path, find, own=True)

    def _note_annotation(self, path: Location, sentence: str) -> None:
        """Note an annotation of a function that cannot be read."""
        if sentence:
            note = self.source.problem(path, sentence, code=ANNOTATION_UNREADABLE)
            self.project.notes.append(note)

    def inside(self, name: str, path: Location, folder: Path | None = None) -> str:
        """Return the absolute path of a path in the document's folder; a path outside the root is a problem."""
        folder = folder or self.folder
        result = Path(os.path.realpath(folder / name))
        if not result.is_relative_to(os.path.realpath(self.project.root_of(folder))):
            self.problem(path, f"{name!r} is outside the project folder", own=True)
        return str(result)

    def sent(self, name: str, path: Location, written: str = "") -> Path:
        """Record that steps read a file, and return its real path; of a template, the folder that the file must be in.

        A path outside the root is a problem. `written` is the text in the document. Default: the name.
        """
        # Only what precedes the first placeholder is known now. The file is checked again before it is read.
        tag = _TAG.search(name)
        fixed = name if tag is None else name[: name.rfind("/", 0, tag.start()) + 1]
        place = Path(os.path.realpath(self.folder / fixed))
        if any(len(os.fsencode(part)) > LONGEST_NAME for part in place.parts):
            # The system raises for such a name where it says no for a missing file.
            self.problem(path, f"the name of a file has at most {LONGEST_NAME} bytes", own=True)
            return Path(self.folder)
        if not place.is_relative_to(os.path.realpath(self.project.root_of(self.folder))):
            self.problem(path, f"{written or repr(name)} is outside the project folder", own=True)
        self.project.sent.append(Sent(written or name, place, folder=tag is not None))
        return place

    def json_file(self, name: str, path: Location) -> dict[str, Json] | None:
        """Return the JSON object in a file of the project; None if it has problems.

        Its contents are kept with the documents, so that a run continues when the file is gone.
        """
        before = len(self.problems)
        file = Path(self.inside(name, path))
        if len(self.problems) > before:
            return None
        try:
            raw = self.project.contents.get(file)
            raw = self.project.content(file) if raw is None else raw
            value = json.loads(raw)
        except DocumentError as error:
            self.problem(path, f"{name}: {error.problems[0].message}")
            return None
        except ValueError as error:
            self.problem(path, f"{name} is not JSON: {error}")
            return None
        if not isinstance(value, dict):
            self.problem(path, f"{name} is not a JSON object")
            return None
        self.project.contents[file] = raw
        return value

    def action(self, spec: Action, name: str, path: Location) -> Step | None:
        """Compile an action with its input, its time limit and its failure handling."""
        of_native = self.kinds.get(spec.kind)
        compile_kind: CompileKind = named(of_native) if of_native else extension(spec.kind)
        step = compile_kind(self, spec, name, path)
        if step is None:
            return None
        # An explicit `input: null` is an input; a missing key is the output of the step before.
        if "input" in spec.model_fields_set:
            step = prepared(step, self.template((*path, "input"), spec.input))
        # The order is the documented one: the time limit holds for each attempt, not for all retries.
        if spec.timeout is not None:
            step = with_timeout(step, spec.timeout)
        if spec.on_failure == "retry":
            step = retry(step, attempts=spec.max_retries + 1, delay=spec.retry_delay)
        elif spec.on_failure == "continue":
            step = ContinueOnError(name, step, counts=is_loop(spec))
        return step

    def steps(
        self, specs: list[StepSpec], path: Location, *, ordered: bool = True
    ) -> dict[str, Json]:
        """Compile named steps; each can use the names of the steps before it."""
        result: dict[str, Step] = {}
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
                self.problem(
                    (*place, "name"),
                    f"{spec.name!r} is already the name of the step on line {first}",
                    own=True,
                )
            visited.setdefault(spec.name, i)
            for n, need in enumerate(spec.needs):
                if need not in names and not self.gaps.names:
                    hint = self._nearest(need, names - {spec.name})
                    message = f"there is no step {need!r}{hint}"
                    self.problem((*place, "needs", n), message, own=True)
            step = here_on.action(spec, spec.name, place)
            # From the inside out: a skipped step gets the default output, and its status can be accepted.
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
            # Concurrent steps cannot see each other's outputs.
            if ordered:
                loop = holds_loops(spec) or any(f[: len(place)] == place for f in self.gaps.fields)
                here_on = here_on.with_names([spec.name, *(["loop"] if loop else [])])
        # In document order, which decides the order of outputs; the running order comes from `needs`.
        return {spec.name: result[spec.name] for spec in specs if spec.name in result}

    def accepting(self, step: Step, spec: StepSpec, here: Location) -> Step:
        """Compile `accept:` around a step."""
        at = (*here, "accept")
        if isinstance(step, Leaf) and spec.kind != "python":
            self.problem(
                at,
                f"accept applies to loops and to steps that contain loops, not to {spec.kind}",
                key=True,
            )
        required = spec.required or step.required
        result = self.attempt(at, lambda: acceptable("step", spec.accept, required=required))
        return step if result is None else Accepting(spec.name, step, result)

    def when(self, step: Step, spec: StepSpec, here: Location) -> Step:
        """Compile `if:` around a step."""
        text = (spec.if_ or "").strip()
        # Many authors write the expression as a template.
        if text.startswith("{{") and text.endswith("}}"):
            text = text[2:-2].strip()
        result = self.attempt((*here, "if"), lambda: self.templates.expression(text))
        if result is None:
            return step
        self.names((*here, "if"), result.names, result.optional)
        return Conditional(spec.name, step, result, text)


def template_problem(source: Source, path: Location, error: TemplateError) -> Problem:
    """Return the problem of a template at its place in the file, or else at its text."""
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
    raise AssertionError("a document that was loaded for a check does not run")


def _unimported_with_context(value: Json, ctx: Context) -> Json:
    _unimported(value)
