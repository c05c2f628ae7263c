"""The agents of loop-node documents as native steps, each for itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import DocumentError, Problem, listed, nearest
from .loop_nodes_fields import AgentSpec
from .loop_nodes_known import IGNORED, KNOWN, MISSING, TYPES
from .loop_nodes_lints import remarks
from .loop_nodes_models import Defaults, choose
from .loop_nodes_texts import plan_validator, structured, validator
from .source import Path, Source
from .validating import validated

__all__ = ["Agents", "Definition", "Native", "notes_on", "placed"]

Report = Callable[[Path, str], None]


@dataclass(frozen=True)
class Definition:
    """An agent as the document has it, and where."""

    raw: Mapping[str, Any]
    at: Path


@dataclass
class Native:
    """A native step, and where its parts come from: `places` by path inside the step."""

    step: dict[str, Any]
    places: dict[Path, Path] = field(default_factory=dict)


def placed(step: dict[str, Any], at: Path, inner: Mapping[Path, list[Native]]) -> Native:
    """Return a step with lists of steps in it, by their paths."""
    places: dict[Path, Path] = {(): at}
    for path, natives in inner.items():
        for i, native in enumerate(natives):
            places |= {(*path, i, *below): where for below, where in native.places.items()}
    return Native(step, places)


def notes_on(spec: Any, at: Path, note: Report, known: frozenset[str] = IGNORED) -> None:
    """Note the keys that have no effect, with the nearest one that has."""
    for name in spec.model_extra or ():
        if name not in known:
            hint = nearest(name, type(spec).model_fields)
            note((*at, name), f"{name!r} has no effect{hint}")


@dataclass
class Agents:
    """The agents that one queue may name, and what they become.

    `loop` translates a loop node; `outside` are functions for types that need a backend.
    """

    source: Source
    known: Mapping[str, Definition]
    defaults: Defaults
    outside: Mapping[str, str]
    report: Report
    note: Report
    loop: Callable[[Agents, Definition], Native | None]
    problems: list[Problem]
    unnamed: dict[str, list[str]]
    around: tuple[str, ...] = ()

    def step(self, name: str, at: Path, around: tuple[str, ...] = ()) -> Native | None:
        """Return the agent of a name as a native step; None if problems were found."""
        found = self.known.get(name)
        if found is None:
            self.report(at, f"there is no agent {name!r}{nearest(name, self.known)}")
            return None
        if name in around:
            self.report(
                at, f"agents lead to each other in a circle: {' -> '.join([*around, name])}"
            )
            return None
        kind = found.raw.get("type")
        if isinstance(kind, str) and kind in self.outside:
            return self._outside(found, self.outside[kind])
        if kind == "loop":
            return self.loop(self, found)
        spec = self._spec(found)
        if spec is None:
            return None
        make = getattr(self, f"_{TYPES[spec.type]}")
        made: Native | None = make(spec, found.at, (*around, name))
        return made

    def steps(self, names: list[str], at: Path, around: tuple[str, ...]) -> list[Native]:
        """Return the agents of some names in order, without those that cannot be."""
        found = [self.step(name, (*at, i), around) for i, name in enumerate(names)]
        return [native for native in found if native is not None]

    def _spec(self, found: Definition) -> AgentSpec | None:
        kind = found.raw.get("type")
        if isinstance(kind, str) and kind not in TYPES:
            self._refuse(kind, found)
            return None
        nested: dict[str, Any] = {}
        for key in ("params", "config"):
            inner = found.raw.get(key)
            nested |= (
                {k: v for k, v in inner.items() if k in KNOWN} if isinstance(inner, Mapping) else {}
            )
        try:
            spec: AgentSpec = validated(AgentSpec, {**nested, **found.raw}, self.source, found.at)
        except DocumentError as error:
            self.problems += error.problems
            return None
        if spec.type not in TYPES:  # no text as it is written, such as true
            self._refuse(spec.type, found)
            return None
        notes_on(spec, found.at, self.note)
        return spec

    def _refuse(self, kind: str, found: Definition) -> None:
        if kind in MISSING:
            what = f"agents of type {kind} cannot run: {MISSING[kind]}"
            self.report(
                (*found.at, "type"),
                f"{what}; a function can: --agent {kind}=package.module:function",
            )
        else:
            hint = nearest(kind, (*TYPES, "loop")) or listed(kind, ("loop", *TYPES))
            self.report((*found.at, "type"), f"there is no agent of type {kind!r}{hint}")

    def _outside(self, found: Definition, reference: str) -> Native:
        step: dict[str, Any] = {"name": found.raw.get("id"), "python": reference}
        prompt = found.raw.get("prompt")
        step["input"] = prompt if isinstance(prompt, str) and prompt else "{{ get_input() }}"
        places: dict[Path, Path] = {(): found.at, ("python",): (*found.at, "type")}
        return Native(step, places | {("input",): (*found.at, "prompt")})

    # Agents that ask a model.

    def _asked(self, spec: AgentSpec, at: Path, text: str, **more: Any) -> Native:
        step: dict[str, Any] = {"name": spec.id, "prompt": text, **more}
        if spec.system_prompt:
            step["system"] = spec.system_prompt
        url = spec.model_url or spec.url or spec.llm_url or spec.base_url or ""
        provider = spec.provider or spec.llm_provider or ""
        model = spec.model or spec.llm_model or ""
        chosen = choose(spec.type, provider, model, url, self.defaults)
        if chosen.problem:
            self.report((*at, "provider"), chosen.problem)
        else:
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
            step |= {"timeout": spec.timeout, "call_timeout": spec.timeout}
        key = "model" if spec.model or not spec.llm_model else "llm_model"
        places: dict[Path, Path] = {
            (): at,
            ("model",): (*at, key),
            ("system",): (*at, "system_prompt"),
        }
        return Native(step, places)

    def _prompted(self, spec: AgentSpec, at: Path) -> str:
        if spec.prompt is None or not spec.prompt.strip():
            self.note(at, "has no prompt, and asks the input as it is")
            return "{{ get_input() }}"
        for remark in remarks(spec.prompt, self.known):
            self.note((*at, "prompt"), remark)
        return spec.prompt

    def _answer(self, spec: AgentSpec, at: Path, _: tuple[str, ...]) -> Native:
        return self._asked(spec, at, self._prompted(spec, at), answer="json")

    def _binary(self, spec: AgentSpec, at: Path, _: tuple[str, ...]) -> Native:
        return self._asked(spec, at, self._prompted(spec, at), answer="binary")

    def _classification(self, spec: AgentSpec, at: Path, _: tuple[str, ...]) -> Native | None:
        options = spec.options or spec.categories
        if not options:
            self.report(at, "needs options: the answers that there are")
            return None
        return self._asked(
            spec, at, self._prompted(spec, at), answer="classification", options=options
        )

    def _validator(self, spec: AgentSpec, at: Path, _: tuple[str, ...]) -> Native:
        return self._judged(spec, at, validator(spec), spec.scoring_context or "loop_convergence")

    def _planned(self, spec: AgentSpec, at: Path, _: tuple[str, ...]) -> Native:
        return self._judged(
            spec, at, plan_validator(spec, self.known), spec.scoring_context or "graphscout"
        )

    def _judged(self, spec: AgentSpec, at: Path, text: str, context: str) -> Native:
        if spec.evaluation_target is not None and spec.evaluation_target not in self.known:
            hint = nearest(spec.evaluation_target, self.known)
            self.report(
                (*at, "evaluation_target"), f"there is no agent {spec.evaluation_target!r}{hint}"
            )
        preset = {"level": spec.scoring_preset or "moderate", "context": context}
        made = self._asked(spec, at, text, answer="criteria", preset=preset)
        made.step.setdefault("temperature", 0.1)
        made.places["prompt",] = (*at, "custom_prompt")
        return made

    def _structured(self, spec: AgentSpec, at: Path, _: tuple[str, ...]) -> Native:
        return self._asked(spec, at, structured(spec), answer="json")

    # Agents that ask nobody.

    def _rule(self, spec: AgentSpec, at: Path, _: tuple[str, ...]) -> Native:
        rule = "says_yes(get_input())"
        if spec.type == "classification":
            rule = f"classified(get_input(), {spec.options or spec.categories or []!r})"
        return Native({"name": spec.id, "set": f"{{{{ {rule} }}}}"}, {(): at})

    def _memory(self, spec: AgentSpec, at: Path, _: tuple[str, ...]) -> Native:
        text = spec.prompt if spec.prompt and spec.prompt.strip() else "{{ get_input() }}"
        writes = (spec.operation or "read") == "write" or spec.type == "memory-writer"
        memory: dict[str, Any] = {"operation": "write" if writes else "read", "text": text}
        if spec.namespace:
            memory["namespace"] = spec.namespace
        if not writes and spec.limit is not None:
            memory["limit"] = spec.limit
        if writes and spec.metadata:
            memory["metadata"] = spec.metadata
        return Native(
            {"name": spec.id, "memory": memory}, {(): at, ("memory", "text"): (*at, "prompt")}
        )

    # Agents that lead to others.

    def _fork(self, spec: AgentSpec, at: Path, around: tuple[str, ...]) -> Native | None:
        if not spec.targets or not all(spec.targets):
            self.report(at, "needs targets: agents, or lists of agents, that run at once")
            return None
        branches: list[Native] = []
        names: set[str] = set()
        for i, targets in enumerate(spec.targets):
            inner = self.steps(targets, (*at, "targets", i), around)
            if not inner:
                return None
            branch = (
                inner[0]
                if len(inner) == 1
                else _group(str(inner[0].step["name"]), inner, (*at, "targets", i))
            )
            if branch.step["name"] in names:
                branch = Native(
                    {**branch.step, "name": f"{branch.step['name']}-{i + 1}"}, branch.places
                )
            names.add(branch.step["name"])
            branches.append(branch)
        step = {"name": spec.id, "parallel": [branch.step for branch in branches], "output": "all"}
        return placed(step, at, {("parallel",): branches})

    def _join(self, spec: AgentSpec, at: Path, _: tuple[str, ...]) -> Native | None:
        group = spec.group or next((f for f in reversed(list(self.known)) if self._is_fork(f)), "")
        if spec.group is None:
            group = self._fork_before(spec.id) or group
        if not group:
            self.report(at, "joins nothing: there is no fork before it")
            return None
        if not self._is_fork(group):
            forks = [name for name in self.known if self._is_fork(name)]
            self.report((*at, "group"), f"there is no fork {group!r}{nearest(group, forks)}")
            return None
        fork = f"steps.{group}" if group.isidentifier() else f"steps[{group!r}]"
        return Native({"name": spec.id, "set": f"{{{{ {fork} }}}}"}, {(): at})

    def _is_fork(self, name: str) -> bool:
        found = self.known.get(name)
        return found is not None and found.raw.get("type") == "fork"

    def _fork_before(self, name: str) -> str:
        """Return the fork that precedes an agent most nearly in the order in which they run, or ""."""
        order = self.around if name in self.around else tuple(self.known)
        before = order[: order.index(name)] if name in order else ()
        return next((each for each in reversed(before) if self._is_fork(each)), "")

    def _router(self, spec: AgentSpec, at: Path, around: tuple[str, ...]) -> Native | None:
        if not spec.decision_key or not spec.routing_map:
            self.report(
                at,
                "needs params: decision_key, an agent, and routing_map, from its answers to agents",
            )
            return None
        if spec.decision_key not in self.known:
            hint = nearest(spec.decision_key, self.known)
            self.report(
                (*at, "params", "decision_key"), f"there is no agent {spec.decision_key!r}{hint}"
            )
            return None
        cases: list[Native] = []
        for i, (key, names) in enumerate(spec.routing_map.items(), 1):
            word = str(key).lower() if isinstance(key, bool) else str(key)
            where = (*at, "params", "routing_map", word)
            inner = self.steps(list(names), where, around)
            if inner:
                case = _group(f"case {i}", inner, where)
                case.step = {
                    "name": f"case {i}",
                    "if": f"routed({spec.decision_key!r}, {word!r})",
                    **case.step,
                }
                cases.append(case)
        if not cases:
            self.report(at, "routing_map leads to no agent")
            return None
        step = {"name": spec.id, "steps": [case.step for case in cases], "output": "last"}
        return placed(step, at, {("steps",): cases})

    def _failover(self, spec: AgentSpec, at: Path, around: tuple[str, ...]) -> Native | None:
        tried: list[Native] = []
        for i, child in enumerate(spec.children or ()):
            where = (*at, "children", i)
            if isinstance(child, Mapping) and isinstance(child.get("id"), str):
                self.known = {**self.known, child["id"]: Definition(child, where)}
                child = child["id"]
            if not isinstance(child, str):
                self.report(where, "a child is the id of an agent, or an agent with an id")
                continue
            native = self.step(child, where, around)
            if native is not None:
                tried.append(native)
        if not tried:
            if not spec.children:
                self.report(at, "needs children: agents that are tried in order")
            return None
        step = {"name": spec.id, "fallback": [native.step for native in tried]}
        return placed(step, at, {("fallback",): tried})


def _group(name: str, inner: list[Native], at: Path) -> Native:
    step = {"name": name, "steps": [native.step for native in inner], "output": "all"}
    return placed(step, at, {("steps",): inner})
