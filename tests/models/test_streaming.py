"""Text as it arrives: `on_text` of a prompt and of a run, and `stream`."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import pytest
from faulty_server import FaultyServer, says

from loopwright import Loop, MaxIterations, Models, prompt, run, run_sync, stream
from loopwright.engine.streaming import IterationEnded, RunEnded, TextDelta
from loopwright.errors import ConfigurationError
from loopwright.testing import ScriptedModel


def scripted(*replies: Any) -> Models:
    return Models(ScriptedModel([{"replies": list(replies)}]), default="openai:any")


def test_a_prompt_and_a_run_receive_the_text() -> None:
    """Both listeners receive it; one may take the call as well, with its path and attempt."""
    plain: list[str] = []
    calls: list[tuple[str, str, int]] = []

    def listen(text: str, call: Any) -> None:
        calls.append((text, call.path, call.attempt))

    step = prompt("x", name="greet", on_text=plain.append)
    models = scripted({"error": "transient"}, "Hello")
    assert run_sync(step, "x", models=models, on_text=listen).output == "Hello"
    assert "".join(plain) == "Hello"
    assert "".join(text for text, _, _ in calls) == "Hello"
    assert {call[1:] for call in calls} == {("greet", 2)}


def test_print_receives_text_only(capsys: pytest.CaptureFixture[str]) -> None:
    """`on_text=print` prints the text, not the call."""
    run_sync(prompt("x", on_text=print), "x", models=scripted("Hello"))
    assert capsys.readouterr().out.replace("\n", "") == "Hello"


def test_thinking_is_not_sent() -> None:
    """A listener gets the answer alone."""
    pieces: list[str] = []
    models = scripted("<think>hm</think>Hello")
    run_sync(prompt("x"), "x", models=models, on_text=pieces.append)
    assert "".join(pieces) == "Hello"


def test_a_listener_that_fails_is_a_warning() -> None:
    """The call continues, the other listener still receives text, and the result has a warning."""

    def fail(text: str) -> None:
        raise ValueError("no screen")

    pieces: list[str] = []
    step = prompt("x", on_text=fail)
    result = run_sync(step, "x", models=scripted("Hello"), on_text=pieces.append)
    assert (result.output, "".join(pieces)) == ("Hello", "Hello")
    assert "no screen" in " ".join(result.warnings)


def test_an_object_that_is_no_function_is_refused() -> None:
    """The error comes before the run."""
    wrong: Any = "print"
    with pytest.raises(ConfigurationError, match="on_text"):
        prompt("x", on_text=wrong)
    with pytest.raises(ConfigurationError, match="on_text"):
        run_sync(prompt("x"), "x", models=scripted("x"), on_text=wrong)


@pytest.mark.usefixtures("loopback")
async def test_text_arrives_in_the_pieces_of_the_server() -> None:
    """A real stream reaches the listener piece by piece."""
    pieces: list[str] = []
    async with FaultyServer(says("Good morning")) as server:
        step = prompt("x", model="openai_compatible:m", base_url=server.url)
        await run(step, "x", on_text=pieces.append)
    assert len(pieces) > 1
    assert "".join(pieces) == "Good morning"


async def test_a_stream_has_text_iterations_and_the_result_in_order() -> None:
    """The events of two iterations come in the order in which they happen."""
    loop = Loop(prompt("x", name="write"), name="l", until=MaxIterations(2))
    kinds: list[str] = []
    text = ""
    async for event in stream(loop, "x", models=scripted("one", "two")):
        if isinstance(event, TextDelta):
            text += event.text
            kinds += [] if kinds[-1:] == ["text"] else ["text"]
            assert event.path.startswith("l/")
        elif isinstance(event, IterationEnded):
            kinds.append(f"iteration {event.iteration.number} {event.iteration.output}")
        else:
            assert isinstance(event, RunEnded)
            kinds.append(event.result.status.value)
    assert text == "onetwo"
    assert kinds == ["text", "iteration 1 one", "text", "iteration 2 two", "exhausted"]


async def test_leaving_a_stream_cancels_the_run() -> None:
    """The step that runs when a stream is closed is cancelled before `aclose` returns."""
    begun, ended = asyncio.Event(), asyncio.Event()

    async def work(value: int) -> int:
        if value == 1:
            return 2
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return value

    loop = Loop(work, adapt=lambda last: last.output, until=MaxIterations(9))
    async with aclosing(stream(loop, 1)) as events:
        await anext(events)
        await begun.wait()
    assert ended.is_set()


async def test_an_error_of_the_run_is_raised_by_the_stream() -> None:
    """What `run` raises ends the iteration."""
    with pytest.raises(ConfigurationError):
        async for _ in stream(prompt("{{ unknown }}"), "x"):
            pass


@dataclass
class Doubled:
    """A declared output."""

    number: int


async def test_an_iteration_of_a_stream_has_the_declared_type() -> None:
    """As everywhere: the output is the object that the step returned, not its JSON."""

    def double(number: int) -> Doubled:
        return Doubled(2 * number)

    ended = [event async for event in stream(Loop(double, max_iterations=1), 2)]
    assert isinstance(ended[0], IterationEnded)
    assert ended[0].iteration.output == Doubled(4)
