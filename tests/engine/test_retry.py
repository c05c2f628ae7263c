"""What failed in a run is done again, what succeeded is kept, and a rewind can be undone."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from loopwright import Loop, MaxIterations, Status, Workflow, for_each, run
from loopwright.errors import RunLocked
from loopwright.journal import Journal, open_journal
from loopwright.journal.rewinding import failed_paths


class Broken:
    """Steps that fail for some values until they are mended, and count their calls."""

    def __init__(self, *values: Any) -> None:
        self.broken = set(values)
        self.calls: Counter[Any] = Counter()

    def act(self, value: Any, *kind: str) -> Any:
        self.calls[(*kind, value)] += 1
        if value in self.broken:
            raise ValueError(f"{value} is broken")
        return value


@pytest.fixture(params=["memory:", "sqlite:runs.db"])
async def journal(request: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    async with open_journal(request.param) as journal:
        yield journal


async def retry(journal: Journal, root: Any, value: Any, item: int = 0) -> Any:
    info = await journal.find("r")
    paths = failed_paths(info, await journal.entries("r"), [item] if item else [])
    await journal.rewind("r", only=paths)
    return await run(root, value, journal=journal, run_id="r")


async def test_all_failed_items_of_a_list_are_done_again(journal: Journal) -> None:
    """The other items keep their outputs, in their places."""
    broken = Broken(2, 4)
    root = for_each(broken.act, name="items", on_failure="continue", at_once=2)
    result = await run(root, [1, 2, 3, 4, 5], journal=journal, run_id="r")
    assert result.status is Status.FAILED
    broken.broken.clear()
    result = await retry(journal, root, [1, 2, 3, 4, 5])
    assert (result.status, result.output) == (Status.SATISFIED, [1, 2, 3, 4, 5])
    assert broken.calls == {(1,): 1, (2,): 2, (3,): 1, (4,): 2, (5,): 1}
    shown = await journal.iterations("r")
    assert sorted(item.number for _, item in shown) == [1, 2, 3, 4, 5]
    assert [item.error for _, item in shown] == [None] * 5
    row = await journal.find("r")
    assert (row.status, row.iterations) == ("satisfied", 5)


async def test_one_failed_item_is_done_again(journal: Journal) -> None:
    """The other failed items stay failed."""
    broken = Broken(2, 4)
    root = for_each(broken.act, name="items", on_failure="continue")
    await run(root, [1, 2, 3, 4], journal=journal, run_id="r")
    broken.broken.clear()
    result = await retry(journal, root, [1, 2, 3, 4], item=4)
    assert result.status is Status.FAILED
    assert broken.calls == {(1,): 1, (2,): 1, (3,): 1, (4,): 2}


async def test_the_row_of_failed_iterations_is_done_again(journal: Journal) -> None:
    """A loop continues with the iteration that failed first, keeps those before, and counts failures from 0."""
    broken, inputs = Broken("x"), []

    def grow(text: str) -> str:
        inputs.append(text)
        return text + "a" if len(inputs) < 3 else broken.act("x")

    loop = Loop(
        grow,
        adapt=lambda last: last.output or last.input,
        until=MaxIterations(6),
        name="grow",
        on_failure="continue",
        max_failures=3,
    )
    result = await run(loop, "", journal=journal, run_id="r")
    assert result.status is Status.FAILED
    assert [item.error is None for item in result.history] == [True, True, False, False, False]
    broken.broken.clear()
    result = await retry(journal, loop, "")
    assert result.status is Status.EXHAUSTED
    assert [item.output for item in result.history] == ["a", "aa", "x", "x", "x", "x"]
    assert len(inputs) == 5 + 4


async def test_only_the_failed_step_of_an_iteration_is_done_again(journal: Journal) -> None:
    """An output whose evaluation failed is evaluated again, and not made again."""
    broken = Broken(2)
    made: list[int] = []

    def make(n: int) -> int:
        made.append(n + 1)
        return n + 1

    evaluate = lambda n: broken.act(n) / 10
    loop = Loop(make, evaluate, lambda last: last.output, until=MaxIterations(3), name="count")
    result = await run(loop, 0, journal=journal, run_id="r")
    assert result.status is Status.FAILED
    broken.broken.clear()
    result = await retry(journal, loop, 0)
    assert [item.output for item in result.history] == [1, 2, 3]
    assert made.count(2) == 1


async def test_a_failed_step_of_a_workflow_is_done_again(journal: Journal) -> None:
    """The steps before it are kept."""
    broken = Broken("a")
    steps = {
        "first": lambda value: broken.act(value, "first"),
        "second": lambda value: broken.act("a", "second"),
        "beside": lambda value: broken.act(value, "beside"),
    }
    root = Workflow("three", steps, needs={"second": ["first"], "beside": []})
    result = await run(root, "x", journal=journal, run_id="r")
    assert result.status is Status.FAILED
    broken.broken.clear()
    result = await retry(journal, root, "x")
    assert result.status is Status.SATISFIED
    assert broken.calls == {("first", "x"): 1, ("second", "a"): 2, ("beside", "x"): 1}


async def test_a_failed_loop_in_an_item_is_done_again_from_its_failure(journal: Journal) -> None:
    """Of the item, the iterations before the failure are kept."""
    broken = Broken("b3")
    inner = Loop(
        lambda text: broken.act(f"{text[0]}{int(text[1:]) + 1}"),
        adapt=lambda last: last.output or last.input,
        until=MaxIterations(4),
        name="grow",
    )
    root = for_each(inner, name="items", on_failure="continue")
    result = await run(root, ["a0", "b0"], journal=journal, run_id="r")
    assert result.status is Status.FAILED
    broken.broken.clear()
    result = await retry(journal, root, ["a0", "b0"])
    assert result.output == ["a4", "b4"]
    assert [broken.calls[f"b{n}",] for n in (1, 2)] == [1, 1]


async def test_a_rewind_is_undone(journal: Journal) -> None:
    """The run is as it was: its status, numbers, iterations and result; and it can be rewound again."""
    loop = Loop(lambda n: n + 1, lambda n: n / 10, until=MaxIterations(3), name="count")
    before = await run(loop, 0, journal=journal, run_id="r")
    row = await journal.find("r")
    rewound = await journal.rewind("r", "count/2")
    assert (rewound.path, rewound.iterations) == ("count/2", 2)
    now = await journal.find("r")
    assert (now.status, now.iterations, now.score) == ("interrupted", 1, 0.1)
    undone = await journal.rewind("r", undo=True)
    assert (undone.iterations, undone.entries) == (rewound.iterations, rewound.entries)
    again = await journal.find("r")
    same = ("status", "reason", "detail", "iterations", "score", "usage")
    assert [getattr(again, name) for name in same] == [getattr(row, name) for name in same]
    assert [item.number for _, item in await journal.iterations("r")] == [1, 2, 3]
    assert (await journal.result("r")).output == before.output
    with pytest.raises(RunLocked, match="it was not rewound"):
        await journal.rewind("r", undo=True)
    await journal.rewind("r", "count/3")
    await run(loop, 0, journal=journal, run_id="r")
    with pytest.raises(RunLocked, match="it has continued since its rewind"):
        await journal.rewind("r", undo=True)
