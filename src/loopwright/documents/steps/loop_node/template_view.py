"""What a template of a loop-node document sees: its input, the agents before it, the rounds so far."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

from ....engine.context import Context
from ....engine.scope import Scope
from ....evaluators.parsing.replies import AGENTS, agents_in, objects_in, shown
from ....records import Iteration
from ....records.codec import Json, text_of
from ....templates import TemplateValue
from ....templates.variables import variables
from .scope import CATEGORIES, MOST, NodeScope, notes_of, past_loops

__all__ = ["LoopNodeView"]

_LATEST = 5  # lessons of a category that `past_loops_metadata` shows


class LoopNodeView:
    """The place of one template: `values` are its names, and helpers ask for the rest.

    `outputs` are those of a round that is over, for the templates of its entry.
    """

    def __init__(
        self, ctx: Context, value: Json, outputs: Mapping[str, Json] | None = None
    ) -> None:
        self.ctx = ctx
        self.value = value
        self.given = outputs
        self.scopes = tuple(_scopes(ctx.scope))
        self.round = next((scope for scope in self.scopes if scope.number), None)
        node = next((scope for scope in self.scopes if isinstance(scope, NodeScope)), None)
        self.node: NodeScope | None = node

    @functools.cached_property
    def values(self) -> dict[str, Any]:
        """The names that a template may use, beside the helpers."""
        native = variables(self.ctx, self.value)
        native.pop("loop", None)  # `loop` belongs to {% for %}
        return {
            "orchestrator": {"id": self.ctx.path.partition("/")[0]},
            **{name: shown(output) for name, output in self.agents.items()},
            **native,
            "input": self.input,
            "previous_outputs": self.previous,
            "loop_number": self.number,
            "score": self.score,
            "past_loops_metadata": self.metadata,
        }

    @functools.cached_property
    def outputs(self) -> dict[str, Json]:
        """The outputs by step, groups included, those of outer workflows under those of inner ones."""
        found: dict[str, Json] = {}
        for scope in reversed(self.scopes):
            found |= {name: output for name, output in scope.outputs.items() if output is not None}
        return {**found, **(self.given or {})}

    @functools.cached_property
    def agents(self) -> dict[str, Json]:
        """The outputs by agent."""
        return agents_in(self.outputs)

    @functools.cached_property
    def groups(self) -> dict[str, Json]:
        """The outputs of groups: forks, joins, routers."""
        found = self.outputs.items()
        return {name: out for name, out in found if isinstance(out, Mapping) and AGENTS in out}

    @functools.cached_property
    def previous(self) -> dict[str, Any]:
        """What templates see as `previous_outputs`."""
        found: dict[str, Any] = {"past_loops": self.past}
        found |= {name: shown(output) for name, output in self.groups.items()}
        return {**found, **{name: shown(output) for name, output in self.agents.items()}}

    @functools.cached_property
    def input(self) -> TemplateValue:
        """The input: it prints as its text and has the fields of its data."""
        scope = self.round or (self.scopes[-1] if self.scopes else None)
        return _input(self.value if scope is None else scope.initial, self.number, self.previous)

    @property
    def number(self) -> int:
        """The number of the present round; 1 outside of loops."""
        return self.round.number if self.round is not None else 1

    @functools.cached_property
    def latest(self) -> Iteration | None:
        """The round before the present one, if it was scored or not."""
        return self.round.history.last if self.round is not None else None

    @property
    def score(self) -> Any:
        """The score of the round before, "" if there is none."""
        score = self.latest.score if self.latest is not None else None
        return "" if score is None else score

    @functools.cached_property
    def past(self) -> list[Json]:
        """The entries of past rounds; outside of loops, those of a loop that ended before."""
        if self.round is None:
            ended = [out for out in self.agents.values() if isinstance(out, Mapping)]
            return next(
                (list(out["past_loops"]) for out in reversed(ended) if "past_loops" in out), []
            )
        recalled, most = (self.node.recalled, self.node.most) if self.node else ([], MOST)
        return past_loops(self.round.history, recalled, most)

    @functools.cached_property
    def lessons(self) -> list[Mapping[str, str]]:
        """The lessons of past rounds by category, the newest first."""
        history = self.round.history if self.round is not None else ()
        found = [
            note["lessons"] for item in history for note in notes_of(item) if "lessons" in note
        ]
        recalled = (
            [entry for entry in self.node.recalled if isinstance(entry, Mapping)]
            if self.node
            else []
        )
        return [*reversed(found), *reversed(recalled)]

    @functools.cached_property
    def metadata(self) -> dict[str, Any]:
        """The latest entry, with the lessons of the latest rounds by category."""
        last = self.past[-1] if self.past else {}
        found: dict[str, Any] = dict(last) if isinstance(last, Mapping) else {}
        for category in CATEGORIES:
            texts = [lessons.get(category) for lessons in self.lessons[:_LATEST]]
            joined = " | ".join(text for text in texts if text)
            found[category] = joined or f"No {category} available"
        return {"loop_number": self.number, "score": self.score, **found}


def _scopes(scope: Scope | None) -> Iterator[Scope]:
    """Iterate over the scopes that a template sees, inside out: to the document's own."""
    while scope is not None:
        yield scope
        if scope.variables is not None:
            return
        scope = scope.parent


def _input(value: Json, number: int, previous: Mapping[str, Any]) -> TemplateValue:
    if isinstance(value, Mapping) and "input" in value:
        text = text_of(value["input"])
    else:
        text = "" if value is None else text_of(value)
    data = next(objects_in(value), {}) if isinstance(value, str | Mapping) else {}
    own = {"input": text, "loop_number": number, "previous_outputs": dict(previous)}
    return TemplateValue(text, {**own, **data})
