"""Adapters: what the next round is given, made from the last one.

Rules:

1. The input of the loop is never lost: an adapter starts from `ctx.initial`, not from an output.
2. A failed round adapts too; its error is its feedback.
3. An adapter reads the last record and the loop's input and nothing else, so a resumed run adapts
   as it would have.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import ConfigurationError, StepError
from ..records import Iteration, codec
from ..records.codec import Json
from .context import Context
from .step import FunctionStep, Leaf, StepLike, as_step, digest_of, known_as

__all__ = ["feedback", "keep_input", "merge", "rotate", "use_output"]


@known_as("adapters.feedback/1")
async def feedback(last: Iteration, ctx: Context) -> Json:
    """Give the next round the loop's input, the last output and what was said of it.

    Shape: `{"input", "previous", "feedback", "improvements"}`. After a failed round `feedback` is
    its error, and `previous` stays what it was if the round produced nothing.
    """
    previous = last.output
    if previous is None and last.error is not None and isinstance(last.input, Mapping):
        previous = last.input.get("previous")
    found = last.evaluation
    return {
        "input": ctx.initial,
        "previous": previous,
        "feedback": last.feedback,
        "improvements": list(found.improvements) if found is not None else [],
    }


@known_as("adapters.keep_input/1")
async def keep_input(last: Iteration, ctx: Context) -> Json:
    """Give every round the loop's input, as without an adapter."""
    return ctx.initial


@known_as("adapters.use_output/1")
async def use_output(last: Iteration) -> Json:
    """Give the next round the last output; a round that produced none is done again."""
    return last.input if last.output is None else last.output


def rotate(*strategies: Json, key: str = "strategy") -> FunctionStep:
    """Give the rounds one strategy after the other, as member `key` of the loop's input.

    The first round runs on the input as it was given: if that names one of the strategies, the next
    round takes the one after it, else the first. So no strategy is skipped, and after the last
    comes the first again. An input that is no object becomes `{"input": …}`.

    Raises:
        ConfigurationError: if there are no strategies, or one is there twice.

    >>> from loopwright import Loop, MaxIterations, run_sync
    >>> loop = Loop(
    ...     lambda task: task["strategy"],
    ...     adapt=rotate("skim", "search", "ask"),
    ...     until=MaxIterations(4),
    ... )
    >>> [item.output for item in run_sync(loop, {"strategy": "skim"}).history]
    ['skim', 'search', 'ask', 'skim']
    """
    try:  # as they will be on record, or they would not be known again
        given = codec.normalise(list(strategies), what="rotate")
    except StepError as error:
        raise ConfigurationError(str(error)) from None
    known = [codec.canonical(strategy) for strategy in given]
    if not known or len(set(known)) < len(known):
        raise ConfigurationError(
            f"rotate: {list(strategies)!r} are not strategies to take in turn; "
            "give at least one, and each once"
        )

    async def rotated(last: Iteration, ctx: Context) -> Json:
        used = last.input.get(key) if isinstance(last.input, Mapping) else None
        shown = codec.canonical(used)
        following = known.index(shown) + 1 if shown in known else 0
        return {**_object(ctx.initial), key: given[following % len(known)]}

    return FunctionStep(rotated, name="rotate", fingerprint=digest_of("rotate", key, *known))


def merge(function: StepLike) -> FunctionStep:
    """Merge what a function of the last round returns into the loop's input.

    The function (or any step that is no composite) is called with the Iteration, or with it and the
    context, and returns an object of the members to add or replace; all others stay as the loop was
    given them. An input that is no object becomes `{"input": …}`.

    Raises:
        StepError: of kind `bad_adapt`, if the function returns something else.

    >>> from loopwright import Loop, MaxIterations, run_sync
    >>> loop = Loop(
    ...     lambda task: task,
    ...     adapt=merge(lambda last: {"hint": f"round {last.number} was too long"}),
    ...     until=MaxIterations(2),
    ... )
    >>> run_sync(loop, {"text": "…"}).history[1].input
    {'text': '…', 'hint': 'round 1 was too long'}
    """
    inner = as_step(function)
    if not isinstance(inner, Leaf):
        raise ConfigurationError(
            f"merge: {inner.name} is made of steps; give a function of the last round"
        )

    async def merged(last: Iteration, ctx: Context) -> Json:
        found = await inner.act(last, ctx)
        if not isinstance(found, Mapping):
            raise StepError(
                f"{inner.name} returned {found!r:.80}; return an object of the members of the "
                "input to change",
                kind="bad_adapt",
            )
        return {**_object(ctx.initial), **found}

    return FunctionStep(merged, name=inner.name, fingerprint=digest_of("merge", inner.fingerprint))


def _object(value: Json) -> dict[str, Json]:
    return dict(value) if isinstance(value, Mapping) else {"input": value}
