"""The variables of a loop-node document, and the functions that its templates call, by the names of that dialect.

The variables are the input of the document, the agents before a place and the iterations so far. The documents of the
dialect define the results of functions. What past iterations do not have is empty; the other texts for a missing value
are those of its implementation. Names of roles such as `get_realist_response` are part of the dialect.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Mapping

from ...engine.context import Context, Scope
from ...errors import StepError
from ...evaluators.answers import NO, YES, objects_in, read_binary, read_classification
from ...models.reply_text import clean_text
from ...records import History, Iteration
from ...records.codec import Json, text_of
from ...templates import Expression, Template, TemplateValue, compile_expression, compile_template
from ...templates.variables import TemplatedValue, variables

__all__ = [
    "AGENTS",
    "CATEGORIES",
    "HELPERS",
    "LAST",
    "MAX_ENTRIES",
    "LoopNodeView",
    "NodeScope",
    "agents_in",
    "helpers",
    "node_expression",
    "node_fill",
    "node_template",
    "node_value",
    "notes_of",
    "only_expression",
    "past_loops",
    "plain",
    "reply_text",
    "written",
]

CATEGORIES = ("insights", "improvements", "mistakes")
MAX_ENTRIES = (
    20  # entries of past iterations in a template; without a limit, prompts would keep growing
)
_LATEST = 5  # lessons of a category in `past_loops_metadata`


# The output of a group of agents holds the outputs of its agents under this key.
AGENTS = "$agents"
# The output of the group's last agent, which the next step of the outer workflow receives.
LAST = "$last"
RAW_CONFIDENCE = 0.5  # the confidence of a reply that states none


def agents_in(outputs: Mapping[str, Json]) -> dict[str, Json]:
    """Return the outputs by agent. The agents of a group replace the group."""
    agents: dict[str, Json] = {}
    for name, output in outputs.items():
        if isinstance(output, Mapping) and AGENTS in output:
            agents |= agents_in(output[AGENTS])
        else:
            agents[name] = output
    return agents


def reply_text(output: Json) -> str:
    """Return an agent's output as text, for a group with one paragraph per agent."""
    if isinstance(output, Mapping) and AGENTS in output:
        agents = agents_in(output[AGENTS])
        return "\n\n".join(f"{name}: {reply_text(each)}" for name, each in agents.items())
    if isinstance(output, Mapping) and "response" in output:
        return reply_text(output["response"])
    return "" if output is None else text_of(output)


def shown(output: Json) -> TemplateValue:
    """Return an output for templates: it prints as its text and has the fields of its data."""
    text = reply_text(output)
    if isinstance(output, Mapping) and AGENTS in output:
        agents = {name: shown(each) for name, each in agents_in(output[AGENTS]).items()}
        return TemplateValue(text, {**agents, "response": text, "result": agents})
    data = dict(next(objects_in(output), {})) if isinstance(output, str | Mapping) else {}
    outputs = data.get("result")
    # The output of a loop node: `result` holds the output of each of its agents.
    if "loops_completed" in data and isinstance(outputs, Mapping):
        data["result"] = {name: shown(each) for name, each in outputs.items()}
        return TemplateValue(text, {**data, "response": TemplateValue(text, data)})
    return TemplateValue(
        text, {"confidence": RAW_CONFIDENCE, "result": text, **data, "response": text}
    )


def same_decision(output: Json, key: str) -> bool:
    """Whether an agent's output decides for a key: the same word, or both true or both false."""
    if isinstance(output, Mapping) and "result" in output and "response" not in output:
        output = output["result"]
    decision = clean_text(reply_text(output)).strip().strip("\"'`*. ").casefold()
    expected = key.strip().casefold()
    if decision == expected:
        return True
    # The key of a route may be `true` where the agent answers "yes".
    return (decision in YES and expected in YES) or (decision in NO and expected in NO)


class NodeScope(Scope):
    """The variables around a loop node: the entries of earlier runs, and the threshold of its score."""

    __slots__ = ("max_entries", "recalled", "threshold")

    def __init__(self, name: str, initial: Json, parent: Scope | None, path: str) -> None:
        super().__init__(name, initial, parent, path)
        self.recalled: list[Json] = []
        self.threshold = 0.0
        self.max_entries = MAX_ENTRIES


def notes_of(item: Iteration) -> Iterator[Mapping[str, Json]]:
    """Iterate over the notes of the evaluator of a loop node on an iteration."""
    if item.evaluation is not None:
        yield from (vote for vote in item.evaluation.votes if isinstance(vote, Mapping))


def past_loops(history: History, recalled: list[Json], max_entries: int) -> list[Json]:
    """Return the latest `max_entries` entries: those of earlier runs, then those of the iterations so far."""
    entries = [
        note["past_loop"] for item in history for note in notes_of(item) if "past_loop" in note
    ]
    return [*recalled, *entries][-max_entries:]


class LoopNodeView:
    """The variables at one position: `values` are the names, and template functions read the rest.

    `outputs` are the outputs of a completed iteration, for the templates of its entry.
    """

    def __init__(
        self, ctx: Context, value: Json, outputs: Mapping[str, Json] | None = None
    ) -> None:
        self.ctx = ctx
        self.value = value
        self.completed = outputs or {}
        self.scopes = tuple(_scopes(ctx.scope))
        self.loop = next((scope for scope in self.scopes if scope.number), None)
        self.node = next((scope for scope in self.scopes if isinstance(scope, NodeScope)), None)

    @functools.cached_property
    def values(self) -> dict[str, Json]:
        """The names in a template, besides the helpers."""
        native = variables(self.ctx, self.value)
        native.pop("loop", None)  # in this dialect `loop` is the variable of {% for %}
        return {
            "orchestrator": {"id": self.ctx.path.partition("/")[0]},
            **{name: shown(output) for name, output in self.agents.items()},
            **native,
            # After the agents: an agent named `input` must not replace the input.
            "input": self.input,
            "previous_outputs": self.previous,
            "loop_number": self.number,
            "score": self.score,
            "past_loops_metadata": self.metadata,
        }

    @functools.cached_property
    def outputs(self) -> dict[str, Json]:
        """The outputs by step, including groups. Inner workflows replace outputs of outer ones."""
        outputs: dict[str, Json] = {}
        for scope in reversed(self.scopes):
            # A skipped agent has no output and must not hide an outer agent of the same name.
            outputs |= {name: out for name, out in scope.outputs.items() if out is not None}
        return {**outputs, **self.completed}

    @functools.cached_property
    def agents(self) -> dict[str, Json]:
        """The outputs by agent."""
        return agents_in(self.outputs)

    @functools.cached_property
    def groups(self) -> dict[str, Json]:
        """The outputs of groups: forks, joins, routers."""
        outputs = self.outputs.items()
        return {name: out for name, out in outputs if isinstance(out, Mapping) and AGENTS in out}

    @functools.cached_property
    def previous(self) -> dict[str, Json]:
        """The variable `previous_outputs`."""
        outputs = {**self.groups, **self.agents}
        return {"past_loops": self.past, **{name: shown(out) for name, out in outputs.items()}}

    @functools.cached_property
    def input(self) -> TemplateValue:
        """The input, which renders as its text and has the fields of its data."""
        scope = self.loop or (self.scopes[-1] if self.scopes else None)
        value = self.value if scope is None else scope.initial
        if isinstance(value, Mapping) and "input" in value:
            text = text_of(value["input"])
        else:
            text = "" if value is None else text_of(value)
        data = next(objects_in(value), {}) if isinstance(value, str | Mapping) else {}
        # The dialect also reads these through the input, as `input.loop_number`.
        own = {"input": text, "loop_number": self.number, "previous_outputs": dict(self.previous)}
        return TemplateValue(text, {**own, **data})

    @property
    def number(self) -> int:
        """The number of the present iteration; 1 outside of loops."""
        return self.loop.number if self.loop is not None else 1

    @functools.cached_property
    def latest(self) -> Iteration | None:
        """The last iteration, scored or not."""
        return self.loop.history.last if self.loop is not None else None

    @property
    def score(self) -> Json:
        """The score of the last iteration, or ""."""
        score = self.latest.score if self.latest is not None else None
        return "" if score is None else score

    @functools.cached_property
    def past(self) -> list[Json]:
        """The entries of past iterations; outside of loops, those of the latest loop that ended."""
        if self.loop is None:
            ended = [out for out in self.agents.values() if isinstance(out, Mapping)]
            return next(
                (list(out["past_loops"]) for out in reversed(ended) if "past_loops" in out), []
            )
        recalled, max_entries = (
            (self.node.recalled, self.node.max_entries) if self.node else ([], MAX_ENTRIES)
        )
        return past_loops(self.loop.history, recalled, max_entries)

    @functools.cached_property
    def lessons(self) -> list[Mapping[str, str]]:
        """The lessons of past iterations by category, the latest first."""
        history = self.loop.history if self.loop is not None else ()
        notes = [note for item in history for note in notes_of(item)]
        lessons = [note["lessons"] for note in notes if "lessons" in note]
        recalled = self.node.recalled if self.node is not None else []
        earlier = [entry for entry in recalled if isinstance(entry, Mapping)]
        return [*reversed(lessons), *reversed(earlier)]

    @functools.cached_property
    def metadata(self) -> dict[str, Json]:
        """The latest entry, with the lessons of the latest iterations by category."""
        last = self.past[-1] if self.past else {}
        entry: dict[str, Json] = dict(last) if isinstance(last, Mapping) else {}
        for category in CATEGORIES:
            texts = [lessons.get(category) for lessons in self.lessons[:_LATEST]]
            entry[category] = " | ".join(text for text in texts if text)
        # The entry last: its own fields win over the current ones.
        return {"loop_number": self.number, "score": self.score, **entry}


def _scopes(scope: Scope | None) -> Iterator[Scope]:
    """Iterate over the scopes of a template, from the innermost to that of the document."""
    while scope is not None:
        yield scope
        if scope.variables is not None:
            return
        scope = scope.parent


_NO_RESPONSE = "No response available"
_UNKNOWN = "Unknown"
_ROLES = {
    "progressive": ("progressive_refinement", "radical_progressive"),
    "conservative": ("conservative_refinement", "traditional_conservative"),
    "realist": ("realist_refinement", "pragmatic_realist"),
    "purist": ("purist_refinement", "ethical_purist"),
}


def helpers(view: LoopNodeView) -> dict[str, Callable[..., Json]]:
    """Return the functions that a template may call at this place."""
    functions = _Functions(view)
    return {name: getattr(functions, name) for name in HELPERS}


def _text(value: object) -> str:
    """Return a value as text, None as empty text."""
    value = value.text if isinstance(value, TemplateValue) else value
    return "" if value is None else reply_text(value)


def _fields(value: object) -> Mapping[str, Json]:
    """Return the fields of a value; none if it has no fields."""
    if isinstance(value, TemplateValue):
        return value.fields
    return value if isinstance(value, Mapping) else {}


class _Functions:
    """The functions at one place of a document; each public method is one of them."""

    def __init__(self, view: LoopNodeView) -> None:
        self._view = view

    # The responses of agents.

    def get_agent_response(self, agent: object = "") -> TemplateValue:
        """Return the response of an agent: a text, with the fields of its output such as `response`."""
        name = _text(agent)
        if name in self._view.previous and name != "past_loops":
            response: TemplateValue = self._view.previous[name]
            return response
        missing = f"No response found for {name}"
        return TemplateValue(missing, {"response": missing})

    def safe_get_response(
        self, agent: object = "", default: object = _NO_RESPONSE, previous: object = None
    ) -> Json:
        """Return the response of an agent as text, or a default if there is none."""
        among = self._view.previous if previous is None else _fields(previous)
        return _text(among.get(_text(agent))) or default

    def _role(self, role: str) -> str:
        texts = (_text(self._view.previous.get(name)) for name in _ROLES[role])
        return next((text for text in texts if text), _NO_RESPONSE)

    def get_progressive_response(self) -> str:
        """Return the response of the progressive agent."""
        return self._role("progressive")

    def get_conservative_response(self) -> str:
        """Return the response of the conservative agent."""
        return self._role("conservative")

    def get_realist_response(self) -> str:
        """Return the response of the realist agent."""
        return self._role("realist")

    def get_purist_response(self) -> str:
        """Return the response of the purist agent."""
        return self._role("purist")

    def get_collaborative_responses(self) -> str:
        """Return the responses of the agents of all roles."""
        texts = ((role, self._role(role)) for role in _ROLES)
        lines = [f"{role.title()}: {text}" for role, text in texts if text != _NO_RESPONSE]
        return "\n\n".join(lines) or "No collaborative responses available"

    def get_fork_responses(self, group: object = None) -> Json:
        """Return the responses of a fork by agent; without a name, those of all forks by fork."""
        groups = {
            name: {agent: reply_text(out) for agent, out in agents_in({name: output}).items()}
            for name, output in self._view.groups.items()
        }
        return groups if group is None else groups.get(_text(group), {})

    def joined_results(self) -> Json:
        """Return the responses of the latest fork as a list."""
        last = next(reversed(self._view.groups.items()), None)
        agents = agents_in({last[0]: last[1]}) if last is not None else {}
        return [{"agent_id": name, "response": reply_text(out)} for name, out in agents.items()]

    def get_execution_artifacts(self, *_: object) -> Json:
        """Return the responses of all agents, by agent."""
        return {agent: reply_text(output) for agent, output in self._view.agents.items()}

    def has_context(self, agent: object = "") -> bool:
        """Return whether an agent has a response."""
        return bool(_text(self._view.previous.get(_text(agent))))

    def routed(self, agent: object = "", *keys: object) -> bool:
        """Return whether an agent decided for one of some keys; true, yes and 1 are the same."""
        output = self._view.agents.get(_text(agent))
        return output is not None and any(same_decision(output, _text(key)) for key in keys)

    def says_yes(self, value: object = "") -> bool:
        """Return whether a text says yes, by its first word that is a yes or a no."""
        try:
            return read_binary(_text(value))
        except StepError:
            return False

    def classified(self, value: object = "", options: object = ()) -> str:
        """Return the only one of some options that a text names."""
        names = options if isinstance(options, list | tuple) else [*_fields(options)]
        return read_classification(_text(value), [_text(option) for option in names])

    def to_validate(self, target: object = "") -> str:
        """Return the input of a validator: the response of an agent, or all responses as JSON."""
        if _text(target):
            return _text(self.get_agent_response(target))
        return text_of(self.get_execution_artifacts())

    def round_before(self, target: object = "") -> str:
        """Return the response of an agent in the last iteration, and its score; "" in the first one."""
        view = self._view
        if view.latest is None:
            return ""
        agents = agents_in(view.latest.output if isinstance(view.latest.output, Mapping) else {})
        name = _text(target)
        texts = [f"{agent}: {reply_text(output)}" for agent, output in agents.items()]
        if name in agents:
            texts = [reply_text(agents[name])]
        return "\n".join([*texts, *([f"Its score: {view.score:g}"] if view.score != "" else [])])

    # Memory.

    def format_memory_query(self, perspective: object = "", topic: object = None) -> str:
        """Return a query for a memory."""
        about = _text(self._view.input if topic is None else topic)
        return f"{_text(perspective).title()} perspective on: {about}"

    def get_my_past_memory(self, kind: object = "") -> str:
        """Return the memories of an agent's type that were read."""
        outputs = self._view.agents.values()
        memories = [m for output in outputs for m in _fields(output).get("memories") or ()]
        if not memories:
            return "No past memory available"
        mine = [
            _text(memory["content"])
            for memory in memories
            if _fields(memory.get("metadata")).get("agent_type") == _text(kind)
        ]
        return "\n".join(mine[-3:]) or "No past memory for this agent type"

    def get_my_past_decisions(self, agent: object = "") -> str:
        """Return the entries of past iterations under an agent's name, or its responses in them."""
        view, name = self._view, _text(agent)
        if not view.past:
            return "No past decisions available"
        entries = [entry for entry in map(_fields, view.past) if name in entry]
        lines = [
            f"Loop {_text(entry.get('round', entry.get('loop_number', '?')))}: {_text(entry[name])}"
            for entry in entries
        ] or [f"Loop {number}: {text}" for number, text in self._past_responses(name)]
        return "\n".join(lines[-2:]) or f"No past decisions for {name}"

    def _past_responses(self, agent: str) -> Iterator[tuple[int, str]]:
        loop = self._view.loop
        for item in loop.history if loop is not None else ():
            agents = agents_in(item.output if isinstance(item.output, Mapping) else {})
            if agent in agents:
                yield item.number, reply_text(agents[agent])

    def get_agent_memory_context(self, kind: object = "", agent: object = "") -> str:
        """Return the memories and decisions of an agent."""
        parts = {
            "PAST MEMORY": self.get_my_past_memory(kind),
            "PAST DECISIONS": self.get_my_past_decisions(agent),
        }
        texts = [f"{head}:\n{text}" for head, text in parts.items() if text[:8] != "No past "]
        return "\n\n".join(texts) or "No past context available"

    # Iterations, which the dialect calls loops or rounds.

    def get_loop_number(self) -> int:
        """Return the number of the iteration."""
        return self._view.number

    def has_past_loops(self) -> bool:
        """Return whether there are past iterations."""
        return bool(self._view.past)

    def get_past_loops(self) -> Json:
        """Return the entries of past iterations."""
        return self._view.past

    def get_past_loops_metadata(self) -> Json:
        """Return the latest entry, with the latest lessons."""
        return self._view.metadata

    def get_past_insights(self) -> Json:
        """Return the insights of the last iteration."""
        lessons = self._view.lessons
        insights = lessons[0].get("insights") if lessons else None
        latest = self._latest_entry().get("synthesis_insights")
        return insights or latest or ""

    def get_past_loop_data(self, key: object = None) -> Json:
        """Return a field of the latest entry, or the entry as text."""
        entry = self._latest_entry()
        if key is None:
            return "\n".join(f"{name}: {_text(value)}" for name, value in entry.items())
        return entry.get(_text(key), "")

    def get_round_info(self) -> str:
        """Return the `round` of the latest entry, or the number of the iteration."""
        return _text(self._latest_entry().get("round", str(self._view.number)))

    def get_score_threshold(self) -> Json:
        """Return the score that satisfies the loop."""
        return self._view.node.threshold if self._view.node is not None else 0.8

    def get_loop_rounds(self) -> Json:
        """Return the number of past iterations."""
        if self._view.loop is not None:
            return len(self._view.loop.history)
        return self._ended_loop().get("loops_completed", _UNKNOWN)

    def get_final_score(self) -> Json:
        """Return the latest score."""
        if self._view.loop is not None:
            return self._view.score if self._view.score != "" else _UNKNOWN
        score = self._ended_loop().get("final_score")
        return _UNKNOWN if score is None else score

    def get_loop_status(self) -> str:
        """Return the status of the loop."""
        if self._view.loop is not None:
            return "running"
        return "exhausted" if self._ended_loop().get("threshold_met") is False else "completed"

    def get_loop_output(self, agent: object = None, previous: object = None) -> Json:
        """Return the output of a loop."""
        if previous is not None:
            return _fields(_fields(previous).get(_text(agent)))
        output = self._view.agents.get(_text(agent))
        return output if isinstance(output, Mapping) else {}

    def get_debate_evolution(self, *_: object) -> str:
        """Return the scores of past iterations as a sentence."""
        loop = self._view.loop
        scores = [
            f"Round {item.number}: Agreement {_UNKNOWN if item.score is None else f'{item.score:g}'}"
            for item in (loop.history if loop is not None else ())
        ]
        return " -> ".join(scores) or "First round of debate"

    def format_loop_metadata(self, entries: object = None, most: object = 5) -> str:
        """Return entries as lines."""
        every = entries if isinstance(entries, list) else self._view.past
        count = most if isinstance(most, int) and most > 0 else 5
        lines = [
            f"Loop {number}: score={_text(entry.get('score')) or 'N/A'}, "
            f"status={_text(entry.get('status')) or 'completed'}"
            for number, entry in enumerate(map(_fields, every[-count:]), 1)
        ]
        return "\n".join(lines) or "No previous loops"

    def _latest_entry(self) -> Mapping[str, Json]:
        return _fields(self._view.past[-1]) if self._view.past else {}

    def _ended_loop(self) -> Mapping[str, Json]:
        """Return the output of the latest loop before this place, or nothing."""
        outputs = (o for o in reversed(self._view.agents.values()) if isinstance(o, Mapping))
        return next((output for output in outputs if "loops_completed" in output), {})

    # Inputs and values.

    def get_input(self) -> Json:
        """Return the input, which renders as its text."""
        return self._view.input

    def get_input_field(self, *args: object) -> Json:
        """Return a field: of the input, or of a first argument that is not a name."""
        names = list(args)
        owner: object = self._view.input
        if names and not isinstance(names[0], str):
            owner = names.pop(0)
        name = _text(names[0]) if names else ""
        return _fields(owner).get(name, names[1] if len(names) > 1 else "")

    def safe_get(self, owner: object = None, key: object = "", default: object = "") -> Json:
        """Return a field, or a default."""
        value = _fields(owner).get(_text(key))
        return default if value is None else value

    def safe_str(self, value: object = None) -> str:
        """Return a value as text, None as empty text."""
        return _text(value)

    def truncate(self, value: object = "", length: object = 100, suffix: object = "...") -> str:
        """Return a text of at most `length` characters, the suffix included."""
        text, end = _text(value), _text(suffix)
        most = max(length, 0) if isinstance(length, int) else 100
        return text if len(text) <= most else text[: max(most - len(end), 0)] + end

    def to_json_string(self, value: object = None, indent: object = None) -> str:
        """Return a value as JSON."""
        # A template may pass any number; a large one would fill the memory with blanks.
        space = indent if isinstance(indent, int) and 0 <= indent <= 8 else None
        return json.dumps(plain(value), ensure_ascii=False, indent=space)

    # Other names of the dialect.
    get_current_topic = get_input
    truncate_text = truncate
    tojson = to_json_string


HELPERS = frozenset(name for name in vars(_Functions) if not name.startswith("_"))


# Undefined names are empty in this dialect, so no name is required before the run.
_NO_NAMES: frozenset[str] = frozenset()
_Fill = Callable[[LoopNodeView], Json]


def node_template(source: str) -> Template:
    """Compile a template. An expression with an undefined name is empty, with a warning.

    Raises:
        TemplateError: For an invalid template, with the position in the text.
    """
    return compile_template(source, strict=False, helpers=HELPERS)


def node_fill(source: Json) -> TemplatedValue:
    """Compile the templates inside a value. A text that is one expression has the value of that expression.

    Raises:
        TemplateError: As `node_template`.
    """
    return TemplatedValue(source, _part(source), _NO_NAMES, LoopNodeView)


def node_expression(source: str) -> TemplatedValue:
    """Compile an expression, such as that of an `if`.

    Raises:
        TemplateError: For an invalid expression.
    """
    return TemplatedValue(source, _evaluated(source), _NO_NAMES, LoopNodeView)


def written(
    template: Template, view: LoopNodeView, values: Mapping[str, Json], ctx: Context
) -> str:
    """Render a template at its place; an undefined name is a warning."""
    done = template.render_noting(values, helpers(view))
    for warning in done.warnings:
        ctx.warn(f"template: {warning}; it is left empty", code="undefined_name")
    return done.text


def plain(value: object) -> Json:
    """Return a value of a template as plain data."""
    if isinstance(value, TemplateValue):
        return value.text
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def _part(source: Json) -> _Fill:
    # Most values have no template, and compiling one is slow.
    if isinstance(source, str) and "{" in source:
        if expression := only_expression(source):
            return _evaluated(expression)
        template = node_template(source)
        return lambda view: written(template, view, view.values, view.ctx)
    if isinstance(source, Mapping):
        parts = {key: _part(item) for key, item in source.items()}
        return lambda view: {key: part(view) for key, part in parts.items()}
    if isinstance(source, list):
        items = [_part(item) for item in source]
        return lambda view: [item(view) for item in items]
    return lambda _: source


def only_expression(source: str) -> str:
    """Return the expression that a text consists of, "" if it is another text."""
    bare = source.strip()
    inner = bare[2:-2]
    alone = bare.startswith("{{") and bare.endswith("}}") and not ("{{" in inner or "}}" in inner)
    return inner.strip("-").strip() if alone else ""


def node_value(source: str) -> Expression:
    """Compile an expression; an undefined name is empty.

    Raises:
        TemplateError: For an invalid expression.
    """
    return compile_expression(source, strict=False, helpers=HELPERS)


def _evaluated(source: str) -> _Fill:
    expression = node_value(source)
    return lambda view: plain(expression.evaluate(view.values, helpers(view)))
