"""The agents of loop-node documents as native steps, with the prompts that validators bring along.

The prompts are part of recorded fingerprints. A new wording would repeat the calls of runs in progress.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from pydantic import BaseModel, ValidationError

from ...documents.schema.validate import placeholder, validated
from ...documents.yaml.reader import Location, Source
from ...errors import DocumentError, Problem, listed, nearest
from ...records.codec import Json, text_of
from ...templates import TemplateError
from ...templates.variables import FIXED
from .fields import (
    AGENT_FIELDS,
    IGNORED,
    MISSING,
    TYPES,
    AgentSpec,
    Defaults,
    StructuredSpec,
    asks_by_prompt,
    choose,
    schema_of,
    text_field,
    wants_structured_output,
)
from .presets import context_of
from .templates import HELPERS, node_template

__all__ = [
    "Agents",
    "Definition",
    "Native",
    "note_unknown_keys",
    "placed",
    "plan_validator",
    "remarks",
    "structured",
    "validator",
]

_NAMES = frozenset(
    {"previous_outputs", "loop_number", "score", "past_loops_metadata", "orchestrator"}
)


def remarks(text: str, agents: Collection[str]) -> Iterator[str]:
    """Iterate over notes on a prompt; `agents` are the agents of the document."""
    try:
        template = node_template(text)
    except TemplateError:
        return  # the compiler reports it with its position
    yield from template.notes
    names = {*HELPERS, *FIXED, *_NAMES, *agents}
    for name in sorted(template.required - names):
        yield f"{name!r} is not defined, so it is empty{nearest(name, names)}"
    for name in sorted(template.members("previous_outputs") - {*agents, "past_loops"}):
        yield f"there is no agent {name!r}, so previous_outputs.{name} is empty{nearest(name, agents)}"


# The usual IDs of agents that write a plan, if `evaluation_target` is not set.
_PLANNERS = (
    "graph_scout", "graphscout_planner", "graphscout_router", "path_proposer", "plan_proposer", "dynamic_router",
)  # fmt: skip


def validator(spec: AgentSpec) -> str:
    """Return the prompt of a loop validator: the task, the work and the last iteration."""
    target = repr(spec.evaluation_target or "")
    text = (spec.custom_prompt or spec.prompt or "You judge the latest version of a work.").strip()
    return (
        f"{text}\n\nThe task:\n{{{{ get_input() }}}}\n\n"
        f"The work, in round {{{{ get_loop_number() }}}}:\n{{{{ to_validate({target}) }}}}\n"
        "{% if round_before("
        + target
        + ") %}\nThe round before:\n{{ round_before("
        + target
        + ") }}\n"
        "{% else %}\nThere is no round before: judge what compares with it by the work alone.\n{% endif %}"
    )


def plan_validator(spec: AgentSpec, agents: Iterable[str]) -> str:
    """Return the prompt of a plan validator: the plan of an agent, or all outputs."""
    names = set(agents)
    target = repr(spec.evaluation_target or next((p for p in _PLANNERS if p in names), ""))
    text = (
        spec.custom_prompt or spec.prompt or "You judge a plan before it is carried out."
    ).strip()
    return f"{text}\n\nThe task:\n{{{{ get_input() }}}}\n\nThe plan:\n{{{{ to_validate({target}) }}}}\n"


def structured(spec: AgentSpec) -> str:
    """Return the prompt of an agent that checks an answer and structures it."""
    text = spec.prompt or (
        "Check the answer below against the task.\n\nThe task:\n{{ get_input() }}\n\nThe answer:\n{{ to_validate() }}"
    )
    value = spec.store_structure
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        structure = f"an object with the fields {', '.join(value)}" if value else ""
    else:
        structure = "" if value is None else text_of(value)
    structure = structure or "the facts of the answer as fields"
    return (
        f"{text.rstrip()}\n\nAnswer with JSON only: an object with response (a sentence), valid (true or false), "
        f"reason (a sentence) and memory_object ({structure.strip()})."
    )


Report = Callable[[Location, str], None]


@dataclass(frozen=True)
class Definition:
    """The definition of an agent in the document, and its position."""

    raw: Mapping[str, Json]
    at: Location


@dataclass
class Native:
    """A native step, and the positions of its parts by their path inside the step."""

    step: dict[str, Json]
    places: dict[Location, Location] = field(default_factory=dict)


def placed(step: dict[str, Json], at: Location, inner: Mapping[Location, list[Native]]) -> Native:
    """Return a step with the positions of its lists of steps, by their paths."""
    places: dict[Location, Location] = {(): at}
    for path, natives in inner.items():
        for i, native in enumerate(natives):
            places |= {(*path, i, *below): where for below, where in native.places.items()}
    return Native(step, places)


def note_unknown_keys(
    spec: BaseModel, at: Location, note: Report, ignored: frozenset[str] = IGNORED
) -> None:
    """Note the keys that have no effect, with the nearest key that has one."""
    for name in spec.model_extra or ():
        if name not in ignored:
            hint = nearest(name, type(spec).model_fields)
            note((*at, name), f"{name!r} has no effect{hint}")


@dataclass
class Agents:
    """The agents that one queue may name, and their translation.

    `loop` translates a loop node. `outside` are functions of the caller for types that need a backend.
    """

    source: Source
    defined: Mapping[str, Definition]
    defaults: Defaults
    outside: Mapping[str, str]
    report: Report
    note: Report
    loop: Callable[[Agents, Definition], Native | None]
    problems: list[Problem]
    unnamed: dict[str, list[str]]
    around: tuple[str, ...] = ()
    structured: StructuredSpec | None = None

    def step(self, name: str, at: Location, outer: tuple[str, ...] = ()) -> Native:
        """Return an agent as a native step, or a placeholder if it has problems."""
        result = self._step(name, at, outer)
        if result is None:
            return Native(placeholder(name), {(): at})
        return result

    def _step(self, name: str, at: Location, outer: tuple[str, ...]) -> Native | None:
        result = self.defined.get(name)
        if result is None:
            self.report(at, f"there is no agent {name!r}{nearest(name, self.defined)}")
            return None
        # Without this check a fork that names itself would be translated without end.
        if name in outer:
            self.report(at, f"agents call each other in a cycle: {' -> '.join([*outer, name])}")
            return None
        kind = result.raw.get("type")
        # Before the built-in types, so that the caller can replace them.
        if isinstance(kind, str) and kind in self.outside:
            prompt = result.raw.get("prompt")
            return Native(
                {
                    "name": result.raw.get("id"),
                    "python": self.outside[kind],
                    "input": prompt if isinstance(prompt, str) and prompt else "{{ get_input() }}",
                },
                {
                    (): result.at,
                    ("python",): (*result.at, "type"),
                    ("input",): (*result.at, "prompt"),
                },
            )
        if kind == "loop":
            return self.loop(self, result)
        spec = self._spec(result)
        if spec is None:
            return None
        make = getattr(self, f"_{TYPES[spec.type]}")
        compiled: Native | None = make(spec, result.at, (*outer, name))
        return compiled

    def steps(self, names: list[str], at: Location, outer: tuple[str, ...]) -> list[Native]:
        """Return the agents of some names in order."""
        return [self.step(name, (*at, i), outer) for i, name in enumerate(names)]

    def _spec(self, definition: Definition) -> AgentSpec | None:
        kind = definition.raw.get("type")
        if isinstance(kind, str) and kind not in TYPES:
            self._refuse(kind, definition)
            return None
        # The dialect allows fields in `params` and `config` too; a field of the agent itself wins.
        nested: dict[str, Json] = {}
        for key in ("params", "config"):
            inner = definition.raw.get(key)
            nested |= (
                {k: v for k, v in inner.items() if k in AGENT_FIELDS}
                if isinstance(inner, Mapping)
                else {}
            )
        try:
            spec: AgentSpec = validated(
                AgentSpec, {**nested, **definition.raw}, self.source, definition.at
            )
        except DocumentError as error:
            self.problems += error.problems
            return None
        # The type is only now a text: `type: true` is a boolean in YAML.
        if spec.type not in TYPES:
            self._refuse(spec.type, definition)
            return None
        note_unknown_keys(spec, definition.at, self.note)
        return spec

    def _refuse(self, kind: str, definition: Definition) -> None:
        if kind in MISSING:
            what = f"agents of type {kind} are not supported: {MISSING[kind]}"
            self.report(
                (*definition.at, "type"),
                f"{what}; use a function instead: --agent {kind}=package.module:function",
            )
        else:
            hint = nearest(kind, (*TYPES, "loop")) or listed(kind, ("loop", *TYPES))
            self.report((*definition.at, "type"), f"there is no agent of type {kind!r}{hint}")

    # Agents that use a model.

    def _model_step(self, spec: AgentSpec, at: Location, text: str, **more: Json) -> Native:
        step: dict[str, Json] = {"name": spec.id, "prompt": text, **more}
        if spec.system_prompt:
            step["system"] = spec.system_prompt
        url = spec.model_url or spec.url or spec.llm_url or spec.base_url or ""
        provider = spec.provider or spec.llm_provider or ""
        model = spec.model or spec.llm_model or ""
        chosen = choose(spec.type, provider, model, url, self.defaults)
        if chosen.problem:
            self.report((*at, "provider") if chosen.name else at, chosen.problem)
        elif chosen.name:
            step["model"] = chosen.name
        if chosen.note:
            self.unnamed.setdefault(chosen.note, []).append(spec.id)
        if url:
            step["model_url"] = url
        if spec.temperature is not None:
            step["temperature"] = spec.temperature
        if spec.max_tokens is not None:
            step["max_tokens"] = spec.max_tokens
        if spec.timeout is not None:
            # A single call may use all of the time.
            step |= {"timeout": spec.timeout, "call_timeout": spec.timeout}
        key = "model" if spec.model or not spec.llm_model else "llm_model"
        places: dict[Location, Location] = {
            (): at,
            ("prompt",): self._key_path(at, "prompt"),
            ("model",): self._key_path(at, key),
            ("system",): self._key_path(at, "system_prompt"),
        }
        return Native(step, places)

    def _key_path(self, at: Location, name: str) -> Location:
        """Return the position of a field: in the agent itself, or in its `params` or `config`."""
        for path in ((*at, name), (*at, "params", name), (*at, "config", name)):
            if self.source.text(path) is not None:
                return path
        return (*at, name)

    def _prompted(self, spec: AgentSpec, at: Location) -> str:
        if spec.prompt is None or not spec.prompt.strip():
            self.note(at, "has no prompt; the input is sent unchanged")
            return "{{ get_input() }}"
        for remark in remarks(spec.prompt, self.defined):
            self.note(self._key_path(at, "prompt"), remark)
        return spec.prompt

    def _answer(self, spec: AgentSpec, at: Location, _: tuple[str, ...]) -> Native:
        value = self._data("answer", spec, at) or {"answer": "json"}
        return self._model_step(spec, at, self._prompted(spec, at), **value)

    def _binary(self, spec: AgentSpec, at: Location, _: tuple[str, ...]) -> Native:
        data = self._data("binary", spec, at)
        return self._model_step(spec, at, self._prompted(spec, at), answer="binary", **data)

    def _data(self, kind: str, spec: AgentSpec, at: Location) -> dict[str, Json]:
        """Return the JSON Schema of an agent's answer as a field of its step; empty if it answers as text."""
        own = spec.structured_output
        if not wants_structured_output(own, self.structured):
            return {}
        try:
            schema = schema_of(kind, own, self.structured)
            field = text_field(schema) if asks_by_prompt(spec.type, own, self.structured) else ""
            return {"output": {"schema": schema, **({"otherwise": field} if field else {})}}
        except ValidationError:
            what = "is neither a JSON Schema nor {required: [names], optional: {name: type}, types: {name: type}}"
            self.report((*at, "structured_output", "schema"), what)
            return {}

    def _classification(self, spec: AgentSpec, at: Location, _: tuple[str, ...]) -> Native | None:
        options = spec.options or spec.categories
        if not options:
            self.report(at, "needs options, the list of answers")
            return None
        value = {"options": options, **self._data("classification", spec, at)}
        return self._model_step(
            spec, at, self._prompted(spec, at), answer="classification", **value
        )

    def _validator(self, spec: AgentSpec, at: Location, _: tuple[str, ...]) -> Native:
        return self._criteria_step(spec, at, validator(spec), "loop_convergence")

    def _planned(self, spec: AgentSpec, at: Location, _: tuple[str, ...]) -> Native:
        return self._criteria_step(spec, at, plan_validator(spec, self.defined), "graphscout")

    def _criteria_step(self, spec: AgentSpec, at: Location, text: str, context: str) -> Native:
        if spec.evaluation_target is not None and spec.evaluation_target not in self.defined:
            hint = nearest(spec.evaluation_target, self.defined)
            self.report(
                (*at, "evaluation_target"), f"there is no agent {spec.evaluation_target!r}{hint}"
            )
        weights = spec.custom_weights
        context = spec.scoring_context or context_of(weights, default=context)
        preset: dict[str, Json] = {"level": spec.scoring_preset or "moderate", "context": context}
        if weights:
            preset["weights"] = weights
        if spec.structured_output is not None:
            what = "has no effect: a validator always answers in JSON, criterion by criterion"
            self.note((*at, "structured_output"), what)
        result = self._model_step(spec, at, text, answer="criteria", preset=preset)
        result.step.setdefault("temperature", 0.1)  # the default of the dialect's validators
        result.places["prompt",] = self._key_path(
            at, "custom_prompt" if spec.custom_prompt else "prompt"
        )
        result.places["preset", "weights"] = (*at, "custom_weights")
        return result

    def _structured(self, spec: AgentSpec, at: Location, _: tuple[str, ...]) -> Native:
        return self._model_step(spec, at, structured(spec), answer="json")

    # Agents that use no model.

    def _rule(self, spec: AgentSpec, at: Location, _: tuple[str, ...]) -> Native:
        rule = "says_yes(get_input())"
        if spec.type == "classification":
            rule = f"classified(get_input(), {spec.options or spec.categories or []!r})"
        return Native({"name": spec.id, "set": f"{{{{ {rule} }}}}"}, {(): at})

    def _memory(self, spec: AgentSpec, at: Location, _: tuple[str, ...]) -> Native:
        text = spec.prompt if spec.prompt and spec.prompt.strip() else "{{ get_input() }}"
        writes = (spec.operation or "read") == "write" or spec.type == "memory-writer"
        memory: dict[str, Json] = {"operation": "write" if writes else "read", "text": text}
        if spec.namespace:
            memory["namespace"] = spec.namespace
        if not writes and spec.limit is not None:
            memory["limit"] = spec.limit
        if writes and spec.metadata:
            memory["metadata"] = spec.metadata
        return Native(
            {"name": spec.id, "memory": memory},
            {(): at, ("memory", "text"): self._key_path(at, "prompt")},
        )

    # Agents that call others.

    def _fork(self, spec: AgentSpec, at: Location, outer: tuple[str, ...]) -> Native | None:
        if not spec.targets or not all(spec.targets):
            self.report(at, "needs targets: agents, or lists of agents, to run concurrently")
            return None
        branches: list[Native] = []
        names: set[str] = set()
        for i, targets in enumerate(spec.targets):
            inner = self.steps(targets, (*at, "targets", i), outer)
            if not inner:
                return None
            branch = (
                inner[0]
                # A branch of one agent needs no group.
                if len(inner) == 1
                else _group(str(inner[0].step["name"]), inner, (*at, "targets", i))
            )
            if branch.step["name"] in names:
                # Two branches may begin with the same agent, but steps need unique names.
                branch = Native(
                    {**branch.step, "name": f"{branch.step['name']}-{i + 1}"}, branch.places
                )
            names.add(branch.step["name"])
            branches.append(branch)
        step = {"name": spec.id, "parallel": [branch.step for branch in branches], "output": "all"}
        return placed(step, at, {("parallel",): branches})

    def _join(self, spec: AgentSpec, at: Location, _: tuple[str, ...]) -> Native | None:
        group = spec.group or next(filter(self._is_fork, reversed(list(self.defined))), "")
        if spec.group is None:
            # The last fork before the agent in the order in which agents run.
            order = self.around if spec.id in self.around else tuple(self.defined)
            before = order[: order.index(spec.id)] if spec.id in order else ()
            group = next(filter(self._is_fork, reversed(before)), group)
        if not group:
            self.report(at, "has no fork to join; put a fork before it")
            return None
        if not self._is_fork(group):
            forks = [name for name in self.defined if self._is_fork(name)]
            self.report((*at, "group"), f"there is no fork {group!r}{nearest(group, forks)}")
            return None
        fork = f"steps.{group}" if group.isidentifier() else f"steps[{group!r}]"
        return Native({"name": spec.id, "set": f"{{{{ {fork} }}}}"}, {(): at})

    def _is_fork(self, name: str) -> bool:
        result = self.defined.get(name)
        return result is not None and result.raw.get("type") == "fork"

    def _router(self, spec: AgentSpec, at: Location, outer: tuple[str, ...]) -> Native | None:
        if not spec.decision_key or not spec.routing_map:
            self.report(
                at,
                "needs params with decision_key (an agent) and routing_map (from its answers to agents)",
            )
            return None
        if spec.decision_key not in self.defined:
            hint = nearest(spec.decision_key, self.defined)
            self.report(
                (*at, "params", "decision_key"), f"there is no agent {spec.decision_key!r}{hint}"
            )
            return None
        cases: list[Native] = []
        for i, (key, names) in enumerate(spec.routing_map.items(), 1):
            # An unquoted `true` is a boolean in YAML; agents answer with the word.
            word = str(key).lower() if isinstance(key, bool) else str(key)
            where = (*at, "params", "routing_map", word)
            inner = self.steps(list(names), where, outer)
            if inner:
                case = _group(f"case {i}", inner, where)
                case.step = {
                    "name": f"case {i}",
                    "if": f"routed({spec.decision_key!r}, {word!r})",
                    **case.step,
                }
                cases.append(case)
        if not cases:
            self.report(at, "routing_map contains no agent")
            return None
        step = {"name": spec.id, "steps": [case.step for case in cases], "output": "last"}
        return placed(step, at, {("steps",): cases})

    def _failover(self, spec: AgentSpec, at: Location, outer: tuple[str, ...]) -> Native | None:
        tried: list[Native] = []
        for i, child in enumerate(spec.children or ()):
            where = (*at, "children", i)
            if isinstance(child, Mapping) and isinstance(child.get("id"), str):
                # A child may be defined in place. Later agents can refer to it.
                self.defined = {**self.defined, child["id"]: Definition(child, where)}
                child = child["id"]
            if not isinstance(child, str):
                self.report(where, "a child must be the id of an agent, or an agent with an id")
                continue
            tried.append(self.step(child, where, outer))
        if not tried:
            if not spec.children:
                self.report(at, "needs children: agents to try in order")
            return None
        step = {"name": spec.id, "fallback": [native.step for native in tried]}
        return placed(step, at, {("fallback",): tried})


def _group(name: str, inner: list[Native], at: Location) -> Native:
    step = {"name": name, "steps": [native.step for native in inner], "output": "all"}
    return placed(step, at, {("steps",): inner})
