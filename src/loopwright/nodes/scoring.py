"""The score of a round, out of what its agents wrote."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ..codec import Json, text_of
from ..evaluators.presets import weighted
from ..evaluators.score import finder
from ..evaluators.scores_text import ScoreReading, read_score, read_score_by_pattern
from ..evaluators.text import clean_text, normalise_reply, read_json
from ..patterns import PatternTimeout
from ..records import Evaluation

__all__ = ["BUILT_IN", "Scorer", "agents_in", "reply_text"]

# Labels that a scorer may use where the document names no pattern of its own.
BUILT_IN = tuple(
    rf"{label}\s*[:=]\s*([0-9.]+)"
    for label in (
        "SCORE", "FINAL[_ ]SCORE", "QUALITY(?:[_ ]SCORE)?", "RATING", "CONSENSUS(?:[_ ]SCORE)?",
        "AGREEMENT(?:[_ ]SCORE)?", "CONFIDENCE", "OVERALL(?:[_ ]SCORE)?",
    )
)  # fmt: skip
_LOOKS_LIKE = re.compile(r"scor|(?<![a-z])rat(?:er|ing)|moderator", re.IGNORECASE)


@dataclass(frozen=True)
class Scorer:
    """How the score is found: by a preset's booleans, then by patterns, in the agents that may give it.

    Of the agents those in `first` count before all, then those whose id looks like a scorer's, which
    then are the only ones; else the last agent comes first. Of several matches the last one counts.
    """

    patterns: tuple[str, ...] = BUILT_IN
    key: str = ""
    first: tuple[str, ...] = ()
    weights: Mapping[str, float] = field(default_factory=dict)
    fallback: float | None = None

    def evaluate(self, outputs: Mapping[str, Json]) -> Evaluation:
        """Return the evaluation of a round's outputs by agent; undecided if nothing gives a score."""
        agents = agents_in(outputs)
        if self.weights and (found := self._booleans(agents)) is not None:
            return found
        if self.key and (found := self._direct(agents)) is not None:
            return found
        problem = "no agent gave a score"
        for agent in self._order(agents):
            reading = self._read(reply_text(agents[agent]))
            if reading.score is not None:
                note: dict[str, Json] = {"agent": agent, "found": list(reading.found)}
                if reading.ambiguous:
                    note["ambiguous"] = True
                return Evaluation(reading.score, votes=(note,))
            if reading.problem != "missing":
                problem = f"{agent}: {reading.detail}"
        if self.fallback is not None:
            return Evaluation(self.fallback, feedback=f"{problem}; the fallback score stands")
        return Evaluation(undecided=True, feedback=problem)

    def _order(self, agents: Mapping[str, Json]) -> list[str]:
        named = [agent for agent in self.first if agent in agents]
        if named:
            return named
        alike = [agent for agent in reversed(agents) if _LOOKS_LIKE.search(agent)]
        return alike or list(reversed(agents))

    def _read(self, text: str) -> ScoreReading:
        shown = normalise_reply(text)
        nearest = read_score("", label="score")
        for pattern in self.patterns:
            for searched in (shown, clean_text(text)):
                try:
                    reading = read_score_by_pattern(searched, finder(pattern)(searched))
                except PatternTimeout:
                    continue
                if reading.score is not None:
                    return reading
                if reading.problem != "missing":
                    nearest = reading
        return nearest

    def _booleans(self, agents: Mapping[str, Json]) -> Evaluation | None:
        for agent, output in agents.items():
            for data in _objects(output):
                found = weighted(data.get("boolean_evaluations", data), self.weights)
                if found is not None:
                    score, failed = found
                    gaps = tuple(failed)
                    votes: tuple[Json, ...] = ({"agent": agent, "failed": failed},)
                    return Evaluation(score, feedback=", ".join(failed), improvements=gaps, votes=votes)
        return None

    def _direct(self, agents: Mapping[str, Json]) -> Evaluation | None:
        for agent in reversed(agents):
            for data in _objects(agents[agent]):
                value = data.get(self.key)
                if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
                    return Evaluation(float(value), votes=({"agent": agent, "key": self.key},))
        return None


def agents_in(outputs: Mapping[str, Json]) -> dict[str, Json]:
    """Return the outputs by agent, with those inside forks at the place of their fork."""
    found: dict[str, Json] = {}
    for name, output in outputs.items():
        if isinstance(output, Mapping) and "$branches" in output:
            for branch in output["$branches"].values():
                found |= agents_in(branch)
        elif not (isinstance(output, Mapping) and "$joined" in output):
            found[name] = output
    return found


def reply_text(output: Json) -> str:
    """Return what an agent's output says as text."""
    if isinstance(output, Mapping) and "response" in output:
        return text_of(output["response"])
    return text_of(output)


def _objects(output: Json) -> Iterator[Mapping[str, Json]]:
    """Iterate over the JSON objects that an output is or contains as text."""
    if isinstance(output, Mapping):
        yield output
        inner = output.get("response")
        if inner is not None and not isinstance(inner, Mapping):
            yield from _objects(inner)
    elif isinstance(output, str) and "{" in output:
        start, end = output.find("{"), output.rfind("}")
        for text in (output, output[start : end + 1]):
            value = read_json(text).value
            if isinstance(value, Mapping):
                yield value
                return
