"""The translation of Conductor's workflows to native documents.

1. The agents run in the order of their routes. Where routes lead back, their agents are the body of a loop, which ends
   when a route leads out of it.
2. An agent with several routes has a step `NAME_next` after it, whose output is the name of the agent that follows.
   The other agents have conditions on it.
3. An agent of an earlier iteration is in the output of that iteration, which has the outputs of all its steps.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from ...documents.detect import CalledDocument
from ...documents.project import Project
from ...documents.schema.document import Document
from ...documents.yaml.reader import Location, Source
from ...errors import DocumentError, Problem, nearest
from ...records.codec import Json
from ..translation import CHOOSE, Open, Translation, quoted, reference
from .fields import (
    IGNORED,
    REFUSED,
    ConductorAgent,
    ConductorDocument,
    ConductorInput,
    ForEachSpec,
    ParallelSpec,
    RouteSpec,
)
from .routes import Entries, RoutedLoop, Sequence_, agents_in, arranged
from .templates import InvalidTemplate, converted, expression

__all__ = ["remarks", "translate"]

END = "$end"
EXITS = range(10)  # exit codes of a script that its routes may read; another one is a failure
Spec = ConductorAgent | ParallelSpec | ForEachSpec
_KINDS = {
    "wait": "pause in a script, such as sleep 60",
    "questions": "ask one question with a human_gate, whose option has prompt_for",
    "set": "put the value into the templates that need it",
    "terminate": "route to $end, or to a script that exits with 1",
    "workflow": "convert both documents, and call one with workflow:",
}
_PROVIDERS = {"claude": "anthropic", "openai": "openai", "anthropic": "anthropic"}
# By the beginning of the name of a model, for an account that has models of several providers.
_MODELS = {
    "claude": "anthropic",
    "gemini": "google",
    "gpt": "openai",
    "o1": "openai",
    "o3": "openai",
    "o4": "openai",
}
_ZERO: Mapping[str, Json] = {"string": "", "number": 0, "boolean": False, "array": [], "object": {}}
_SCHEMA = ("type", "description", "enum", "pattern", "minimum", "maximum", "minLength", "maxLength")


def translate(source: Source, project: Project) -> tuple[Source, Document]:
    """Return a workflow of Conductor as a native document, and a source that takes native paths.

    Raises:
        DocumentError: with every problem of the document.
    """
    project.notes += source.notes
    return _Conductor(source, project).run()


def remarks(_document: Document, _source: Source, _called: CalledDocument) -> Iterable[Problem]:
    """Return no notes, because the translation reports them all."""
    return ()


@dataclass(frozen=True)
class Position:
    """Where a text stands: its agent, and the loops around it, outermost first."""

    owner: str
    loops: tuple[str, ...] = ()
    item: str = ""  # the name of an item of a list
    ran: bool = False  # whether the agent has run: its routes read its output


@dataclass
class _Conductor(Translation):
    """The translation of one document."""

    specs: dict[str, tuple[Spec, Location]] = field(default_factory=dict)
    members: dict[str, str] = field(default_factory=dict)  # agents of groups, with their group
    loops: dict[str, tuple[str, ...]] = field(default_factory=dict)  # around each agent and loop
    order: dict[str, int] = field(
        default_factory=dict
    )  # of agents and loops, where a loop is after its body

    def run(self) -> tuple[Source, Document]:
        """Return the native document and its source."""
        spec = self.model(ConductorDocument, self.source.value, ())
        if spec is None:
            raise DocumentError(self.problems)
        self.spec = spec
        workflow = spec.workflow
        for part, at in self._parts(spec):
            if getattr(part, "type", "") not in _KINDS:
                self.unknown(part, at, IGNORED, REFUSED)
        self._define(spec)
        names = [name for name in self.specs if name not in self.members]
        targets = {name: [to for to, _, _ in self._targets(name)] for name in names}
        if workflow.entry_point not in names:
            hint = nearest(workflow.entry_point, names)
            self.report(
                ("workflow", "entry_point"), f"there is no agent {workflow.entry_point!r}{hint}"
            )
        if self.problems:
            raise DocumentError(dict.fromkeys(self.problems))
        try:
            elements = arranged(
                names,
                {n: [t for t in ts if t in names] for n, ts in targets.items()},
                workflow.entry_point,
            )
        except Entries as error:
            at = next(
                at
                for n in names
                for to, _, at in self._targets(n)
                if to == error.other and n not in error.members
            )
            self.report(
                at,
                f"a route leads into the middle of the loop of {error.head!r}, which has no native form; lead it to {error.head!r}",
            )
            raise DocumentError(self.problems) from None
        self._place(elements, ())
        steps = self._sequence(elements, (), ("steps",))
        return self.document(self._native(steps))

    @staticmethod
    def _parts(spec: ConductorDocument) -> Iterator[tuple[Open, Location]]:
        """Iterate over the parts with keys of their own."""
        workflow = spec.workflow
        yield spec, ()
        yield workflow, ("workflow",)
        yield workflow.runtime, ("workflow", "runtime")
        yield workflow.limits, ("workflow", "limits")
        for name, one in workflow.input.items():
            yield one, ("workflow", "input", name)
        for key in ("agents", "parallel", "for_each"):
            for i, one in enumerate(getattr(spec, key)):
                yield one, (key, i)
                if isinstance(one, ForEachSpec):
                    yield one.agent, (key, i, "agent")

    def _define(self, spec: ConductorDocument) -> None:
        for key in ("agents", "parallel", "for_each"):
            for i, one in enumerate(getattr(spec, key)):
                if one.name in self.specs:
                    line = self.source.position(self.specs[one.name][1])[0]
                    self.report(
                        (key, i, "name"),
                        f"{one.name!r} is already the name of an agent, on line {line}",
                    )
                self.specs[one.name] = (one, (key, i))
        for i, group in enumerate(spec.parallel):
            for j, name in enumerate(group.agents):
                agent = self.specs.get(name, (None,))[0]
                if not isinstance(agent, ConductorAgent):
                    self.report(
                        ("parallel", i, "agents", j),
                        f"there is no agent {name!r}{nearest(name, self.specs)}",
                    )
                self.members[name] = group.name
        for name, (one, at) in self.specs.items():
            if isinstance(one, ConductorAgent):
                self._check(name, one, at)

    def _check(self, name: str, spec: ConductorAgent, at: Location) -> None:
        """Report what an agent of its type lacks, or what has no native form."""
        kinds = {"agent": "prompt", "script": "command", "human_gate": "options"}
        if spec.type not in kinds:
            what = _KINDS.get(spec.type)
            hint = nearest(spec.type, [*kinds, *_KINDS])
            self.report(
                (*at, "type"),
                f"{spec.type} cannot be carried over: {what}"
                if what
                else f"there is no type {spec.type!r}{hint}",
            )
        elif not getattr(spec, kinds[spec.type]):
            self.report(at, f"{name!r} needs {kinds[spec.type]}")

    # Routes.

    def _targets(self, name: str) -> list[tuple[str, RouteSpec | str, Location]]:
        """Return the agents to which the routes of an agent lead, each with its route, or the value of a person's choice."""
        spec, at = self.specs[name]
        result: list[tuple[str, RouteSpec | str, Location]] = []
        for i, option in enumerate(spec.options if isinstance(spec, ConductorAgent) else ()):
            if option.route is not None:
                place = (*at, "options", i, "route")
                result.append(
                    (
                        self._target(option.route, name, place),
                        option.word,
                        place,
                    )
                )
        for i, route in enumerate(spec.routes):
            place = (*at, "routes", i, "to")
            result.append((self._target(route.to, name, place), route, place))
            # Later routes are never taken.
            if route.when is None:
                break
        return result

    def _target(self, to: str, name: str, at: Location) -> str:
        if to == "self":
            return name
        if to != END and (to not in self.specs or to in self.members):
            hint = nearest(to, [*self.specs, END, "self"])
            self.report(at, f"there is no agent {to!r} to go to{hint}")
        return to

    def _branches(self, name: str) -> bool:
        """Whether an agent has several ways on, of which one is chosen when it has run."""
        targets = self._targets(name)
        return len(targets) > 1 or any(
            not isinstance(r, RouteSpec) or r.when is not None for _, r, _ in targets
        )

    def _place(self, elements: Sequence_, loops: tuple[str, ...]) -> None:
        for element in elements:
            name = element if isinstance(element, str) else element.name
            if isinstance(element, RoutedLoop):
                self._place(element.body, (*loops, element.name))
            self.loops[name] = loops
            self.order[name] = len(self.order)

    def _way(self, name: str, to: str, around: tuple[str, ...]) -> str:
        """Return the condition that the route of an agent to another one was taken, for a text inside of some loops; "" for always."""
        path = (*self.loops[name][len(around) :],)
        if self._branches(name):
            chosen = reference(*path, f"{name}_next")
            # A loop, or a step, that did not run has no output.
            return f'({chosen} | default("")) == {quoted(to)}'
        return (
            f"({reference(*path, name)} | default(none)) is not none"
            if path or self.conditional.get(name)
            else ""
        )

    def _condition(
        self, element: str | RoutedLoop, before: Iterable[str | RoutedLoop], loops: tuple[str, ...]
    ) -> str:
        """Return the condition under which an element of a sequence runs: a route led to it."""
        head = element if isinstance(element, str) else element.head
        ways = [
            self._way(name, head, loops) for one in before for name in agents_in(one)
            if any(to == head for to, _, _ in self._targets(name))
        ]  # fmt: skip
        return "" if not ways or "" in ways else " or ".join(ways)

    # Steps.

    conditional: dict[str, str] = field(default_factory=dict)  # agents and loops with a condition

    def _sequence(self, elements: Sequence_, loops: tuple[str, ...], to: Location) -> list[Json]:
        """Return the elements of a sequence as native steps."""
        steps: list[Json] = []
        for i, element in enumerate(elements):
            condition = self._condition(element, elements[:i], loops)
            name = element if isinstance(element, str) else element.name
            if condition:
                self.conditional[name] = condition
            head: dict[str, Json] = {"name": name, **({"if": condition} if condition else {})}
            target = (*to, len(steps))
            if isinstance(element, RoutedLoop):
                self.places[target] = self.specs[element.head][1]
                steps.append({**head, "loop": self._loop(element, loops, target), "required": True})
                continue
            spec, at = self.specs[element]
            self.places[target] = at
            steps.append({**head, **self._step(spec, at, Position(element, loops), target)})
            if self._branches(element):
                self.places[(*to, len(steps))] = (*at, "routes") if spec.routes else at
                following = self._next(element, Position(element, loops, ran=True))
                otherwise = {"otherwise": ""} if condition else {}
                steps.append({**head, "name": f"{element}_next", "set": following, **otherwise})
        return steps

    def _next(self, name: str, position: Position) -> str:
        """Return the template of the name of the agent that follows."""
        parts: list[str] = []
        for to, route, at in self._targets(name):
            if isinstance(route, str):
                condition = f"{reference(name)}.selected == {quoted(route)}"
            elif route.when is None:
                return "".join([*parts, "{% else %}", to, "{% endif %}"]) if parts else to
            else:
                condition = self._expression(route.when, (*at[:-1], "when"), position)
            parts += [f"{{% {'elif' if parts else 'if'} {condition} %}}", to]
        return "".join([*parts, "{% endif %}"])

    def _loop(self, loop: RoutedLoop, around: tuple[str, ...], to: Location) -> dict[str, Json]:
        inside = (*around, loop.name)
        body = self._sequence(loop.body, inside, (*to, "loop", "execute", "steps"))
        again = self._condition(loop.head, loop.body, inside) or "true"
        body.append({"name": f"{loop.name}_again", "set": f"{{{{ {again} }}}}"})
        limits = self.spec.workflow.limits
        length = self._length(loop)
        count = max(1, limits.max_iterations // length)
        if "max_iterations" in limits.model_fields_set and length > 1:
            what = f"it counts agents; the loop of {loop.head!r}, at least {length} agents, runs {count} times at most"
            self.note(("workflow", "limits", "max_iterations"), what)
        self.places[(*to, "loop", "max_iterations")] = ("workflow", "limits", "max_iterations")
        ended = {"properties": {f"{loop.name}_again": {"const": False}}}
        return {
            "execute": {"steps": body, "output": "all"},
            "evaluate": {"check": {"name": f"no route back to {loop.head}", "schema": ended}},
            "until": ["passed", {"max_iterations": count}],
            "keep": "last",
        }

    def _length(self, loop: RoutedLoop) -> int:
        """Return the smallest number of agents of an iteration."""
        length, reached, members = 1, {loop.head}, set(agents_in(loop))
        while True:
            following = {to for name in reached for to, _, _ in self._targets(name)}
            if loop.head in following:
                return length
            length, reached = length + 1, (reached | following) & members

    def _step(self, spec: Spec, at: Location, position: Position, to: Location) -> dict[str, Json]:
        if isinstance(spec, ParallelSpec):
            inner: list[Json] = []
            for i, name in enumerate(spec.agents):
                one, place = self.specs[name]
                self.places[(*to, "parallel", i)] = place
                step = self._step(one, place, position, (*to, "parallel", i))
                inner.append({"name": name, **step, **_failures(spec.failure_mode)})
            return {"parallel": inner}
        if isinstance(spec, ForEachSpec):
            within = Position(spec.name, position.loops, spec.as_)
            items = self._expression(spec.source, (*at, "source"), position)
            action = self._step(spec.agent, (*at, "agent"), within, (*to, "each", "execute"))
            return {
                "each": {
                    "items": f"{{{{ {items} }}}}",
                    "execute": action,
                    "at_once": spec.max_concurrent,
                    **_failures(spec.failure_mode),
                }
            }
        kind = {"script": self._script, "human_gate": self._gate}.get(spec.type, self._prompt)
        return kind(spec, at, position, to)

    def _prompt(
        self, spec: ConductorAgent, at: Location, position: Position, to: Location
    ) -> dict[str, Json]:
        step: dict[str, Json] = {"prompt": self._text(spec.prompt or "", (*at, "prompt"), position)}
        if spec.system_prompt:
            step["system"] = self._text(spec.system_prompt, (*at, "system_prompt"), position)
            self.places[(*to, "system")] = (*at, "system_prompt")
        if spec.model or spec.provider:
            runtime = self.spec.workflow.runtime
            place = (*at, "model" if spec.model else "provider")
            model = self._model(
                spec.model or runtime.default_model, spec.provider or runtime.provider, place
            )
            step |= {"model": model} if model else {}
        if spec.output:
            step["output"] = {"schema": _schema(spec.output)}
            self.places[(*to, "output", "schema")] = (*at, "output")
        return step

    def _script(
        self, spec: ConductorAgent, at: Location, position: Position, to: Location
    ) -> dict[str, Json]:
        env: dict[str, Json] = dict(spec.env)
        words, given = [spec.command or ""], False
        if "{{" in words[0] or "{%" in words[0]:
            what = "command cannot contain values of a template; pass them in args or stdin"
            self.report((*at, "command"), what)
        for i, word in enumerate(spec.args):
            if "{{" in word or "{%" in word:
                name, given = f"ARGUMENT_{i + 1}", True
                env[name] = self._text(word, (*at, "args", i), position)
                words.append(f'"${name}"')
            else:
                words.append(word)
        command: Json = words
        if given:
            # A value is one word of the command, whatever it contains.
            command = " ".join(w if w.startswith('"$ARGUMENT_') else shlex.quote(w) for w in words)
        self.places[(*to, "shell")] = (*at, "command")
        step: dict[str, Json] = {"shell": command, "output": "result", "allow_exit": list(EXITS)}
        if spec.stdin is not None:
            step["stdin"] = self._text(spec.stdin, (*at, "stdin"), position)
        return {
            **step,
            **({"env": env} if env else {}),
            **({"timeout": spec.timeout} if spec.timeout else {}),
        }

    def _gate(
        self, spec: ConductorAgent, at: Location, position: Position, to: Location
    ) -> dict[str, Json]:
        options = [
            {
                "value": one.word,
                "label": one.label or one.word,
                **({"text": one.prompt_for} if one.prompt_for else {}),
            }
            for one in spec.options
        ]
        question = self._text(spec.prompt or "Choose.", (*at, "prompt"), position)
        self.places[(*to, "input")] = (*at, "prompt" if spec.prompt else "options")
        return {"python": CHOOSE, "input": {"question": question, "options": options}}

    # Names.

    def _text(self, text: str, at: Location, position: Position) -> str:
        return self._attempt(partial(converted, text), at, position)

    def _expression(self, text: str, at: Location, position: Position) -> str:
        return self._attempt(partial(expression, text), at, position) or "false"

    def _attempt(self, convert: partial[str], at: Location, position: Position) -> str:
        try:
            return convert(partial(self._find, position))
        except InvalidTemplate as error:
            self.report(at, str(error))
            return ""

    def _find(
        self, position: Position, name: str, fields: list[str], bare: bool
    ) -> tuple[str, int] | None:
        """Return the expression of a name, and the number of fields that it used."""
        if name == "workflow":
            return self._workflow(fields)
        if position.item and name in (position.item, "_index"):
            return ("loop.current" if name == position.item else "loop.index"), 0
        if name == "output" and position.ran:
            return self._output(position.owner, ["output", *fields], position, shift=1)
        if name in self.members:
            return (
                self._output(self.members[name], ["outputs", name, *fields[1:]], position, shift=1)
                if fields
                else None
            )
        if name in self.specs:
            return self._output(name, fields, position, shift=0)
        if bare and position.ran:
            return self._output(position.owner, ["output", name], position, shift=2)
        return None

    def _workflow(self, fields: list[str]) -> tuple[str, int]:
        workflow = self.spec.workflow
        if fields[:1] == ["input"]:
            if len(fields) == 1:
                return "input", 1
            if workflow.input and fields[1] not in workflow.input:
                raise InvalidTemplate(
                    f"there is no input {fields[1]!r}{nearest(fields[1], workflow.input)}"
                )
            return f"input.{fields[1]}", 2
        constants = {"name": workflow.name, "description": workflow.description, "dir": "."}
        if fields and fields[0] in constants:
            return quoted(constants[fields[0]]), 1
        raise InvalidTemplate("of workflow, templates have input, name, description and dir")

    def _output(
        self, name: str, fields: list[str], position: Position, shift: int
    ) -> tuple[str, int]:
        """Return the expression of an agent's output or of a field in it. `shift`: fields that the text does not have."""
        spec, path = self.specs[name][0], self._path(name, position)
        if not fields:
            return path, 0
        if isinstance(spec, ConductorAgent):
            key = fields[1] if len(fields) > 1 else ""
            if spec.type == "human_gate" and fields[0] in ("output", "choice"):
                if fields[0] == "choice" or key in ("selected", "choice"):
                    return f"{path}.selected", (1 if fields[0] == "choice" else 2) - shift
                texts = {"feedback", "additional_input", *(o.prompt_for for o in spec.options)}
                if key in texts:
                    return f"{path}.text", (
                        3 if key == "additional_input" and len(fields) > 2 else 2
                    ) - shift
                raise InvalidTemplate(
                    f"the output of {name!r} has selected, and the text of prompt_for"
                )
            if fields[0] != "output":
                raise InvalidTemplate(f"{name}.{fields[0]}: write {name}.output.FIELD")
            if not key:
                return path, 1 - shift
            if spec.type == "agent" and not spec.output:
                if key not in ("result", "text", "response"):
                    raise InvalidTemplate(
                        f"{name!r} declares no output, so its only field is result"
                    )
                return path, 2 - shift
            known = (
                ("stdout", "stderr", "exit_code")
                if spec.type == "script"
                else tuple(spec.output or ())
            )
            if key not in known:
                raise InvalidTemplate(f"the output of {name!r} has no {key!r}{nearest(key, known)}")
            return f"{path}.{key}", 2 - shift
        if fields[0] != "outputs":
            raise InvalidTemplate(f"{name}.{fields[0]} has no counterpart; write {name}.outputs")
        if isinstance(spec, ForEachSpec) or len(fields) < 2:
            return path, 1
        if fields[1] not in spec.agents:
            raise InvalidTemplate(
                f"the group {name!r} has no agent {fields[1]!r}{nearest(fields[1], spec.agents)}"
            )
        # Without declared fields, `result` is the whole output.
        whole = fields[2:3] == ["result"] and not getattr(self.specs[fields[1]][0], "output", None)
        member = reference("group", fields[1]).removeprefix("steps.group")
        return f"{path}{member}", (3 if whole else 2) - shift

    def _path(self, name: str, position: Position) -> str:
        """Return the expression of an agent's output: of this iteration, of the one before, or of a loop that has ended."""
        around, own = position.loops, self.loops.get(name)
        if own is None:
            raise InvalidTemplate(f"{name!r} never runs")
        shared = 0
        while shared < min(len(around), len(own)) and around[shared] == own[shared]:
            shared += 1
        # The element of the same sequence that has the text: its agent, or a loop around it.
        beside = (*around, position.owner)[shared]
        path = (*own[shared:], name)
        earlier = self.order[path[0]] < self.order.get(beside, len(self.order))
        # Its own output, which its routes read.
        if earlier or (position.ran and position.owner == name):
            return reference(*path)
        if shared < len(around):
            what = f"{name!r} runs later in a loop around this one, whose iterations an inner loop does not see"
            raise InvalidTemplate(what)
        if not around:
            raise InvalidTemplate(f"{name!r} runs later")
        return reference("output", *path).replace("steps", "loop", 1)

    # The document.

    def _model(self, model: str | None, provider: Json, at: Location) -> str:
        name = provider.get("name") if isinstance(provider, Mapping) else provider
        if model is None:
            return ""
        known = _PROVIDERS.get(str(name))
        if known is None and name == "copilot":
            known = next(
                (p for start, p in _MODELS.items() if model.lower().startswith(start)), None
            )
        if known is None:
            self.report(
                at,
                f"the provider of {model!r} is not known; convert the document, or name a model of {', '.join(_PROVIDERS)}",
            )
            return ""
        return f"{known}:{model}"

    def _native(self, steps: list[Json]) -> dict[str, Json]:
        workflow = self.spec.workflow
        runtime, limits = workflow.runtime, workflow.limits
        native: dict[str, Json] = {"schema": "loopwright/1", "name": workflow.name}
        if workflow.description:
            native["description"] = workflow.description
        if workflow.input:
            native["inputs"] = {name: _input(one) for name, one in workflow.input.items()}
            self.places[("inputs",)] = ("workflow", "input")
        model = self._model(
            runtime.default_model, runtime.provider, ("workflow", "runtime", "provider")
        )
        native |= {"model": model} if model else {}
        settings = {
            "temperature": runtime.temperature,
            "max_tokens": runtime.max_tokens,
            "call_timeout": runtime.timeout,
            "timeout": limits.timeout_seconds,
        }
        native |= {key: value for key, value in settings.items() if value is not None}
        if limits.budget_usd is not None and limits.budget_mode == "enforce":
            native["budget"] = {"usd": limits.budget_usd}
        elif limits.budget_usd is not None:
            self.note(
                ("workflow", "limits", "budget_usd"),
                "a budget is a limit here; write budget_mode: enforce, which budget_mode: audit is not",
            )
        native["steps"] = steps
        if self.spec.output:
            position = Position("", ())
            values = {
                n: self._text(text, ("output", n), position) for n, text in self.spec.output.items()
            }
            name = next(
                n for n in ("result", "workflow_result", "workflow_output") if n not in self.specs
            )
            self.places[("steps", len(steps))] = ("output",)
            steps.append({"name": name, "set": values})
        return native


def _input(spec: ConductorInput) -> dict[str, Json]:
    made: dict[str, Json] = {"type": spec.type}
    if spec.description:
        made["description"] = spec.description
    if spec.default is not None or not spec.required:
        # An optional input without a default has the empty value of its type.
        made["default"] = _ZERO[spec.type] if spec.default is None else spec.default
    return made


def _failures(mode: str) -> dict[str, Json]:
    return {"on_failure": "continue"} if mode == "continue_on_error" else {}


def _schema(fields: Mapping[str, Mapping[str, Json]]) -> dict[str, Json]:
    """Return the JSON Schema of declared fields."""
    needed = [name for name, one in fields.items() if one.get("required", True)]
    return {
        "type": "object",
        "properties": {name: _field(one) for name, one in fields.items()},
        "required": needed,
    }


def _field(spec: Mapping[str, Json]) -> dict[str, Json]:
    schema: dict[str, Json] = {key: spec[key] for key in _SCHEMA if key in spec}
    if spec.get("nullable") and "type" in schema:
        schema["type"] = [schema["type"], "null"]
    if isinstance(spec.get("items"), Mapping):
        schema["items"] = _field(spec["items"])
    if isinstance(spec.get("properties"), Mapping):
        schema |= _schema(spec["properties"])
    return schema
