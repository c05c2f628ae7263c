"""What the page refuses to record, and the limits that its form raises."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ..asking import ASKS, KEY
from .conftest import Server, call, serving

COUNTS = """
from loopwright import Loop, MaxIterations, Usage

async def spends(value, ctx):
    ctx.spend(Usage(calls=1, input_tokens=10, usd=0.1))
    return value

counts = Loop(spends, until=MaxIterations(6), name="counts")
"""


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A page whose environment has a key, over a run that asks and runs that a budget ended."""
    folder = tmp_path_factory.mktemp("keyed")
    (folder / "asks.yaml").write_text(ASKS, "utf-8")
    (folder / "counting.py").write_text(COUNTS, "utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SERVICE_KEY", KEY)
        assert call(folder, "run", "asks.yaml", "-i", "a", "--run-id", "r").returncode == 4
        for name, option, most in (
            ("calls", "--max-calls", "2"), ("tokens", "--max-total-tokens", "20"),
            ("effects", "--max-effects", "2"), ("usd", "--max-usd", "0.2"),
        ):  # fmt: skip
            ended = call(
                folder, "run", "counting:counts", "-i", "a", "--run-id", name, option, most
            )
            assert ended.returncode == 3, ended.stderr
        with serving(folder) as server:
            yield server


def in_journal(folder: Path) -> bool:
    """Return whether the key is in any file of the journal."""
    files = (folder / ".loopwright").iterdir()
    return any(KEY.encode() in file.read_bytes() for file in files if file.is_file())


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("answer", {"path": "grow/1/approval", "choice": "approve", "feedback": f"use {KEY}"}),
        ("answer", {"path": "grow/1/approval", "choice": "approve", "output": f"with {KEY}"}),
        ("rewind", {"loop": "grow", "number": "1", "input": f"with {KEY}"}),
    ],
)
def test_an_answer_or_edited_input_with_a_key_is_refused(
    keyed: Server, path: str, body: dict[str, str]
) -> None:
    """I49: the page names the variable, shows no key and records nothing."""
    if path == "answer":
        text = keyed.ask("/runs/r")[1]
        body = {**body, "path": text.partition('name="path" value="')[2].partition('"')[0]}
    status, told = keyed.ask(f"/runs/r/{path}", body)
    assert 400 <= status < 500, told
    assert "SERVICE_KEY" in told
    assert KEY not in told
    assert not in_journal(keyed.folder)


@pytest.mark.parametrize(
    ("unit", "most", "low"),
    [("calls", "4", "2"), ("tokens", "40", "20"), ("effects", "4", "2"), ("usd", "0.4", "0.2")],
)
def test_the_form_raises_every_limit(keyed: Server, unit: str, most: str, low: str) -> None:
    """Calls, tokens and effects are raised on the page as dollars are; too low a figure is refused."""
    text = keyed.ask(f"/runs/{unit}")[1]
    assert f'name="{unit}"' in text
    status, told = keyed.ask(f"/runs/{unit}/raise", {unit: low})
    assert 400 <= status < 500
    assert "is not above" in told
    status, told = keyed.ask(f"/runs/{unit}/raise", {unit: "many"})
    assert 400 <= status < 500
    status, told = keyed.ask(f"/runs/{unit}/raise", {unit: most})
    assert status == 200, told
    text = call(keyed.folder, "export", unit, "-f", "jsonl").stdout
    assert '"accepted"' in text


def test_the_form_says_what_it_takes(keyed: Server) -> None:
    """An empty form is refused with the names of all that it takes."""
    status, told = keyed.ask("/runs/usd/raise", {})
    assert 400 <= status < 500
    assert "iterations, model calls, tokens, dollars or effects" in told
