"""Streamed text and the events of a run: `stream`, and functions that receive text as it arrives."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any, Generic, Unpack, overload

from ..errors import ConfigurationError
from ..journal import Entry
from ..records import Iteration, Result
from .run import RunOptions, StepWithResources, run
from .run_record import ModelCall, text_listener
from .step import AsyncFunction, In, Out, StepLike

__all__ = ["IterationEnded", "RunEnded", "StreamEvent", "TextDelta", "stream"]


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of text that a model wrote, without thinking.

    Args:
        text: the piece.
        path: the path of the step that called the model.
        attempt: the number of the attempt; a new attempt starts its text again.

    Example:

    >>> TextDelta("Hello", "greet", 1).text
    'Hello'
    """

    text: str
    path: str
    attempt: int


@dataclass(frozen=True, slots=True)
class IterationEnded(Generic[Out]):
    """An iteration of a loop that is recorded.

    Its type is that of the streamed step; a loop inside that step may have outputs of another type.

    Args:
        path: the path of the loop.
        iteration: the record, with evaluation, and the output in its declared type.

    Example:

    >>> from loopwright import Iteration
    >>> IterationEnded("loop", Iteration(1, "in", "out")).iteration.number
    1
    """

    path: str
    iteration: Iteration[Any, Out]


@dataclass(frozen=True, slots=True)
class RunEnded(Generic[Out]):
    """The last event of a stream.

    Args:
        result: the result of the run.

    Example:

    >>> from loopwright import run_sync
    >>> RunEnded(run_sync(lambda n: n + 1, 1)).result.output
    2
    """

    result: Result[Out]


StreamEvent = TextDelta | IterationEnded[Out] | RunEnded[Out]


@overload
def stream(
    step: AsyncFunction[In, Out],
    value: In = ...,
    **options: Unpack[RunOptions],
) -> AsyncGenerator[StreamEvent[Out], None]: ...
@overload
def stream(
    step: StepLike[In, Out] | StepWithResources,
    value: In = ...,
    **options: Unpack[RunOptions],
) -> AsyncGenerator[StreamEvent[Out], None]: ...
async def stream(
    step: StepLike[In, Out] | StepWithResources,
    value: In = None,  # type: ignore[assignment]
    **options: Unpack[RunOptions],
) -> AsyncGenerator[StreamEvent[Out], None]:
    """Run a step and iterate over its events as they happen.

    Leaving the iteration cancels the run; close the generator, or use `contextlib.aclosing`, to wait for that.

    Args:
        step: the step or function.
        value: its input, any JSON value.
        options: the options of `run`.

    Yields:
        `TextDelta` for text of models, `IterationEnded` for each iteration, `RunEnded` as the last event.

    Raises:
        JournalError, ConfigurationError: as `run` does.

    Example:

    >>> import asyncio
    >>> from loopwright import Loop, MaxIterations
    >>> async def main():
    ...     loop = Loop(lambda number: number + 1, adapt=lambda last: last.output, until=MaxIterations(2))
    ...     async for event in stream(loop, 1):
    ...         match event:
    ...             case IterationEnded(iteration=iteration):
    ...                 print(iteration.number, iteration.output)
    ...             case RunEnded(result=result):
    ...                 print(result.output)
    >>> asyncio.run(main())
    1 2
    2 3
    3
    """
    loop = asyncio.get_running_loop()
    events: asyncio.Queue[StreamEvent[Out] | None] = asyncio.Queue()
    on_text = options.pop("on_text", None)
    own = None if on_text is None else text_listener(on_text)

    def put(event: StreamEvent[Out] | None) -> None:
        # A model may call from another thread; one way for all events keeps their order.
        loop.call_soon_threadsafe(events.put_nowait, event)

    def receive_text(text: str, call: ModelCall) -> None:
        put(TextDelta(text, call.path, call.attempt))
        if own is not None:
            own(text, call)

    def receive_entry(entry: Entry) -> None:
        if entry.kind == "iteration":
            # A listener gets the record as JSON; this view has its declared types.
            put(IterationEnded(entry.path, entry.value.view()))

    listeners = options.pop("listeners", ())
    if callable(listeners):
        raise ConfigurationError(f"stream: listeners: {listeners!r} is not a list; use a list")
    arguments: Any = {**options, "listeners": [*listeners, receive_entry], "on_text": receive_text}
    # A separate task: the run must continue while the consumer handles an event.
    task = asyncio.create_task(run(step, value, **arguments))
    task.add_done_callback(lambda _: put(None))
    try:
        while (event := await events.get()) is not None:
            yield event
        yield RunEnded(await task)
    finally:
        if not task.done():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
