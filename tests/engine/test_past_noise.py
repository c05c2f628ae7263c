"""The sigma of the degrading guard from past runs: measured once, recorded, and kept by resume, fork and replay."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from loopwright import (
    AllOf,
    Degrading,
    Evaluation,
    Loop,
    MaxIterations,
    MemoryJournal,
    Workflow,
    fork,
    resume,
    run,
    run_sync,
)
from loopwright.documents import load
from loopwright.errors import ConfigurationError
from loopwright.insight import Recording, policy_from_json, recordings_of
from loopwright.journal import Journal, open_journal
from warm_python import warm_python

from .support import interrupted_from_outside

GUARD = Degrading(sigma="past", horizon=4)
FALL = (0.9, 0.9, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8)  # the mean of two falls by 0.05 in iteration 3


def loop_of(until: Any = GUARD, kill: int = 0, name: str = "write") -> Loop:
    """Return a loop whose scores are in its input; it is interrupted in iteration `kill`."""

    async def draft(scores: list[float], ctx: Any) -> float:
        if ctx.iteration == kill:
            await interrupted_from_outside()
        return scores[ctx.iteration - 1]

    return Loop(draft, lambda score: Evaluation(score), until=until | MaxIterations(8), name=name)


def noisy(seed: int, sigma: float) -> list[float]:
    """Return scores that rise for three iterations and then stay, with noise."""
    chance = random.Random(seed)
    return [round(min(0.2 + 0.15 * n, 0.6) + chance.gauss(0, sigma), 6) for n in range(8)]


async def past_runs(journal: Journal, count: int, sigma: float, loop: Any = None) -> None:
    """Record runs of a loop; their scores have this noise."""
    for seed in range(count):
        await run(loop or loop_of(), noisy(seed, sigma), journal=journal, run_id=f"past-{seed}")


async def noise(journal: Journal, run_id: str) -> Any:
    """Return the recorded noise of a run."""
    found = [e.value for e in await journal.entries(run_id) if e.kind == "noise"]
    assert len(found) == 1
    return found[0]


async def test_twenty_runs_decide_the_sigma() -> None:
    """A judge with little noise has a small sigma, so a fall of 0.05 ends the loop that 0.07 would not end."""
    journal = MemoryJournal()
    await past_runs(journal, 20, 0.02)
    result = await run(loop_of(), FALL, journal=journal, run_id="now")
    measured = (await noise(journal, "now"))["write"]
    assert measured["runs"] == 20
    assert measured["sigma"] == pytest.approx(0.02, rel=0.3)
    assert (result.reason, result.iterations) == ("degrading", 3)
    default = await run(loop_of(Degrading(horizon=4)), FALL, journal=journal)
    assert default.reason == "max_iterations"


async def test_fewer_runs_keep_the_default() -> None:
    """Nineteen runs are not enough: the sigma is 0.07, and the record says so."""
    journal = MemoryJournal()
    await past_runs(journal, 19, 0.02)
    result = await run(loop_of(), FALL, journal=journal, run_id="now")
    assert await noise(journal, "now") == {"write": {"sigma": 0.07, "runs": 19}}
    assert result.reason == "max_iterations"


async def test_only_ended_runs_of_the_same_fingerprint_count() -> None:
    """Runs of another limit, forks and interrupted runs give no score."""
    journal = MemoryJournal()
    await past_runs(journal, 19, 0.02)
    other = Loop(len, lambda output: 0.5, until=GUARD | MaxIterations(7), name="write")
    await run(other, "x", journal=journal, run_id="other")
    await fork("past-0", journal=journal, new_id="forked")
    await resume(loop_of(), "forked", journal=journal)
    with pytest.raises(asyncio.CancelledError):
        await run(loop_of(kill=5), noisy(99, 0.02), journal=journal, run_id="cut")
    await run(loop_of(), FALL, journal=journal, run_id="now")
    assert (await noise(journal, "now"))["write"]["runs"] == 19


async def test_a_loop_in_a_workflow_has_its_own_sigma() -> None:
    """The scores of each loop are apart, and a guard inside an "and" has the sigma too."""
    journal = MemoryJournal()
    guarded = loop_of(AllOf((GUARD, Degrading(sigma="past", window=2))), name="second")
    first = Loop(lambda scores: scores, lambda output: 0.1, until=MaxIterations(1), name="first")
    flow = Workflow("flow", {"first": first, "second": guarded})
    await past_runs(journal, 20, 0.02, flow)
    result = await run(flow, FALL, journal=journal, run_id="now")
    measured = await noise(journal, "now")
    assert (list(measured), measured["second"]["runs"]) == (["second"], 20)
    assert result.loops["second"].reason == "degrading"


async def test_a_resume_keeps_the_sigma_of_the_start() -> None:
    """Runs that end while a run is interrupted do not change its sigma."""
    journal = MemoryJournal()
    await past_runs(journal, 20, 0.02)
    with pytest.raises(asyncio.CancelledError):
        await run(loop_of(kill=3), FALL, journal=journal, run_id="now")
    before = await noise(journal, "now")
    for seed in range(40):
        await run(loop_of(), noisy(seed, 0.2), journal=journal, run_id=f"later-{seed}")
    result = await resume(loop_of(), "now", journal=journal)
    assert await noise(journal, "now") == before
    assert (result.reason, result.iterations) == ("degrading", 3)
    await fork("now", journal=journal, at="write/3", new_id="forked")
    assert (await resume(loop_of(), "forked", journal=journal)).reason == "degrading"
    assert await noise(journal, "forked") == before


async def test_replay_reproduces_the_stop() -> None:
    """Replay decides with the recorded sigma; a policy cannot name past runs."""
    journal = MemoryJournal()
    await past_runs(journal, 20, 0.02)
    await run(loop_of(), FALL, journal=journal, run_id="now")
    info = await journal.find("now")
    (one,) = recordings_of(info, await journal.entries("now"), loop_of())
    assert isinstance(one, Recording)
    assert (one.stop.reason, one.stopped_at) == ("degrading", 3)
    with pytest.raises(ConfigurationError, match="Write a number for replay"):
        policy_from_json([{"degrading": {"sigma": "past"}}])


async def test_scores_without_noise_keep_the_default() -> None:
    """A median difference of 0 is no measurement of noise."""
    journal = MemoryJournal()
    await past_runs(journal, 20, 0.0)
    await run(loop_of(), FALL, journal=journal, run_id="now")
    assert await noise(journal, "now") == {"write": {"sigma": 0.07, "runs": 20}}


def test_a_run_without_a_journal_is_refused() -> None:
    """There are no past runs to read, so the run does not start."""
    with pytest.raises(
        ConfigurationError, match="loop write: degrading: sigma: past needs a journal"
    ):
        run_sync(loop_of(), FALL)


def test_another_word_is_refused() -> None:
    """The message names the nearest valid word."""
    with pytest.raises(ConfigurationError, match="did you mean 'past'"):
        Degrading(sigma="pats")


def test_a_document_writes_it_as_in_python(tmp_path: Path) -> None:
    """`sigma: past` of YAML is the same condition."""
    (tmp_path / "own.py").write_text("def write(x): return x\ndef judge(x): return 0.5\n")
    (tmp_path / "flow.yaml").write_text(
        "schema: loopwright/1\nname: flow\nsteps:\n  - name: write\n    loop:\n"
        '      execute: {python: "own:write"}\n      evaluate: {python: "own:judge"}\n'
        "      until: [{degrading: {sigma: past, horizon: 4}}, {max_iterations: 8}]\n"
    )
    (loop,) = load(tmp_path / "flow.yaml").step.parts()
    assert GUARD in loop.members


KILLED = """
import asyncio, os, signal, sys
from loopwright import Degrading, Evaluation, Loop, MaxIterations, run

async def draft(scores, ctx):
    if ctx.run.run_id == "now" and ctx.iteration == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    return scores[ctx.iteration - 1]

loop = Loop(draft, lambda score: Evaluation(score), name="write",
            until=Degrading(sigma="past", horizon=4) | MaxIterations(8))

async def main():
    rows = [[0.5 + 0.02 * ((seed + n) % 3) for n in range(8)] for seed in range(20)]
    for number, scores in enumerate(rows):
        await run(loop, scores, journal=sys.argv[1], run_id=f"past-{number}")
    result = await run(loop, [0.9, 0.9, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8], journal=sys.argv[1], run_id="now")
    print(result.reason.value, result.iterations)

asyncio.run(main())
"""


@pytest.mark.parametrize("iteration", [1, 3])
def test_a_killed_run_continues_with_its_sigma(tmp_path: Path, iteration: int) -> None:
    """SIGKILL in the first or the third iteration: the same entry and the same end."""
    (tmp_path / "killed.py").write_text(KILLED)
    url = f"sqlite:{tmp_path / 'runs.db'}"

    def start(kill: int) -> subprocess.CompletedProcess[str]:
        return warm_python().run([str(tmp_path / "killed.py"), url, str(kill)])

    async def recorded() -> Any:
        journal = open_journal(url)
        found = await noise(journal, "now")
        await journal.close()
        return found

    assert start(iteration).returncode == -signal.SIGKILL
    before = asyncio.run(recorded())
    again = start(0)
    assert again.stdout.strip() == "degrading 3", again.stderr
    assert asyncio.run(recorded()) == before
    assert before["write"]["runs"] == 20
