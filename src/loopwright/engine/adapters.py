"""Adapters: they make the input of the next iteration from the last one.

1. The input of the loop is never lost: an adapter starts from `ctx.initial`, not from an output.
2. A failed iteration is adapted too; its error is its feedback.
3. An adapter reads only the last iteration and the loop's input, so that a resumed run adapts in the
   same way.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import ConfigurationError, StepError
from ..records import Iteration, codec
from ..records.codec import Json
from .context import Context
from .run_state import acting
from .step import FunctionStep, Leaf, StepLike, as_step, digest_of, known_as

__all__ = ["feedback", "keep_input", "merge", "rotate", "use_output"]


@known_as("adapters.feedback/1")
async def feedback(last: Iteration, ctx: Context) -> Json:
    """Return the loop's input with the last output and its feedback.

    Shape: `{"input", "previous", "feedback", "improvements"}`. After a failed iteration `feedback` is
    its error, and `previous` is the last output that there was.

    Args:
        last: the last iteration.
        ctx: the context of the step. Loopwright calls this function; pass it as `adapt`.

    Example:
        >>> from loopwright import Evaluation, Loop, MaxIterations, run_sync
        >>> loop = Loop(
        ...     lambda task: task if isinstance(task, str) else task["feedback"],
        ...     lambda text: Evaluation(0.5, feedback="Write more."),
        ...     adapt=feedback,
        ...     until=MaxIterations(2),
        ... )
        >>> run_sync(loop, "draft").history[1].output
        'Write more.'
    """
    # After a failure the last draft is still the one to correct.
    previous = last.output
    if previous is None and last.error is not None and isinstance(last.input, Mapping):
        previous = last.input.get("previous")
    evaluation = last.evaluation
    return {
        "input": ctx.initial,
        "previous": previous,
        "feedback": last.feedback,
        "improvements": list(evaluation.improvements) if evaluation is not None else [],
    }


@known_as("adapters.keep_input/1")
async def keep_input(last: Iteration, ctx: Context) -> Json:
    """Return the loop's input: every iteration has the same.

    Args:
        last: the last iteration.
        ctx: the context of the step. Loopwright calls this function; pass it as `adapt`.
    """
    return ctx.initial


@known_as("adapters.use_output/1")
async def use_output(last: Iteration) -> Json:
    """Return the last output, or the last input if there is no output.

    Args:
        last: the last iteration. Loopwright calls this function; pass it as `adapt`.
    """
    return last.input if last.output is None else last.output


def rotate(*strategies: Json, key: str = "strategy") -> FunctionStep:
    """Use one strategy after the other, as member `key` of the loop's input.

    The first iteration runs on the loop's input. If that names a strategy, the second iteration uses the
    next one, else the first. After the last strategy the first follows. An input that is not an object
    becomes `{"input": …}`.

    Args:
        strategies: any JSON values, at least one, all different.
        key: the member of the input that holds the strategy.

    Returns:
        A step for `adapt`.

    Raises:
        ConfigurationError: without strategies, or if two are equal.

    Example:
        >>> from loopwright import Loop, MaxIterations, run_sync
        >>> loop = Loop(
        ...     lambda task: task["strategy"],
        ...     adapt=rotate("skim", "search", "ask"),
        ...     until=MaxIterations(4),
        ... )
        >>> [item.output for item in run_sync(loop, {"strategy": "skim"}).history]
        ['skim', 'search', 'ask', 'skim']
    """
    try:  # normalised like the recorded input, with which they are compared
        values = codec.normalise(list(strategies), what="rotate")
    except StepError as error:
        raise ConfigurationError(str(error)) from None
    texts = [codec.canonical(strategy) for strategy in values]
    if not texts or len(set(texts)) < len(texts):
        raise ConfigurationError(
            f"rotate: {list(strategies)!r}: use at least one strategy, and each only once"
        )

    async def rotated(last: Iteration, ctx: Context) -> Json:
        # From the record and not from a counter, so that a resumed run continues in the same order.
        text = codec.canonical(last.input.get(key) if isinstance(last.input, Mapping) else None)
        following = texts.index(text) + 1 if text in texts else 0
        return {**_object(ctx.initial), key: values[following % len(texts)]}

    return FunctionStep(rotated, name="rotate", fingerprint=digest_of("rotate", key, *texts))


def merge(function: StepLike) -> FunctionStep:
    """Merge the members that a function returns into the loop's input.

    An input that is not an object becomes `{"input": …}`.

    Args:
        function: called with the last Iteration, or with it and the Context; returns an object of the
            members to add or replace. A step is accepted too, unless it is composite.

    Returns:
        A step for `adapt`. It fails with kind `bad_adapt` if the function returns anything else.

    Raises:
        ConfigurationError: for a composite step.

    Example:
        >>> from loopwright import Loop, MaxIterations, run_sync
        >>> loop = Loop(
        ...     lambda task: task,
        ...     adapt=merge(lambda last: {"hint": f"iteration {last.number} was too long"}),
        ...     until=MaxIterations(2),
        ... )
        >>> run_sync(loop, {"text": "…"}).history[1].input
        {'text': '…', 'hint': 'iteration 1 was too long'}
    """
    inner = as_step(function)
    if not isinstance(inner, Leaf):
        raise ConfigurationError(
            f"merge: {inner.name} is a composite step; use a function of the last iteration"
        )

    async def merged(last: Iteration, ctx: Context) -> Json:
        # The function acts inside this step, so a dry run must replace it here.
        members = await acting(ctx.run.stubs, inner, ctx.path)(last, ctx)
        if not isinstance(members, Mapping):
            raise StepError(
                f"{inner.name} returned {members!r:.80}; return an object of the members of the "
                "input to change",
                kind="bad_adapt",
            )
        return {**_object(ctx.initial), **members}

    return FunctionStep(merged, name=inner.name, fingerprint=digest_of("merge", inner.fingerprint))


def _object(value: Json) -> dict[str, Json]:
    return dict(value) if isinstance(value, Mapping) else {"input": value}
