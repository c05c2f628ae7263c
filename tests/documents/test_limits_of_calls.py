"""`limits:` in documents: caps and rates of calls."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.waiting import serving, until_status
from loopwright import run
from loopwright.cluster import InMemoryDeliverer, Submission, Worker, submit
from loopwright.cluster.carried import carry
from loopwright.documents import check, load
from loopwright.engine.budgets import Limits, strictest
from loopwright.journal import MemoryJournal

DOCUMENT = """
schema: loopwright/1
name: limited
limits:
  openai: {cap: 40, rate: 500, per: 1m}
  count: {cap: 1}
steps:
  - name: all
    parallel:
      - {name: count, shell: "echo one"}
      - {name: other, shell: "echo two"}
"""


def document(folder: Path, text: str = DOCUMENT) -> Path:
    file = folder / "limited.yaml"
    file.write_text(text)
    return file


def test_limits_are_read_and_in_the_plan(tmp_path: Path) -> None:
    """The limits of a document have the units of `Cap` and `Rate`."""
    loaded = load(document(tmp_path))
    assert loaded.limits == {"openai": Limits(40, 500, 60.0), "count": Limits(1)}
    assert loaded.plan()["bounds"]["limits"]["openai"] == {"cap": 40, "calls": 500, "per": 60.0}
    assert [note.code for note in loaded.lints()] == []


@pytest.mark.parametrize("limit", ["{}", "{per: 1m}", "{cap: 0}", "{rate: 1, per: 0}"])
def test_a_limit_without_effect_is_refused(tmp_path: Path, limit: str) -> None:
    """A limit has a cap or a rate above 0; the problem has its place."""
    text = DOCUMENT.replace("count: {cap: 1}", f"count: {limit}")
    problem = check(document(tmp_path, text))[0]
    assert problem.path.startswith("limits.count")
    assert problem.line == 6


def test_a_limit_of_an_unknown_name_is_noted(tmp_path: Path) -> None:
    """A name that is not a provider, step or tool is probably a mistake; the note has the nearest name."""
    [note] = load(document(tmp_path, DOCUMENT.replace("count: {cap", "coutn: {cap"))).lints()
    assert note.code == "limit_unused"
    assert "count" in note.message


async def test_a_run_without_workers_has_the_limits(tmp_path: Path) -> None:
    """The resources of a document limit its calls in one process."""
    loaded = load(document(tmp_path))
    taken: list[str] = []
    permits = loaded.resources["permits"]._permits
    take = permits.take

    async def noted(name: str, limits: Limits) -> float:
        taken.append(name)
        return float(await take(name, limits))

    permits.take = noted
    assert (await run(loaded.step, "", resources=loaded.resources)).satisfied
    assert taken == ["count"]


async def test_a_worker_applies_the_limits_of_a_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limits travel with the run, and the permits are those of all workers."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    journal, deliverer = MemoryJournal(), InMemoryDeliverer()
    loaded = load(document(tmp_path))
    source = carry(loaded, {}, acts=True)
    run_id = await submit(
        Submission(loaded.step, source=source), "", journal=journal, deliverer=deliverer
    )
    worker = Worker(journal=journal, deliverer=deliverer, trust="all")
    async with serving(worker):
        await until_status(journal, run_id, "satisfied")
        assert worker.runs is not None
        assert set(worker.runs.permits._held) == {"count"}  # type: ignore[attr-defined]


def test_of_two_limits_the_stricter_ones_apply() -> None:
    """The lower cap and the slower rate, by the calls per second."""
    first, second = {"a": Limits(5, 10, 1.0), "b": Limits(2)}, {"a": Limits(0, 100, 60.0)}
    assert strictest(first, second) == {"a": Limits(5, 100, 60.0), "b": Limits(2)}
