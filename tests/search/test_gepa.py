"""GEPA as a step: its own optimiser, with every case and every reflection as an effect of the run."""

from __future__ import annotations

import asyncio
import hashlib
import re
import threading
from collections import Counter
from typing import Any

import pytest

from engine.support import DyingJournal, entries_of
from loopwright import Evaluation, Loop, MaxIterations, MemoryJournal, Result, Workflow, run, step
from loopwright.datasets import Case, Dataset
from loopwright.errors import ConfigurationError, OwnershipLost, ReplayMismatch
from loopwright.search import gepa

WORDS = [f"w{number}" for number in range(30)]
CASES = [
    Case(words, words, id=f"c{nth}")
    for nth in range(12)
    for words in [[WORDS[(nth * 7 + place) % 30] for place in range(5)]]
]


class World:
    """A task of words that a prompt must contain; it counts what was really called."""

    def __init__(self) -> None:
        self.ledger: Counter[str] = Counter()
        self.threads: set[int] = set()

    def made(self, **options: Any) -> Any:
        """Return the step: a reflection adds a missing word, or drops one, by a digest of its prompt."""

        @step(fingerprint="task/1", inline=True)
        def task(value: Any, ctx: Any) -> Any:
            self.ledger[ctx.path] += 1
            self.threads.add(threading.get_ident())
            assert not hasattr(ctx.case, "expected")
            return sorted(set(value["prompt"].split()) & set(value["inputs"]))

        @step(fingerprint="judge/1", inline=True)
        def judge(output: Any, ctx: Any) -> Evaluation:
            missing = [word for word in ctx.case.expected if word not in output]
            return Evaluation(1 - len(missing) / 5, feedback=f"missing: {' '.join(missing)}")

        @step(fingerprint="reflect/1", inline=True)
        def reflect(text: str, ctx: Any) -> str:
            self.ledger[ctx.path] += 1
            number = int(hashlib.sha256(text.encode()).hexdigest()[:6], 16)
            missing, words = re.findall(r"missing: (\w+)", text), text.split("```")[1].split()
            words = (
                [*words, missing[number % len(missing)]] if missing and number % 4 else words[:-1]
            )
            return f"```\n{' '.join(words)}\n```"

        options = {"max_metric_calls": 160, "model": reflect, **options}
        return gepa({"prompt": "start"}, task, options.pop("dataset", CASES), judge, **options)


def play(made: Any, **options: Any) -> Result:
    return asyncio.run(run(made, None, run_id="r", seed=5, **options))


def test_gepa_finds_a_better_text_in_numbered_effects_of_the_run() -> None:
    """The step returns the best texts by name, and its calls are numbered in the order in which GEPA asks."""
    world, journal = World(), MemoryJournal()
    result = play(world.made(), journal=journal)
    assert result.satisfied
    found = re.fullmatch(r"(\d+) cases, score 0 at first, (.*) at last", result.detail)
    assert found is not None
    assert 160 <= int(found[1]) < 160 + 6 + 12
    assert float(found[2]) > 0.2
    assert set(result.output) == {"prompt"}
    paths = [e.path for e in entries_of(journal, "r") if e.kind == "finished"]
    calls = {path.split("/")[1] for path in paths}
    assert calls == {f"call-{number:04}" for number in range(1, len(calls) + 1)}
    assert world.threads == {threading.get_ident()}


def test_an_equal_seed_asks_the_same_calls() -> None:
    """What GEPA draws follows from the seed of the run."""
    first, second = World(), World()
    assert play(first.made()).output == play(second.made()).output
    assert first.ledger == second.ledger
    other = World()
    asyncio.run(run(other.made(), None, seed=6))
    assert other.ledger != first.ledger


@pytest.mark.parametrize("before", [True, False], ids=["before the write", "after the write"])
def test_a_killed_run_pays_nothing_again_that_was_finished(before: bool) -> None:
    """Killed again and again at journal writes, the step ends with the same texts, after the same calls."""
    whole, reference = World(), MemoryJournal()
    expected = play(whole.made(), journal=reference)
    world, journal = World(), DyingJournal(37, before=before)
    finished, again = set[str](), 0
    for _ in range(200):
        ledger = Counter(world.ledger)
        try:
            result = play(world.made(), journal=journal)
        except (asyncio.CancelledError, OwnershipLost):
            result = None
        assert not [path for path in world.ledger - ledger if path in finished]
        again += sum(1 for path in world.ledger - ledger if path in ledger)
        finished = {e.path for e in entries_of(journal, "r") if e.kind == "finished"}
        if result is not None:
            break
    assert result is not None
    assert (result.output, result.detail) == (expected.output, expected.detail)
    assert set(world.ledger) == set(whole.ledger)
    assert again <= 20 * 8  # at most what was in flight at each kill


def test_a_changed_case_is_a_mismatch_and_pays_nothing() -> None:
    """A resumed run compares the content of each call with the record."""
    world, journal = World(), DyingJournal(60)
    with pytest.raises((asyncio.CancelledError, OwnershipLost)):
        play(world.made(), journal=journal)
    journal.at, paid = 0, world.ledger.total()
    changed = [Case(case.inputs, [*case.expected[:4], "other"], id=case.id) for case in CASES]
    with pytest.raises(ReplayMismatch):
        play(world.made(dataset=changed), journal=journal)
    assert world.ledger.total() == paid


def test_the_step_ends_after_proposals_without_a_better_one() -> None:
    """`patience` ends it with its best text, long before its calls are used up."""
    result = play(World().made(patience=2, max_metric_calls=100_000))
    assert result.satisfied
    assert int(result.detail.split()[0]) < 1000


def test_a_limit_of_the_run_ends_gepa_and_a_failed_case_scores_zero() -> None:
    """A guard of the loop around it ends the thread of GEPA; a case that fails is a score of 0 with a warning."""
    from loopwright import Budget

    def fails(value: Any) -> Any:
        raise ValueError("no")

    made = gepa(
        {"prompt": "a"},
        fails,
        CASES,
        lambda output: 1.0,
        model=lambda text: "```\nb\n```",
        patience=2,
    )
    result = play(made)
    assert result.detail.endswith("score 0 at first, 0 at last")
    assert result.warnings == ("gepa_case_failed: gepa: cases that failed score 0",)
    threads = threading.active_count()
    loop = Loop(World().made(), name="outer", until=MaxIterations(1), guards=Budget(effects=30))
    ended = play(loop)
    assert ended.reason.value == "budget"
    assert threading.active_count() <= threads + 1


async def test_a_cancelled_step_ends_the_thread_of_gepa() -> None:
    """When the task of the run is cancelled, the thread that waits for an answer gets one, and ends."""
    asked = asyncio.Event()

    async def reflect(text: str) -> str:
        asked.set()
        await asyncio.Event().wait()
        return text

    task = asyncio.create_task(run(World().made(model=reflect)))
    await asked.wait()
    (thread,) = [one for one in threading.enumerate() if one.name == "loopwright gepa"]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    thread.join(5)
    assert not thread.is_alive()


def test_a_reflection_that_fails_ends_the_step_at_once() -> None:
    """GEPA would ask again; here the error is that of the step, so that `retry` and `on_failure` decide."""
    asked = []

    def reflect(text: str) -> str:
        asked.append(text)
        raise ValueError("no model")

    world = World()
    result = play(world.made(model=reflect))
    assert result.status.value == "failed"
    assert "no model" in result.detail
    assert len(asked) == 1


def test_splits_keep_held_out_cases_away_from_gepa() -> None:
    """With splits, GEPA learns from train and scores with validation; test is never run."""
    data = Dataset(
        [Case(c.inputs, c.expected, id=f"{c.id}-{n}") for c in CASES for n in range(4)],
        split={"train": 40, "validation": 30, "test": 30},
    )
    seen = set()

    def task(value: Any, ctx: Any) -> Any:
        seen.add(ctx.case.id)
        return value["prompt"]

    made = gepa(
        {"prompt": "a"},
        task,
        data,
        lambda output: 0.5,
        model=lambda text: "```\nb\n```",
        patience=30,
    )
    assert play(made).satisfied
    assert seen == set(data.use("train", "validation").ids)


def test_gepa_is_a_step_of_a_workflow() -> None:
    """Its texts are the input of the next step."""
    flow = Workflow(
        "flow",
        {"better": World().made(patience=3), "use": lambda value: value["prompt"]},
        needs={"use": ["better"]},
    )
    assert play(flow).output.startswith("start")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"optimise": {}}, "optimise: {}; give the texts"),
        ({"optimise": {"inputs": "a"}}, "optimise: .*none of them `inputs`"),
        ({"optimise": {"prompt": 3}}, "optimise: .*give the texts"),
        ({"max_metric_calls": 0}, "max_metric_calls: 0 is too small"),
        ({"patience": 0}, "patience: 0 is too small"),
        (
            {"dataset": Dataset(CASES, split={"test": 100})},
            "dataset: cases has no case that is not held out",
        ),
    ],
)
def test_a_wrong_option_is_named(changed: Any, said: str) -> None:
    """Each wrong option is refused with its name before anything runs."""
    options = {"optimise": {"prompt": "a"}, "run": str, "dataset": CASES, "evaluate": bool}
    with pytest.raises(ConfigurationError, match=f"gepa: {said}"):
        gepa(**{**options, **changed})
