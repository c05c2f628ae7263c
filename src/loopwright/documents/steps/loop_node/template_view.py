"""The variables of a loop-node document: its input, the agents before a place, the iterations so far."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping

from ....engine.context import Context, Scope
from ....evaluators.answers import AGENTS, agents_in, objects_in, shown
from ....records import History, Iteration
from ....records.codec import Json, text_of
from ....templates import TemplateValue
from ....templates.variables import variables

__all__ = ["CATEGORIES", "MAX_ENTRIES", "LoopNodeView", "NodeScope", "notes_of", "past_loops"]

CATEGORIES = ("insights", "improvements", "mistakes")
MAX_ENTRIES = (
    20  # entries of past iterations in a template; without a limit, prompts would keep growing
)
_LATEST = 5  # lessons of a category in `past_loops_metadata`


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
        return _input(self.value if scope is None else scope.initial, self.number, self.previous)

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


def _input(value: Json, number: int, previous: Mapping[str, Json]) -> TemplateValue:
    if isinstance(value, Mapping) and "input" in value:
        text = text_of(value["input"])
    else:
        text = "" if value is None else text_of(value)
    data = next(objects_in(value), {}) if isinstance(value, str | Mapping) else {}
    # The dialect also reads these through the input, as `input.loop_number`.
    own = {"input": text, "loop_number": number, "previous_outputs": dict(previous)}
    return TemplateValue(text, {**own, **data})
