"""The translation of `workflow/v2.0` documents and their loops to native documents.

The result makes the same calls in the same order as the document describes, and can be printed. Where the
dialect's own documents disagree, the tests in tests/dialects/workflow_v2 decide.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ...conditions import CEILING
from ...documents.detect import V2_SCHEMA as SCHEMA
from ...documents.detect import CalledDocument
from ...documents.project import Project
from ...documents.schema.document import Action, Document
from ...documents.schema.fields import StrictModel
from ...documents.schema.validate import Gaps, Kind, placeholder, readable, validated
from ...documents.yaml.bounds import MAX_PROBLEMS
from ...documents.yaml.reader import Location, Source, translated
from ...errors import DocumentError, Problem, nearest
from ...records.codec import Json
from .fields import ExecutionSettings, LoopV2, NameTable, Place, StepV2, WorkflowV2, hint
from .steps import (
    CALL_TIMEOUT,
    DependencyCycle,
    Servers,
    StepTranslator,
    TranslatedStep,
    call_settings,
    in_order,
    written_order,
)

__all__ = [
    "WORKERS",
    "native_loop",
    "remarks",
    "translate",
]

WORKERS = 3  # the dialect's default for `parallel: true` without a number


def native_loop(
    translator: StepTranslator, spec: LoopV2, element: TranslatedStep, at: Location
) -> None:
    """Translate a loop to a native loop, or to a native step over a list."""
    element.places |= {("loop",): at, ("each",): at}
    for kind in ("loop", "each"):
        element.places[kind, "execute", "with"] = (*at, "with")
        element.places[kind, "execute", "workflow"] = (*at, "workflow")
    _check_mode(translator, spec, at)
    if spec.mode == "iterate":
        element.native["each"] = _each(translator, spec, element, at)
    else:
        element.native["loop"] = _refine(translator, spec, element, at)
    element.native |= {"otherwise": ""}
    if spec.required:
        element.native["required"] = True
    if spec.accept:
        element.native["accept"] = spec.accept
        element.places[("accept",)] = (*at, "accept")
    # With a success rate, the rate decides whether the step fails.
    if spec.on_failure == "continue" and not spec.min_success_rate:
        element.native["on_failure"] = "continue"


def _refine(
    translator: StepTranslator, spec: LoopV2, element: TranslatedStep, at: Location
) -> dict[str, Json]:
    until = translator.text(
        element, (*at, "until"), spec.until or "", Place(element.name, "until", "refine")
    )
    judge: dict[str, Json] = {"criterion": until, "style": "yes_no"}
    if spec.judge is not None:
        judge |= translator.model_field(spec.judge, [translator.execution], (*at, "judge"))
        judge |= call_settings(spec.judge)
    element.places["loop", "evaluate", "judge"] = (*at, "until")
    element.places["loop", "evaluate", "judge", "model"] = (*at, "judge", "provider")
    native: dict[str, Json] = {
        "execute": _child(translator, spec, element, at),
        "evaluate": {"judge": judge},
        "until": "passed",
        "max_iterations": spec.max_iterations,
        "keep": "last",  # this dialect has no scores, so there is no best iteration
        **_failure_settings(spec),
    }
    if spec.total_timeout is not None:
        native["guards"] = {"timeout": spec.total_timeout}
    return native


def _each(
    translator: StepTranslator, spec: LoopV2, element: TranslatedStep, at: Location
) -> dict[str, Json]:
    place = Place(element.name, "items", "iterate")
    items = translator.value(element, (*at, "items"), spec.items, place)
    element.places["each", "items"] = (*at, "items")
    native: dict[str, Json] = {
        "items": items,
        "execute": _child(translator, spec, element, at),
        "keep": "last",
        **_failure_settings(spec),
    }
    if spec.max_iterations is not None:
        native["max_items"] = spec.max_iterations
    if spec.parallel:
        native["at_once"] = spec.max_workers or WORKERS
    # In this dialect a list succeeds without a rate, also if items fail; natively all must succeed.
    native["min_success_rate"] = spec.min_success_rate or 0.0
    if spec.min_success_rate is not None:
        native["unmet"] = "failed"
    if spec.timeout_per_item is not None:
        native["item_timeout"] = spec.timeout_per_item
    if spec.total_timeout is not None:
        native["timeout"] = spec.total_timeout
    return native


def _child(
    translator: StepTranslator, spec: LoopV2, element: TranslatedStep, at: Location
) -> dict[str, Json]:
    """Return the call of a loop's workflow.

    Without `with` its input is the output of the last iteration, or the item.
    """
    place = Place(element.name, "with", spec.mode)
    value = translator.variables(element, (*at, "with"), spec.with_ or {}, place)
    native: dict[str, Json] = {"workflow": spec.workflow}
    if spec.mode == "iterate":
        item = "{{ loop.current }}"
        native["with"] = {**value, "item": item} if value else {"item": item, "input": item}
    elif value:
        native["with"] = value
    else:
        native["input"] = "{{ loop.output }}"
    if spec.mode == "refine" and spec.timeout_per_item is not None:
        native["timeout"] = spec.timeout_per_item
    return native


def _check_mode(translator: StepTranslator, spec: LoopV2, at: Location) -> None:
    """Report the fields that a loop's mode lacks, and note those without effect."""
    if spec.mode == "refine":
        _check_refine(translator, spec, at)
    else:
        if spec.items in (None, ""):
            translator.report(at, "needs 'items': a list, or text that contains one")
        if spec.until is not None:
            what = "a loop over items ends with the last item; until has no effect"
            translator.note((*at, "until"), what)
    if spec.max_workers is not None and not spec.parallel:
        translator.report((*at, "max_workers"), "max_workers needs parallel: true")


def _check_refine(translator: StepTranslator, spec: LoopV2, at: Location) -> None:
    until = spec.until or ""
    if not until.strip():
        translator.report(
            at, "needs 'until': the sentence that a model judges after each iteration"
        )
    if spec.items is not None:
        translator.report((*at, "items"), "items belong to mode: iterate")
    if spec.max_iterations is not None and spec.max_iterations > CEILING:
        what = f"{spec.max_iterations} is above the ceiling of {CEILING}"
        translator.report((*at, "max_iterations"), what)
    if spec.parallel:
        what = (
            "each iteration needs the output of the previous one, so they run one after the other"
        )
        translator.note((*at, "parallel"), what)
    if spec.min_success_rate is not None:
        translator.note((*at, "min_success_rate"), "this applies to mode: iterate only")
    if "{{" in until:
        what = "a condition that quotes the output reveals the answer to the judge"
        translator.note((*at, "until"), what)


def _failure_settings(spec: LoopV2) -> dict[str, Json]:
    """Return the failure handling of a loop; the default is to halt."""
    if spec.on_failure in (None, "halt", "fail"):
        return {}
    native: dict[str, Json] = {"on_failure": spec.on_failure}
    if spec.on_failure == "continue" and spec.mode != "iterate":
        native["max_failures"] = "none"  # it continues to max_iterations
    if spec.on_failure == "retry":
        if spec.max_retries is not None:
            native["max_retries"] = spec.max_retries
        if spec.retry_delay is not None:
            native["retry_delay"] = spec.retry_delay
    return native


def translate(source: Source, project: Project) -> tuple[Source, Document]:
    """Return a `workflow/v2.0` document as a native one, and a source that takes native paths.

    Raises:
        DocumentError: with every problem of the document.
    """
    project.notes += source.notes
    lenient = project.settings.lenient
    value = source.value
    # A fragment has no head, so the required keys are added.
    if lenient:
        value = {"$schema": SCHEMA, "name": "fragment", **value}
    if value.get("$schema") != SCHEMA:
        message = f"{value.get('$schema')!r} is not supported; use {SCHEMA}"
        raise DocumentError([source.problem(("$schema",), message)])
    spec, problems, gaps = readable(_KIND, value, source)
    if spec is None:
        raise DocumentError(problems)
    folders = list(dict.fromkeys([Path(source.file).resolve().parent, project.root]))
    translation = _Translation(
        spec,
        source,
        lenient=lenient,
        runs=project.execute,
        folders=folders,
        notes=project.notes,
        problems=problems,
        gaps=gaps,
    )
    native_source, document = translation.run()
    project.leave_out(source.file, translation.problems, translation.gaps)
    return native_source, document


def _stand_in(key: str, name: str, raw: Json) -> dict[str, Json]:
    """Return the stand-in of a step or loop that is left out, which defines the same names."""
    value = raw if isinstance(raw, Mapping) else {}
    loop = value if key == "loops" else value.get("loop")
    if not isinstance(loop, Mapping):
        return {"name": name, "run": "-"}
    result: dict[str, Json] = {"name": name, "workflow": "-", "max_iterations": 1}
    if loop.get("mode") in ("refine", "iterate"):
        result["mode"] = loop["mode"]
    if isinstance(loop.get("accumulate"), str):
        result["accumulate"] = loop["accumulate"]
    return result if key == "loops" else {"name": name, "loop": result}


_KIND = Kind(
    model=WorkflowV2,
    lists=frozenset({"steps", "loops"}),
    head={"$schema": SCHEMA, "name": "document"},
    stand_in=_stand_in,
    version="$schema",
    hint=hint,
)


@dataclass
class _Translation:
    """The translation of one document, with its problems and notes."""

    spec: WorkflowV2
    source: Source
    lenient: bool
    runs: bool
    folders: list[Path]
    notes: list[Problem]
    problems: list[Problem]
    gaps: Gaps
    taken: set[Location] = field(
        default_factory=set
    )  # places of steps with the name of another step

    def report(self, path: Location, message: str) -> None:
        self.problems.append(self.source.problem(path, message))
        if len(self.problems) == MAX_PROBLEMS:
            last = f"checking stops after {MAX_PROBLEMS} problems"
            raise DocumentError([*self.problems, Problem(self.source.file, 0, 0, "", last)])

    def note(self, path: Location, message: str) -> None:
        self.notes.append(self.source.problem(path, message, code="dialect_difference"))

    def run(self) -> tuple[Source, Document]:
        spec = self.spec
        if not spec.steps and not spec.loops:
            self.report((), "needs 'steps' or 'loops' with at least one item")
        names = self._names()
        self._skills(spec.execution, ("execution",))
        # A check may run on a machine without the file that defines the servers.
        missing = self.report if self.runs else self.note
        servers = Servers(self.folders, missing)
        inherited = servers.tools(spec.execution.servers, ("execution", "servers"))
        self.gaps = replace(self.gaps, head=self.gaps.head or bool(self.problems))
        translator = StepTranslator(
            self.source,
            names=names,
            execution=spec.execution,
            report=self.report,
            note=self.note,
            servers=servers,
            inherited=inherited,
            native_loop=native_loop,
        )
        elements = [self._element(translator, at, item) for at, item in self._items()]
        result = [e for e in elements if e is not None]
        order = self._ordered(result)
        self._resolve_exposed(order)
        for element in order:
            if element.at in self.gaps.steps:
                element.native = placeholder(element.name)
                element.places = {(): element.at}
        native, places = self._document(order, servers)
        native_source = translated(self.source, places)
        try:
            document: Document = validated(Document, native, native_source)
        except DocumentError as error:
            raise DocumentError(self.problems or error.problems) from None
        return native_source, document

    # Names.

    def _items(self) -> Iterator[tuple[Location, StepV2 | LoopV2]]:
        for key, index in written_order(self.source):
            items: Sequence[StepV2 | LoopV2] = getattr(self.spec, str(key)) or []
            yield (key, index), items[int(index)]

    def _names(self) -> NameTable:
        """Return the names for placeholders. A name that is used twice is a problem."""
        visited: dict[str, Location] = {}
        steps, loops, accumulated = set(), {}, {}
        for at, item in self._items():
            if item.name is None:
                self.report(at, "needs 'name'")
                self.gaps = replace(self.gaps, names=True)
                continue
            # The second step of a name is left out, so that later references stay unambiguous.
            if not self._unique(item.name, (*at, "name"), visited):
                self.taken.add(at)
            loop = item.loop if isinstance(item, StepV2) else item
            if loop is None:
                steps.add(item.name)
                continue
            loops[item.name] = loop.mode
            accumulated[f"{item.name}_accumulator"] = item.name
            if loop.accumulate is not None:
                inside = (*at, "loop") if isinstance(item, StepV2) else at
                if loop.accumulate not in accumulated:
                    self._unique(loop.accumulate, (*inside, "accumulate"), visited)
                accumulated[loop.accumulate] = item.name
        # A step or loop of this name wins over the implicit accumulator of a loop.
        for name in [name for name in accumulated if name in steps or name in loops]:
            del accumulated[name]
        env = frozenset(self.spec.env)
        lenient = self.lenient or self.gaps.names
        return NameTable(
            self.spec.name,
            steps=frozenset(steps),
            loops=loops,
            accumulated=accumulated,
            env=env,
            lenient=lenient,
        )

    def _unique(self, name: str, at: Location, visited: dict[str, Location]) -> bool:
        if name == "input":
            self.report(at, "'input' is the input of the workflow; choose another name")
        elif name in visited:
            line = self.source.position(visited[name])[0]
            self.report(at, f"{name!r} is already the name of a step or loop, on line {line}")
        return visited.setdefault(name, at) == at and name != "input"

    # Steps and loops.

    def _element(
        self, translator: StepTranslator, at: Location, item: StepV2 | LoopV2
    ) -> TranslatedStep | None:
        if item.name is None or at in self.taken:
            return None
        loops = isinstance(item, LoopV2) or item.loop is not None
        left_out = TranslatedStep(item.name, at, loops=loops)
        if at in self.gaps.steps:
            return left_out
        # A step with a problem is replaced by its stand-in, so that problems in later steps are reported too.
        before = len(self.problems)
        if isinstance(item, LoopV2):
            result = translator.loop(item, at)
        else:
            self._skills(item, at)
            result = translator.step(item, at)
        if len(self.problems) == before:
            return result
        self.gaps = replace(self.gaps, steps=self.gaps.steps | {at})
        return result or left_out

    def _skills(self, spec: ExecutionSettings | StepV2, at: Location) -> None:
        """Report skills, which would run the code of others."""
        if spec.skills:
            self.report(
                (*at, "skills"), "skills are not supported: Loopwright does not run their code"
            )

    def _ordered(self, elements: list[TranslatedStep]) -> list[TranslatedStep]:
        try:
            return in_order(elements)
        except DependencyCycle as circle:
            at = next(e.at for e in elements if e.name == circle.names[0])
            self.report(at, str(circle))
            for element in elements:
                element.needs = {}
            # In a cycle no order defines all names before their use.
            self.gaps = replace(self.gaps, names=True)
            return elements

    def _resolve_exposed(self, order: list[TranslatedStep]) -> None:
        """Resolve each mention of the loop that ended last, and expose the steps of called workflows."""
        loops = {element.name: element for element in order if element.loops}
        before = ""
        for element in order:
            if element.uses_last and before:
                element.needs[before] = None
            for (loop, step), at in element.exposed.items():
                result = loops.get(loop or before)
                if result is None:
                    self.report(at, f"{{{{loop.last.{step}}}}}: no loop ends before this step")
                    continue
                call = result.native.get("loop", {}).get("execute", {})
                exposed = call.setdefault("expose", [])
                if step not in exposed:
                    result.places["loop", "execute", "expose", len(exposed)] = at
                    exposed.append(step)
            before = element.name if element.loops else before

    # The document.

    def _document(
        self, order: list[TranslatedStep], servers: Servers
    ) -> tuple[dict[str, Json], dict[Location, Location]]:
        spec = self.spec
        native: dict[str, Json] = {"schema": "loopwright/1", "name": spec.name}
        for name in ("description", "version"):
            if getattr(spec, name):
                native[name] = getattr(spec, name)
        native["input"] = ""  # in this dialect a missing input is empty text
        if spec.env:
            native["env"] = spec.env
        native |= self._execution()
        if servers.native:
            native["servers"] = servers.native
        places: dict[Location, Location] = {
            ("model",): ("execution", "provider"), ("models",): ("execution", "providers"),
            **{(n,): ("execution", n) for n in ("temperature", "max_tokens", "at_once")},
        }  # fmt: skip
        native["steps"] = []
        rank = {element.name: i for i, element in enumerate(order)}
        for i, element in enumerate(order):
            needs = sorted((n for n in element.needs if n in rank), key=lambda name: rank[name])
            # In the usual order of fields.
            own = element.native
            first = {"name": own["name"], **({"needs": needs} if needs else {})}
            condition = {"if": own["if"]} if "if" in own else {}
            native["steps"].append({**first, **condition, **own})
            places |= {("steps", i, *inner): at for inner, at in element.places.items()}
        output = self._output(order)
        if order and output != order[-1].name and output in rank:
            native["output"] = output
        return native, places

    def _execution(self) -> dict[str, Json]:
        execution = self.spec.execution
        native: dict[str, Json] = {}
        if execution.providers:
            native["models"] = [f"{t.provider}:{t.model}" for t in execution.providers]
        elif execution.provider and execution.model:
            native["model"] = f"{execution.provider}:{execution.model}"
        elif execution.provider or execution.model:
            value, missing = ("provider", "model") if execution.provider else ("model", "provider")
            self.report(("execution", value), f"{value} is set without {missing}; set both")
            self.gaps = replace(self.gaps, head=True)
        native |= call_settings(execution)
        if native and "answer_timeout" not in native:
            native["call_timeout"] = CALL_TIMEOUT
        if execution.parallel:
            native["at_once"] = execution.max_workers or WORKERS
        elif execution.max_workers is not None:
            self.report(("execution", "max_workers"), "max_workers needs parallel: true")
        if execution.on_error == "complete_running" and execution.parallel:
            what = "steps that run when another one fails are cancelled, as with cancel_all"
            self.note(("execution", "on_error"), what)
        return native

    def _output(self, order: list[TranslatedStep]) -> str:
        """Return the step whose output is the document's: the last listed step, or a loop at the end."""
        expected = self.spec.output
        names = [element.name for element in order]
        if expected is not None:
            if expected not in names:
                what = f"there is no step or loop {expected!r}{nearest(expected, names)}"
                self.report(("output",), what)
            return expected
        steps = [element for element in order if element.at[0] == "steps"]
        if not order or order[-1].loops or not steps:
            return names[-1] if names else ""
        return max(steps, key=lambda element: int(element.at[1])).name


def remarks(document: Document, source: Source, called: CalledDocument) -> Iterator[Problem]:
    """Note loops that pass on the output of the last of several steps.

    That step is often a review, whose output is not the work.
    """
    for at, spec in _actions(document, ()):
        child = called(spec.workflow) if at[-1:] == ("execute",) and spec.workflow else None
        if child is None:
            continue
        output = child.output or child.steps[-1].name
        others = [step.name for step in child.steps if step.name != output]
        for key, text in (spec.with_ or {}).items() if others else ():
            if isinstance(text, str) and "{{ loop.output }}" in text:
                message = (
                    f"this is the output of {output!r}, the last step of {spec.workflow}; "
                    f"use {{{{loop.last.{others[-1]}}}}} for the output of {others[-1]!r}"
                )
                yield source.problem((*at, "with", key), message, code="dialect_difference")


def _actions(value: object, at: Location) -> Iterator[tuple[Location, Action]]:
    """Iterate over the actions of a document, each with its place."""
    if isinstance(value, StrictModel):
        if isinstance(value, Action):
            yield at, value
        for name, field in type(value).model_fields.items():
            if name in value.model_fields_set:
                yield from _actions(getattr(value, name), (*at, field.alias or name))
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from _actions(item, (*at, i))
