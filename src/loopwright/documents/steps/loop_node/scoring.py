"""The score of an iteration, read from the outputs of its agents."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from ...._regex import PatternTimeout
from ....dialects.orka.presets import weighted
from ....evaluators.answers import agents_in, objects_in, reply_text
from ....evaluators.score import ScoreReading, finder, read_score, read_score_by_pattern
from ....evaluators.trend import agreement
from ....models.reply_text import clean_text, normalise_reply
from ....records import Evaluation
from ....records.codec import Json

__all__ = ["BUILT_IN", "Scorer", "Strategy", "looks_like_scorer"]

# The labels that are searched if the document has no pattern.
BUILT_IN = tuple(
    rf"{label}\s*[:=]\s*([0-9.]+)"
    for label in (
        "SCORE", "FINAL[_ ]SCORE", "QUALITY(?:[_ ]SCORE)?", "RATING", "CONSENSUS(?:[_ ]SCORE)?",
        "AGREEMENT(?:[_ ]SCORE)?", "CONFIDENCE", "OVERALL(?:[_ ]SCORE)?",
    )
)  # fmt: skip
_LOOKS_LIKE = re.compile(r"scor|(?<![a-z])rat(?:er|ing)|moderator", re.IGNORECASE)
# The members of a validator's output, the more precise one first.
_VALIDATOR_SCORES = ("weighted_score", "validation_score")


def looks_like_scorer(agent: str) -> bool:
    """Return whether the ID of an agent is that of a scorer."""
    return _LOOKS_LIKE.search(agent) is not None


@dataclass(frozen=True)
class Strategy:
    """One way to read a score: by patterns in text, or from the field `key` of the output.

    Only the outputs of `agents` are read, in that order. Default: all agents that may score.
    """

    patterns: tuple[str, ...] = ()
    key: str = ""
    agents: tuple[str, ...] = ()


@dataclass(frozen=True)
class Scorer:
    """The rules for the score: the booleans of a preset, then strategies over the outputs of agents.

    Only the agents in `first` are read if there are any, otherwise only those with the ID of a scorer,
    otherwise all of them from the last to the first. The last of several matches counts. With `earliest`,
    all agents are read in the order in which they ran, and the first match counts. Without a match the
    score is the agreement of two or more agents if `agree` is set, otherwise `fallback`, otherwise
    undecided. `scale` is the scale of numbers without a unit.
    """

    # The names of these fields, and those of `Strategy`, are part of recorded fingerprints, by `repr`.
    strategies: tuple[Strategy, ...] = (Strategy(BUILT_IN),)
    first: tuple[str, ...] = ()
    weights: Mapping[str, float] = field(default_factory=dict)
    fallback: float | None = None
    scale: tuple[float, float] = (0.0, 1.0)
    earliest: bool = False
    agree: bool = False

    def evaluate(self, outputs: Mapping[str, Json]) -> Evaluation:
        """Return the evaluation of the outputs by agent; undecided if there is no score."""
        agents = agents_in(outputs)
        if self.weights and (evaluation := self._booleans(agents)) is not None:
            return evaluation
        problem = "no agent gave a score"
        for agent, reading in self._readings(agents):
            if reading.score is not None:
                note: dict[str, Json] = {"agent": agent, "found": list(reading.found)}
                if reading.ambiguous:
                    note["ambiguous"] = True
                return Evaluation(reading.score, votes=(note,))
            # "Off its scale" explains more than "no agent gave a score".
            if reading.problem != "missing":
                problem = f"{agent}: {reading.detail}"
        if (evaluation := self._validators(agents) or self._agreed(agents)) is not None:
            return evaluation
        if self.fallback is not None:
            return Evaluation(self.fallback, feedback=f"{problem}; the fallback score is used")
        return Evaluation(undecided=True, feedback=problem)

    def candidates(self, outputs: Mapping[str, Json]) -> list[str]:
        """Return the agents that are expected to score, the most likely first."""
        agents = agents_in(outputs)
        named = next((s.agents for s in self.strategies if s.agents), ())
        return [agent for agent in named if agent in agents] or self._order(agents)

    def wanted(self) -> str:
        """Return the expected form of a score in words."""
        low, high = self.scale
        number = f"a number from {low:g} to {high:g}"
        pattern = next((text for s in self.strategies for text in s.patterns), BUILT_IN[0])
        like = f"`SCORE: {low + 0.85 * (high - low):g}`"
        return f"{number}, like {like}" if pattern in BUILT_IN else f"{number} that {pattern} finds"

    def _order(self, agents: Mapping[str, Json]) -> list[str]:
        named = [agent for agent in self.first if agent in agents]
        if self.earliest:
            return [*named, *(agent for agent in agents if agent not in named)]
        if named:
            return named
        latest = list(reversed(list(agents)))
        return [agent for agent in latest if looks_like_scorer(agent)] or latest

    def _readings(self, agents: Mapping[str, Json]) -> Iterator[tuple[str, ScoreReading]]:
        for strategy in self._one_by_one() if self.earliest else self.strategies:
            named = [agent for agent in strategy.agents if agent in agents]
            for agent in named if strategy.agents else self._order(agents):
                yield agent, self._by(strategy, agents[agent])

    def _one_by_one(self) -> Iterator[Strategy]:
        """Iterate over the strategies, one for each pattern, so that each pattern is tried on all agents."""
        for strategy in self.strategies:
            yield from (replace(strategy, patterns=(text,)) for text in strategy.patterns)
            if not strategy.patterns:
                yield strategy

    def _by(self, strategy: Strategy, output: Json) -> ScoreReading:
        if not strategy.key:
            return _read(reply_text(output), strategy.patterns, self.scale, self.earliest)
        for data in objects_in(output):
            if strategy.key in data:
                return self._field(data[strategy.key])
        if strategy.agents and strategy.key == "response":
            return self._field(reply_text(output))
        return read_score("", label="score")

    def _field(self, value: Json) -> ScoreReading:
        """Read a field: a number, or a text in which a pattern finds one."""
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            return read_score("", label="score")
        alone = read_score(str(value), label=None, scale=self.scale)
        if alone.score is not None or not isinstance(value, str):
            return alone
        patterns = tuple(p for s in self.strategies for p in s.patterns)
        return _read(value, patterns or BUILT_IN, self.scale, self.earliest)

    def _agreed(self, agents: Mapping[str, Json]) -> Evaluation | None:
        """Return the agreement of the agents, if it is allowed and no agent should have scored."""
        texts = [text for text in map(reply_text, agents.values()) if text.strip()]
        if not self.agree or len(texts) < 2 or any(agent in agents for agent in self.first):
            return None
        return Evaluation(agreement(texts), votes=({"agreement_of": list(agents)},))

    def _booleans(self, agents: Mapping[str, Json]) -> Evaluation | None:
        for agent, output in agents.items():
            for data in objects_in(output):
                result = weighted(data.get("boolean_evaluations", data), self.weights)
                if result is not None:
                    return _evaluated(agent, *result)
        return None

    def _validators(self, agents: Mapping[str, Json]) -> Evaluation | None:
        """Return the score of the last validator among the agents."""
        fields = (
            (agent, data, key)
            for agent in reversed(list(agents))
            for data in objects_in(agents[agent])
            for key in (_VALIDATOR_SCORES if "boolean_evaluations" in data else ())
        )
        for agent, data, key in fields:
            score = read_score(str(data.get(key, "")), label=None).score
            if score is not None:
                failed = data.get("failed_criteria")
                return _evaluated(agent, score, list(failed) if isinstance(failed, list) else [])
        return None


def _evaluated(agent: str, score: float, failed: list[str]) -> Evaluation:
    votes: tuple[Json, ...] = ({"agent": agent, "failed": failed},)
    return Evaluation(score, feedback=", ".join(failed), improvements=tuple(failed), votes=votes)


def _read(
    text: str, patterns: tuple[str, ...], scale: tuple[float, float], earliest: bool
) -> ScoreReading:
    """Return the last score that a pattern matches, or the first, in text with or without its emphasis."""
    nearest = read_score("", label="score")
    for pattern in patterns:
        for searched in dict.fromkeys((normalise_reply(text), clean_text(text))):
            try:
                matches = finder(pattern)(searched)
                reading = read_score_by_pattern(searched, matches, scale, first=earliest)
            # A slow pattern of the document must not end the loop; the next one may match.
            except PatternTimeout:
                continue
            if reading.score is not None:
                return reading
            if reading.problem != "missing":
                nearest = reading
    return nearest
