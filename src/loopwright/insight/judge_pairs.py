"""The measurement of a judge of pairs: how often it decides as people do, whatever the order.

Every pair is asked in both orders, in a run that continues after a kill and pays for no recorded answer again. Its input
is the list of pairs, its output is the report. A pair with an answer that could not be read is undecided: it is counted
apart and is in no share. Intervals are at 95 % by Wilson over pairs. The two answers about a pair depend on each other,
so the share of answers `first` counts a pair once: a mean of values from 0 to 1 varies at most as much as one of 0 and 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace

from ..engine.context import Context
from ..engine.lists import for_each
from ..engine.step import CompositeStep, Step, digest_of
from ..errors import ConfigurationError, EvaluationError, nearest
from ..evaluators.pairs import WINNERS, PairJudge
from ..records import Reason, Result, Status
from ..records.codec import Json, text_of
from .judge_bench import (
    MOST_ITEMS,
    JudgeReport,
    as_in_a_loop,
    cases_in,
    judge_json,
    share_of,
    unknown_key,
)

__all__ = ["PAIRS", "PairCase", "PairMeasurement", "measure_pairs", "pairs_from_jsonl"]

PAIRS = "judge_pairs"  # the name of such a run
_FIELDS = ("id", "first", "second", "label", "input")
_TURNED = {"first": "second", "second": "first"}


@dataclass(frozen=True, slots=True)
class PairCase:
    """Two outputs, the label of a person, and the answers of a judge.

    Args:
        id: the name of the case.
        first: the first output, a text or another JSON value.
        second: the second output.
        label: the better one by a person, `first`, `second` or `tie`. Default: none.
        input: the goal of the work, as the judge sees it. Default: none.
        answers: the answer in the order of the case, and that in the other order, each as the judge gave it. None is
            an answer that could not be read.
    """

    id: str
    first: Json
    second: Json
    label: str | None = None
    input: str = ""
    answers: tuple[str | None, ...] = ()

    @property
    def winners(self) -> tuple[str | None, ...]:
        """The winners in the order of the case."""
        return tuple(
            _TURNED.get(answer or "", answer) if other else answer
            for other, answer in enumerate(self.answers)
        )

    def to_json(self) -> dict[str, Json]:
        """Return the pair as a measurement takes it, without answers."""
        return {name: getattr(self, name) for name in _FIELDS}


def pairs_from_jsonl(text: str, file: str = "pairs") -> list[PairCase]:
    """Return the pairs in JSON lines: `{id, first, second, label, input}`, all with a label or none.

    Args:
        text: one object per line; empty lines are skipped.
        file: the name for messages.

    Raises:
        ConfigurationError: for a line that is not such a pair, with its number.

    Example:
        >>> pairs_from_jsonl('{"first": "a", "second": "b", "label": "tie"}')[0].label
        'tie'
    """
    rows = list(cases_in(text, file, _pair))
    labelled = [pair.label is not None for _, pair in rows]
    if any(labelled) and not all(labelled):
        raise ConfigurationError(
            f"{file}:{rows[labelled.index(False)][0]}: label: missing, and other pairs have one. Label all pairs or none."
        )
    return [pair for _, pair in rows]


def _pair(data: Mapping[str, Json], line: int) -> PairCase:
    unknown_key(data, _FIELDS, "a pair")
    for side in ("first", "second"):
        if data.get(side) is None:
            raise ConfigurationError(f"{side}: missing. A pair has the outputs first and second.")
    label = data.get("label")
    if label not in (None, *WINNERS):
        raise ConfigurationError(
            f"label: {label!r:.40} is not first, second or tie{nearest(str(label), WINNERS)}"
        )
    name = str(data.get("id", line))
    return PairCase(name, data["first"], data["second"], label, text_of(data.get("input")))


def measure_pairs(pairs: Sequence[PairCase]) -> JudgeReport:
    """Measure a judge of pairs by its answers in both orders.

    Args:
        pairs: the pairs with two answers each.

    Returns:
        Three shares with intervals: `consistent_accuracy` of the pairs is right in both orders (unknown without
        labels), `consistency` has the same winner in both, and `first_share` of the answers is `first`. Also the
        pairs that turned with the order, and those with the same wrong winner in both.

    Raises:
        ConfigurationError: if no pair has two readable answers.

    Example:
        >>> always_first = [PairCase(str(i), "a", "b", "first", answers=("first", "first")) for i in range(20)]
        >>> report = measure_pairs(always_first).to_json()
        >>> report["consistent_accuracy"]["value"], report["first_share"]["value"]
        (0.0, 1.0)
    """
    decided = [pair for pair in pairs if len(pair.answers) == 2 and None not in pair.answers]
    if not decided:
        raise ConfigurationError("no pair has a readable answer in both orders. Ask the judge.")
    n = len(decided)
    turned = [pair.id for pair in decided if len(set(pair.winners)) > 1]
    agreed = [pair for pair in decided if len(set(pair.winners)) == 1]
    right = sum(pair.winners[0] == pair.label for pair in agreed)
    labelled = decided[0].label is not None
    return JudgeReport(
        {
            "pairs": len(pairs),
            "undecided": len(pairs) - n,
            "consistent_accuracy": share_of(right, n if labelled else 0, "no pair has a label"),
            "consistency": share_of(len(agreed), n),
            "flip_rate": share_of(len(turned), n),
            "first_share": share_of(sum(pair.answers.count("first") for pair in decided) / 2, n),
            "turned": turned,
            "persistent": [
                {"id": pair.id, "label": pair.label, "winner": pair.winners[0]}
                for pair in agreed
                if labelled and pair.winners[0] != pair.label
            ],
        }
    )


class PairMeasurement(CompositeStep):
    """A run that asks a judge about each pair in both orders; its input is the list of pairs, its output the report.

    Args:
        judge: The judge.
        at_once: The most pairs at a time. Default: 4.

    Example:
        >>> from loopwright import pair_judge, run_sync
        >>> from loopwright.testing import Models, ScriptedModel
        >>> first = {"json": {"winner": "first", "reason": "it is shorter"}}
        >>> models = Models(ScriptedModel([{"replies": [first] * 2}]))
        >>> step = PairMeasurement(pair_judge("Which is shorter?", model="openai:any"))
        >>> pairs = [{"id": "a", "first": "one word", "second": "three more words", "label": "first"}]
        >>> run_sync(step, pairs, resources={"models": models}).output["turned"]
        ['a']
    """

    name = PAIRS
    fingerprint: str

    def __init__(self, judge: PairJudge, *, at_once: int = 4) -> None:
        self.judge = judge
        self.cases = for_each(
            _BothOrders(judge), name="pairs", at_once=at_once, max_items=MOST_ITEMS
        )
        self.fingerprint = digest_of(PAIRS, judge.identity)

    def parts(self) -> Iterable[Step]:
        """Return the list of pairs."""
        return [self.cases]

    async def run(self, value: Json, ctx: Context) -> Result:
        """Ask about each pair of `value`, and return the report."""
        asked = [_pair(row, number) for number, row in enumerate(value, start=1)]
        rows: list[Json] = await ctx.call("pairs", self.cases, [one.to_json() for one in asked])
        pairs = [replace(one, answers=tuple(row)) for one, row in zip(asked, rows, strict=True)]
        if not any(None not in pair.answers for pair in pairs):
            raise EvaluationError(
                "the judge decided on no pair: an answer about each is unreadable. Correct its criterion, or use "
                "another model.",
                path=ctx.path,
                kind="undecided",
                retryable=False,
            )
        output = {"judge": judge_json(self.judge), **measure_pairs(pairs).to_json()}
        return Result(Status.SATISFIED, Reason.COMPLETED, "measured", output, name=self.name)


class _BothOrders(CompositeStep):
    """The answers about one pair, as a duel asks for them."""

    name = "both_orders"
    fingerprint: str

    def __init__(self, judge: PairJudge) -> None:
        self.judge = copy(judge)
        self.judge.model_settings = replace(judge.model_settings, cache="off")
        self.fingerprint = digest_of("both orders", judge.fingerprint)

    def parts(self) -> Iterable[Step]:
        """Return the judge."""
        return [self.judge]

    async def run(self, value: Json, ctx: Context) -> Result:
        """Return the two answers about a pair."""
        inner = as_in_a_loop(value["input"], ctx)
        first, second = value["first"], value["second"]
        orders = {"ab": (first, second), "ba": (second, first)}
        answers: list[Json] = [
            (await inner.call(name, self.judge, {"first": one, "second": other}))["winner"]
            for name, (one, other) in orders.items()
        ]
        return Result(Status.SATISFIED, Reason.COMPLETED, "answered", answers, name=self.name)
