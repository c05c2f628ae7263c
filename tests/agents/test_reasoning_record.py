"""The reasoning agent: the record of an execution, which follows from the entries of its run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reasoning_talk import Conversation, report

from loopwright import MemoryJournal, ReasoningAgent, Result, Status, Workflow, run, with_timeout
from loopwright.agents import Execution, executions
from loopwright.journal import Entry, Journal, open_journal
from loopwright.models import Models, ScriptedModel
from loopwright.testing import run_virtual


async def test_every_call_counts_failed_ones_and_re_asks_included() -> None:
    """Five calls in three rounds: one throttled, one of no use."""
    talk = Conversation(
        "one", {"error": "transient"}, "two", {"error": "throttled"}, "TASK_COMPLETE: 3"
    )
    journal = MemoryJournal()
    result = await talk.ask(ReasoningAgent(), journal=journal)
    (found,) = await executions(journal)
    assert report(result)["interaction_count"] == found.interaction_count == len(talk.told) == 5
    assert found.iterations == 3
    assert found.started_at is not None
    assert found.started_at <= (found.last_interaction_at or 0) <= (found.completed_at or 0)
    assert (found.status, found.prompt, found.result) == ("completed", "What is 6 x 7?", "3")
    assert found.input_params["max_iterations"] == 5


async def test_a_failed_execution_keeps_a_sanitised_error_and_its_counters() -> None:
    """The failed call is an interaction; the error names nobody."""
    secret = "for ann@example.org from 10.1.2.3 with sk-a1b2c3d4e5f6a7b8c9d0"
    talk = Conversation("one", {"error": "permanent", "message": f"no access {secret}"})
    journal = MemoryJournal()
    result = await talk.ask(ReasoningAgent(), journal=journal)
    assert result.status is Status.FAILED
    (found,) = await executions(journal)
    assert (found.status, found.result, found.interaction_count) == ("failed", None, 2)
    assert "[EMAIL] from [IP] with [TOKEN]" in found.error
    assert len(found.error) <= 500


async def test_executions_of_a_workflow_are_listed_by_run(tmp_path: Path) -> None:
    """Several agents in one run, several runs in one journal; by status too."""
    flow = Workflow("flow", {"one": ReasoningAgent(name="a"), "two": ReasoningAgent(name="b")})
    journal = open_journal(f"sqlite:{tmp_path / 'runs.db'}")
    await Conversation("TASK_COMPLETE: 1").ask(flow, journal=journal, run_id="first")
    await Conversation("TASK_COMPLETE: 1").ask(
        ReasoningAgent(), "", journal=journal, run_id="second"
    )
    rows = [(e.run_id, e.path, e.agent, e.status) for e in await executions(journal)]
    assert rows == [
        ("second", "agent", "agent", "failed"),
        ("first", "flow/one", "a", "completed"),
        ("first", "flow/two", "b", "completed"),
    ]
    assert len(await executions(journal, run_id="first")) == 2
    assert [e.agent for e in await executions(journal, status="failed")] == ["agent"]
    shown = (await executions(journal, run_id="first"))[0].to_json()
    assert set(shown) == set(Execution.__slots__)
    await journal.close()


async def _seen(journal: Journal, entries: int, status: str) -> Execution:
    """Return the execution as it is on record after so many entries of a run."""
    from dataclasses import replace

    from loopwright.agents import execution_of

    info = await journal.find("r")
    kept = (await journal.entries("r"))[:entries]
    (found,) = execution_of(replace(info, status=status), kept)
    return found


async def test_an_execution_is_pending_then_running_then_completed() -> None:
    """Derived from the entries of the run at any moment."""
    journal = MemoryJournal()
    await Conversation("one", "TASK_COMPLETE: 2").ask(ReasoningAgent(), journal=journal, run_id="r")
    all_entries = await journal.entries("r")

    def until(kind: str, part: str) -> int:
        return next(
            n for n, e in enumerate(all_entries, 1) if (e.kind, part in e.path) == (kind, True)
        )

    begun = await _seen(journal, until("finished", "begin"), "running")
    assert (begun.status, begun.interaction_count, begun.last_interaction_at) == (
        "pending",
        0,
        None,
    )
    asked = await _seen(journal, until("started", "attempt-1"), "running")
    assert (asked.status, asked.interaction_count, asked.completed_at) == ("running", 1, None)
    assert (asked.last_interaction_at or 0) >= (asked.started_at or 0)
    assert (await _seen(journal, until("started", "attempt-1"), "interrupted")).status == "pending"
    done = await _seen(journal, len(all_entries), "satisfied")
    assert (done.status, done.interaction_count, done.result) == ("completed", 2, "2")


def test_a_deadline_from_outside_fails_the_execution() -> None:
    """The run's end is the execution's, with the calls that were made."""

    async def both() -> tuple[Result, Execution]:
        talk, journal = Conversation("one", {"text": "two", "after": 30}), MemoryJournal()
        result = await talk.ask(with_timeout(ReasoningAgent(), 10), journal=journal)
        (found,) = await executions(journal)
        return result, found

    result, found = run_virtual(both())
    assert result.status is Status.FAILED
    assert (found.status, found.interaction_count, found.iterations) == ("failed", 2, 2)
    assert "took longer than its 10 s" in found.error


def test_a_run_in_flight_is_resumed_with_the_same_words() -> None:
    """Cut off after every entry that was durable, the run goes on to the same conversation."""

    async def whole() -> tuple[list[Any], Any, list[Entry]]:
        talk, journal = Conversation("one", "two", "TASK_COMPLETE: 3"), MemoryJournal()
        result = await talk.ask(ReasoningAgent(), journal=journal, run_id="r")
        return talk.told, result.output, await journal.entries("r")

    told, output, entries = run_virtual(whole())

    async def cut(count: int) -> None:
        from loopwright.journal import RunInfo

        journal = MemoryJournal()
        made = ReasoningAgent()
        log = await journal.open(RunInfo("r", "agent", "What is 6 x 7?", made.fingerprint))
        for entry in entries[:count]:
            log.append(Entry.from_json(entry.to_json()))
        await log.close(log.info)
        talk = Conversation("one", "two", "TASK_COMPLETE: 3")
        models = Models(ScriptedModel(talk.script), transcript=talk.told.append)
        models.model.continued("r", entries[:count])
        result = await run(
            made, journal=journal, run_id="r", random=lambda: 0.0,
            resources={"models": models, "model": "openai:any"},
        )  # fmt: skip
        assert result.output == output, count
        assert [row["messages"] for row in talk.told] == [
            row["messages"] for row in told[len(told) - len(talk.told) :]
        ], count

    for count in range(1, len(entries) + 1):
        run_virtual(cut(count))
