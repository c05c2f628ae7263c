"""The fields of `workflow/v2.0` as in its own project, and its placeholders as expressions of native templates.

Text fields keep their text in the document: `version: 1.0` is "1.0" and `FLAG: yes` is "yes". Additional
fields are `output` of a document, and `needs`, `judge`, `required` and `accept` of a loop.

1. A placeholder has a flat name: `{{loop.last.output}}`. A name that is not a step, loop or constant of the
   document is a variable of the caller. The compiler reports it if it is undefined.
2. All other text is literal. Text that a native template would interpret is quoted.
3. The dependencies of each name are recorded: the step or loop that must run before, and the step of a
   called workflow that must be exposed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from ...documents.schema.fields import Accepted, Identifier, Names, Part, Pause, Seconds
from ...errors import listed, nearest
from ...records.codec import Json

__all__ = [
    "KINDS",
    "ConsensusV2",
    "ExecutionSettings",
    "InvalidPlaceholder",
    "LoopV2",
    "ModelCallV2",
    "NameTable",
    "Place",
    "Rewriter",
    "StepV2",
    "WorkflowV2",
    "hint",
    "placeholders",
    "quoted",
]


def placeholders(text: str) -> list[tuple[str, int]]:
    """Return the name of each placeholder and the offset of its braces, in order, in linear time."""
    result, at = [], 0
    while (start := text.find("{{", at)) >= 0 and (close := text.find("}", start + 2)) >= 0:
        # A placeholder cannot contain a single brace, so the search continues behind it.
        at = close + 1
        if close > start + 2 and text.startswith("}}", close):
            result.append((text[start + 2 : close].strip(), start))
            at = close + 2
    return result


JOINED = '.outputs | join("\\n---\\n")'
FIELDS = ("iterations", "exit_reason", "output", "history", "succeeded", "failed", "iteration")
OF_LISTS = {
    "index": "loop.index", "count": "loop.count", "total": "loop.count",
    "current": "loop.current", "item": "loop.current",
    "stats.succeeded": "loop.stats.succeeded", "stats.failed": "loop.stats.failed",
}  # fmt: skip
# Both limits bound the time of messages for hostile documents.
MAX_NAME_CHARS = 200  # characters of a name
MAX_NAMES = 500  # names that are compared to find the nearest
_OWN = frozenset(
    {"input", "value", "steps", "loops", "loop", "env", "given", "workflow", "strategy"}
)
_WORDS = frozenset(
    {
        "and", "or", "not", "in", "is", "if", "elif", "else", "for", "true", "false", "none",
        "True", "False", "None", "self", "super", "caller", "varargs", "kwargs", "range",
    }
)  # fmt: skip
_SIMPLE = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_PLAIN = re.compile(r"[^\W\d][\w .:/-]*")
# Also a brace before an expression, because together they would begin another expression.
_ESCAPED = re.compile(r"\{[{%#]+|\{(?=\r)|\r\n?")
_ESCAPED_BEFORE = re.compile(r"\{[{%#]+|\{(?=\r)|\{\Z|\r\n?")


class InvalidPlaceholder(Exception):
    """A placeholder without a meaning. The text gives the reason and the nearest name."""


def quoted(text: str) -> str:
    """Return a text as a string of an expression."""
    return json.dumps(text, ensure_ascii=False)


def member(of: str, name: str) -> str:
    """Return the expression of a member: `loops.draft`, or `loops["first draft"]`."""
    return f"{of}.{name}" if _SIMPLE.fullmatch(name) else f"{of}[{quoted(name)}]"


def variable(of: str, name: str) -> str:
    """Return the shortest expression of a step's output or a caller's variable."""
    if _SIMPLE.fullmatch(name) and name not in _OWN and name not in _WORDS:
        return name
    return member(of, name)


@dataclass(frozen=True)
class NameTable:
    """The names for the placeholders of one document.

    `loops` maps loops to their modes, `accumulated` maps accumulators to their loops.
    """

    document: str
    steps: frozenset[str] = frozenset()
    loops: Mapping[str, str] = field(default_factory=dict)
    accumulated: Mapping[str, str] = field(default_factory=dict)
    env: frozenset[str] = frozenset()
    lenient: bool = False


@dataclass(frozen=True)
class Place:
    """The place of a text: its step or loop, and whether it is inside the loop (`with`, `until`)."""

    owner: str
    kind: str = "step"
    mode: str = ""


@dataclass
class Rewriter:
    """Rewrites the texts of one step or loop, and records their dependencies.

    `needs` are the steps and loops that must run before. `exposed` are pairs of a loop and a step of its
    called workflow, where the loop "" is the one that ended last before this step. `uses_last` means that
    there must be such a loop.
    """

    names: NameTable
    note: Callable[[str], None]
    needs: dict[str, None] = field(default_factory=dict)
    exposed: dict[tuple[str, str], None] = field(default_factory=dict)
    uses_last: bool = False

    def text(self, text: str, place: Place) -> str:
        """Return a text as a native template.

        Raises:
            InvalidPlaceholder: For a placeholder that cannot mean anything.
        """
        if "{" not in text:
            return text
        if "{%" in text or "{#" in text:
            self.note("{% and {# are sent to the model unchanged; this dialect has only {{NAME}}")
        parts, done = [], 0
        for name, start in placeholders(text):
            parts.append(_literal(text[done:start], _ESCAPED_BEFORE))
            parts.append(f"{{{{ {self.expression(name, place)} }}}}")
            done = text.index("}}", start) + 2
        return "".join([*parts, _literal(text[done:], _ESCAPED)])

    def expression(self, name: str, place: Place) -> str:
        """Return a placeholder as an expression.

        Raises:
            InvalidPlaceholder: If it cannot name anything.
        """
        if len(name) > MAX_NAME_CHARS:
            raise InvalidPlaceholder(_not_a_name(name))
        written = "{{" + name + "}}"
        try:
            result = self.own(name, place)
            if result is None and name.startswith("step."):
                result = self.own(name.removeprefix("step."), place)
            if result is not None:
                return result
            self._refuse(name)
        except InvalidPlaceholder:
            if not self.names.lenient:
                raise
            self.note(f"{written} is not defined and stays unchanged")
            return quoted(written)
        value = variable("given", name)
        return f"{value} | default({quoted(written)})" if self.names.lenient else value

    def own(self, name: str, place: Place) -> str | None:
        """Return the expression for a name of the document itself, or None."""
        names = self.names
        if name == "input":
            return "input"
        if name in names.steps or name in names.loops:
            return self._output(name, place)
        if name in names.accumulated:
            return self._loop_field(names.accumulated[name], "history", place)
        if name.startswith("env.") and name[4:] in names.env:
            return member("env", name[4:])
        if name.startswith("loop."):
            return self._loop(name[5:], place)
        if name == "workflow.name":
            return quoted(names.document)
        if place.mode == "iterate" and place.kind == "with" and name in ("item", "index"):
            return OF_LISTS[name]
        return self._dotted(name, place)

    def _output(self, name: str, place: Place) -> str:
        if name == place.owner:
            instead = "; its last output is {{loop.last.output}}" if place.mode else ""
            raise InvalidPlaceholder(f"{name!r} cannot use its own output{instead}")
        self.needs[name] = None
        return variable("steps", name)

    def _dotted(self, name: str, place: Place) -> str | None:
        """Return `<loop>.iterations`, `<loop>.<step of its child>`, `<step>.result`."""
        # The longest name first, because names of steps may contain dots.
        for end in range(min(len(name), MAX_NAME_CHARS) - 1, 0, -1):
            base, rest = name[:end], name[end + 1 :]
            if name[end] != "." or not rest:
                continue
            if base in self.names.loops:
                return self._loop_field(base, rest, place)
            if base in self.names.steps:
                if rest in ("output", "result"):
                    return self._output(base, place)
                raise InvalidPlaceholder(f"{name!r}: a step has one output, {{{{{base}}}}}")
        return None

    def _loop_field(self, loop: str, part: str, place: Place) -> str:
        self._output(loop, place)  # adds the dependency, and refuses the loop itself
        of = member("loops", loop)
        if part == "history":
            return of + JOINED
        if part in FIELDS:
            return f"{of}.{part}"
        if self.names.loops[loop] == "iterate":
            raise InvalidPlaceholder(_no_such_field(f"the loop {loop!r}", part, FIELDS))
        self.exposed[loop, part] = None
        return f'{member(f"{of}.steps", part)} | default("")'

    def _loop(self, part: str, place: Place) -> str:
        """Return a field of `loop`: of the loop around the text, otherwise of the loop that ended last."""
        inside = place.kind in ("with", "until")
        self.uses_last = self.uses_last or not inside
        if part in ("output", "last.output"):
            return "value" if place.kind == "until" and part == "output" else "loop.output"
        if part == "history":
            return "loop" + JOINED
        if part in ("iteration", "iterations"):
            return "loop.iteration"
        if part in ("succeeded", "failed") or (part == "exit_reason" and not inside):
            return f"loop.{part}"
        if part in OF_LISTS and (place.mode == "iterate" or not inside):
            return OF_LISTS[part]
        if part.startswith("last.") and place.mode != "iterate" and "." not in part[5:]:
            self.exposed[place.owner if inside else "", part[5:]] = None
            return f'{member("loop.steps", part[5:])} | default("")'
        names = ["iteration", "output", "last.output", "history", "succeeded", "failed"]
        names += OF_LISTS if place.mode == "iterate" else []
        raise InvalidPlaceholder(_no_such_field("loop", part, names))

    def _refuse(self, name: str) -> None:
        """Refuse a name that cannot be a variable of the caller either."""
        base, _, rest = name.partition(".")
        if not _PLAIN.fullmatch(name):
            raise InvalidPlaceholder(_not_a_name(name))
        if base == "env" and rest:
            raise InvalidPlaceholder(_no_such_field("env", rest, sorted(self.names.env)))
        if rest and base in ("input", "loop", "step", "workflow", "execution"):
            total = " {{input}} is the entire input;" if base == "input" else ""
            names = sorted({*self.names.steps, *self.names.loops, "input"})
            raise InvalidPlaceholder(
                f"{name!r} is not defined;{total}{listed(name, names).removeprefix(';')}"
            )


def _not_a_name(name: str) -> str:
    display = name if len(name) <= 60 else name[:57] + "..."
    return (
        f"{display!r} is not a name; placeholders of this dialect are plain names, "
        "without filters or calls"
    )


def _no_such_field(of: str, part: str, names: Iterable[str]) -> str:
    some = list(islice(names, MAX_NAMES))
    message = listed(part, some, lead="it has") or "; it has none"
    return f"{of} has no {part!r}{nearest(part, some) or message}"


def _literal(text: str, pattern: re.Pattern[str]) -> str:
    """Return text that a native template renders unchanged."""
    return pattern.sub(lambda result: f"{{{{ {quoted(result[0])} }}}}", text)


OnFailure = Literal["halt", "continue", "retry", "fail"]
Logging = Literal["error", "warn", "info", "normal", "step", "steps", "debug", "verbose", "noisy"]
KINDS = ("run", "template", "loop", "consensus", "embeddings", "rag")


class TargetV2(Part):
    """A model at a provider."""

    provider: str
    model: str


class ModelCallV2(Part):
    """The settings of model calls that documents, steps, voters and judges have in common."""

    provider: str | None = None
    model: str | None = None
    temperature: float | None = Field(None, ge=0, le=2, allow_inf_nan=False)
    max_tokens: int | None = Field(None, ge=1)
    timeout: Seconds | None = None


class InheritedV2(ModelCallV2):
    """Settings that a step can override."""

    providers: list[TargetV2] | None = Field(None, min_length=1)
    servers: list[str] = Field([])
    skills: list[str] = Field([])
    max_iterations: int | None = Field(None, ge=1)
    logging: Logging | None = None
    no_color: bool | None = None


class ExecutionSettings(InheritedV2):
    """The settings that all steps inherit."""

    parallel: bool = False
    max_workers: int | None = Field(None, ge=1, le=100)
    on_error: Literal["cancel_all", "complete_running", "continue", "halt"] | None = None


class TemplateV2(Part):
    """A call of another workflow."""

    name: str
    with_: dict[str, Json] | None = Field(None, alias="with")


class ConsensusV2(Part):
    """One prompt to several models, which must agree."""

    prompt: str
    executions: list[ModelCallV2] = Field(min_length=2)
    require: Literal["unanimous", "2/3", "majority"]
    allow_partial: bool | None = None
    timeout: Seconds | None = None


class LoopV2(Part):
    """A loop: until a condition holds (mode refine), or over a list (mode iterate)."""

    name: Identifier | None = None
    workflow: str
    mode: Literal["refine", "iterate"] = "refine"
    items: Json = None
    with_: dict[str, Json] | None = Field(None, alias="with")
    max_iterations: int | None = Field(None, ge=1, validate_default=True)
    until: str | None = None
    on_failure: OnFailure | None = None
    max_retries: int | None = Field(None, ge=0, le=100)
    retry_delay: Pause | None = None
    min_success_rate: float | None = Field(None, ge=0, le=1)
    timeout_per_item: Seconds | None = None
    total_timeout: Seconds | None = None
    accumulate: str | None = None
    parallel: bool = False
    max_workers: int | None = Field(None, ge=1, le=100)
    needs: Names = Field([])
    judge: ModelCallV2 | None = None
    required: bool = False
    accept: Accepted = Field([])

    @field_validator("max_iterations")
    @classmethod
    def _bounded(cls, value: int | None, info: ValidationInfo) -> int | None:
        """Require a limit for a loop that ends with a condition. A loop over a list ends with the list."""
        if value is None and info.data.get("mode") == "refine":
            raise PydanticCustomError(
                "loop", "needs 'max_iterations': the maximum number of iterations", {}
            )
        return value


class StepV2(InheritedV2):
    """A step: exactly one of run, template, loop, consensus, embeddings, rag; a loop may have a run beside it."""

    name: Identifier
    run: str | None = None
    template: TemplateV2 | None = None
    loop: LoopV2 | None = None
    consensus: ConsensusV2 | None = None
    embeddings: dict[str, Json] | None = None
    rag: dict[str, Json] | None = None
    needs: Names = Field([])
    if_: str | None = Field(None, alias="if")
    input: Json = None
    execution_order: int | None = None
    on_failure: OnFailure | None = None
    max_retries: int | None = Field(None, ge=0, le=100)

    @property
    def kind(self) -> str:
        """The kind of the step."""
        value = [name for name in KINDS if getattr(self, name) is not None]
        return "loop" if set(value) == {"run", "loop"} else value[0]

    @model_validator(mode="after")
    def _one_kind(self) -> StepV2:
        value = [name for name in KINDS if getattr(self, name) is not None]
        if len(value) != 1 and set(value) != {"run", "loop"}:
            result = f"has {' and '.join(value)}" if value else "has none"
            raise PydanticCustomError(
                "action", "needs exactly one of {kinds}, but {present}",
                {"kinds": ", ".join(KINDS), "present": result},
            )  # fmt: skip
        return self


class WorkflowV2(Part):
    """A document of `workflow/v2.0`."""

    schema_: str = Field(alias="$schema")
    name: Identifier
    version: str = ""
    description: str = ""
    execution: ExecutionSettings = Field(default_factory=ExecutionSettings)
    env: dict[str, str] = Field({})
    steps: list[StepV2] | None = None
    loops: list[LoopV2] | None = None
    output: str | None = None


_EVERYWHERE = {
    "pass_env": "every name of env is available in every step as {{env.NAME}}",
    "output_var": "the output of a step is available as {{NAME}}",
    "outputs": "the output of a step is available as {{NAME}}",
    "inputs": "a workflow has one input, {{input}}; its caller passes more values through `with`",
}
_OF_STEPS = {
    "execution": "set provider, model, temperature and so on directly on the step",
    "output": "the output of a step is available as {{NAME}}",
    "for_each": "write loop: {mode: iterate, items: …, workflow: …, max_iterations: …}",
    "item_name": "an item is {{item}} in the workflow of a loop, {{loop.current}} in its `with`",
    "on_error": "write on_failure: halt, continue or retry",
    "condition": "write if: {{NAME}} == \"VALUE\"",
    "depends_on": "write needs: [NAME, …]",
    "prompt": "write run: TEXT",
    "workflow": "write template: {name: NAME, with: {…}}",
}  # fmt: skip
_OF_LOOPS = {
    "max_iteration": "did you mean 'max_iterations'?",
    "workfow": "did you mean 'workflow'?",
    "output": "the output of a loop is available under its name, as {{NAME}}",
    "input": "write with: {input: …}",
    "condition": "write until: a sentence that a model can judge",
}
_OF_PROVIDERS = dict.fromkeys(
    ("temperature", "max_tokens", "timeout"), "set it beside providers, for all of them"
)
_OF_DOCUMENTS = {"input": "the input of a workflow comes from its caller, as {{input}}"}


def hint(path: tuple[str | int, ...]) -> str:
    """Return the advice for an unknown key, or ""."""
    key = str(path[-1])
    names = [part for part in path[:-1] if isinstance(part, str)]
    where = names[-1] if names else ""
    tables = {
        "": _OF_DOCUMENTS, "steps": _OF_STEPS, "loops": _OF_LOOPS, "loop": _OF_LOOPS,
        "providers": _OF_PROVIDERS,
    }  # fmt: skip
    return tables.get(where, {}).get(key) or _EVERYWHERE.get(key, "")
