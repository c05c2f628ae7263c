"""A score as a number in a text, in an object, or in the reply of a step."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from fractions import Fraction
from typing import cast

from ..engine.composites import attempt
from ..engine.context import Context
from ..engine.functions import in_thread
from ..engine.step import (
    CompositeStep,
    FunctionStep,
    Step,
    StepLike,
    as_step,
    digest_of,
    fingerprinted,
)
from ..errors import ConfigurationError
from ..models.reply_text import normalise_reply, own_words
from ..prompts.prompt import Prompt
from ..records import Evaluation, Reason, Result, Status, codec
from ..records.codec import Json
from ..tools.process import tail
from .parsing.answers import objects_of, plain
from .parsing.scores import ScoreReading, finder, read_score, read_score_by_pattern

__all__ = ["ScoreOf", "score"]

REPLY = 32_000  # characters of a reply in the feedback
_Read = Callable[[Json, str], Awaitable[ScoreReading]]


def score(
    label: str | None = "score",
    scale: tuple[float, float] = (0.0, 1.0),
    *,
    of: StepLike | None = None,
    pattern: str = "",
    name: str = "score",
) -> Step[object, Evaluation]:
    """Make an evaluator that reads a number in the output, or in the reply of the step `of`.

    In a text the number follows `label`: 0.85, 8/10, 93 of 100 or 93 %; prose without another digit may
    follow. In an object, also one inside a text, it is the member `label`, in any case. A number is the
    score itself. An unreadable score is undecided, never 0. The last match counts; if others differ, a
    vote notes that it is ambiguous. `evaluators.parsing.scores` has the grammar.

    Args:
        label: The word before the number. None: the number is the complete text. Default: "score".
        scale: The lowest and the highest value of a number without a unit. Default: 0 to 1.
        of: A step that rates the output. Its reply is the feedback, and scores in the output itself are
            not read. A prompt with an unreadable reply is asked once more.
        pattern: A regular expression, searched without case. The score is its first group, or the
            complete match, with the unit that follows.
        name: The name of the step. Default: "score".

    Returns:
        A step from an output to an Evaluation with a score from 0 to 1 and no verdict.

    Raises:
        ConfigurationError: For an empty label, a scale that is not two numbers in order, or an invalid
            pattern.

    Example:
        >>> from loopwright import run_sync
        >>> run_sync(score(scale=(0, 10)), "Nearly there. Score: 7").output.score
        0.7
        >>> run_sync(score(), "Score: 0.8-0.9").output.undecided
        True
    """
    if label is not None and not isinstance(label, str):
        raise ConfigurationError(f"score: label: {label!r} is not a text. Use a text, or None.")
    if not isinstance(scale, list | tuple) or len(scale) != 2:
        raise ConfigurationError(f"score: scale: {scale!r} is not two numbers, such as (0, 10)")
    read_score("", label=label, scale=scale)  # raises the error for an invalid label or scale
    read = _reader(label, scale, pattern)
    meaning = digest_of("score", repr((label, tuple(scale))), pattern)
    if of is not None:
        low, high = scale
        form = f"Reply with `{label or 'SCORE'}: N`, N a number from {low:g} to {high:g},"
        return ScoreOf(as_step(of), read, form=form, name=name, meaning=meaning)

    async def evaluate(value: Json) -> Evaluation:
        return _evaluation(await read(value, ""), "")

    evaluator = FunctionStep(evaluate, name=name, fingerprint=meaning)
    # A loop with this evaluator needs a success condition; without one the engine warns (`no_goal`).
    evaluator.scores_only = True
    return evaluator


def _reader(label: str | None, scale: tuple[float, float], pattern: str) -> _Read:
    """Return a function of a reply and the rated text that reads the score."""
    if not pattern:

        async def read(value: Json, candidate: str) -> ScoreReading:
            return _reading(value, label=label, scale=scale, candidate=candidate)

        return read
    find = finder(pattern)

    def search(value: Json, candidate: str) -> ScoreReading:
        text = normalise_reply(own_words(codec.text_of(value), value=True))
        return read_score_by_pattern(text, find(text), scale, candidate=candidate)

    async def search_in_thread(value: Json, candidate: str) -> ScoreReading:
        return cast("ScoreReading", await in_thread(search, value, candidate))

    return search_in_thread


class ScoreOf(CompositeStep[object, Evaluation]):
    """A score in the reply of a step about the value. See `score`."""

    scores_only = True  # it never gives a verdict

    def __init__(self, of: Step, read: _Read, *, form: str, name: str, meaning: str) -> None:
        self.of = of
        self.read = read
        self.form = form
        self.name = name
        self.meaning = meaning

    @fingerprinted
    def fingerprint(self) -> str:
        return digest_of("score of", self.of.fingerprint, self.meaning)

    def parts(self) -> Iterable[Step]:
        return [self.of]

    async def run(self, value: Json, ctx: Context) -> Result:
        """Run the step and read its reply. A prompt is asked once more if it cannot be read."""
        # A step that only rearranges its input repeats the output on purpose.
        candidate = codec.text_of(value) if _has_messages(self.of) else ""
        reply = (await attempt(ctx, self.of.name.replace("/", "-"), self.of, value)).output
        reading = await self.read(reply, candidate)
        # Only a prompt can be asked for another form; a function would return the same text.
        if reading.score is None and isinstance(self.of, Prompt):
            complaint = (
                f"Your score could not be read: {reading.detail}. {self.form} and nothing else."
            )
            again = ctx.child(ctx.below("again"))
            reply = await self.of.ask_again(value, codec.text_of(reply), complaint, again)
            reading = await self.read(reply, candidate)
        evaluation = _evaluation(reading, tail(codec.text_of(reply), REPLY))
        return Result(Status.SATISFIED, Reason.COMPLETED, "scored", evaluation, name=self.name)


def _has_messages(step: Step) -> bool:
    """Whether a step may write text, instead of only rearranging its input."""
    if getattr(step, "effect", False) or hasattr(step, "model_settings"):
        return not getattr(step, "wordless", False)
    return any(_has_messages(part) for part in step.parts())


def _evaluation(reading: ScoreReading, feedback: str) -> Evaluation:
    note: dict[str, Json] = {"found": list(reading.found)}
    if reading.score is None:
        note["problem"] = reading.problem
        return Evaluation(undecided=True, feedback=reading.detail, votes=(note,))
    note["ambiguous"] = True
    return Evaluation(reading.score, feedback=feedback, votes=(note,) if reading.ambiguous else ())


def _reading(
    value: Json, *, label: str | None, scale: tuple[float, float], candidate: str
) -> ScoreReading:
    if isinstance(value, Mapping):
        return _member(value, label, scale)
    if not isinstance(value, str):
        return _number(value, scale)
    if label is None:
        return read_score(value, label=None, scale=scale, candidate=candidate)
    objects = objects_of(
        own_words(value, value=True), candidate=candidate, mark="", names=(label,)
    ).read
    # Equal scores in several objects are one score. A dict instead of a set keeps the order.
    readings = {_member(one.members, plain(label), scale): None for one in objects}
    if len(readings) > 1:
        texts = tuple(text for one in readings for text in one.found)
        detail = "the reply has several objects with different scores"
        return ScoreReading(None, problem="unreadable", detail=detail, found=texts)
    return next(iter(readings), None) or read_score(
        value, label=label, scale=scale, candidate=candidate
    )


def _member(
    members: Mapping[str, Json], label: str | None, scale: tuple[float, float]
) -> ScoreReading:
    values = {plain(key): value for key, value in members.items()}
    name = plain(label or "")
    if len(values) < len(members):
        values.pop(name, None)  # two keys have the same plain name, so neither counts
    if name not in values:
        return ScoreReading(None, problem="missing", detail=f"the output has no {label!r}")
    value = values[name]
    if isinstance(value, str):
        return read_score(value, label=None, scale=scale)
    return _number(value, scale)


def _number(value: Json, scale: tuple[float, float]) -> ScoreReading:
    text = codec.text_of(value)[:80]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ScoreReading(
            None, problem="unreadable", detail=f"{text} is not a number", found=(text,)
        )
    low, high = (Fraction(str(end)) for end in scale)
    # Exact arithmetic: 7 on a scale of 0 to 10 must be 0.7.
    share = (Fraction(str(value)) - low) / (high - low)
    if not 0 <= share <= 1:
        detail = f"{text} lies off the scale of {low} to {high}, and a score is never clamped"
        return ScoreReading(None, problem="out_of_range", detail=detail, found=(text,))
    return ScoreReading(float(share), found=(text,))
