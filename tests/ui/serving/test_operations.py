"""The operations on the workflows of a folder, whoever calls them."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path
from typing import Any

import pytest

from loopwright import MemoryJournal, run
from loopwright.documents import load
from loopwright.errors import ConfigurationError, LoopwrightError, ReplayMismatch, RunNotFound
from loopwright.ui.journals import opened
from loopwright.ui.serving.confirmations import SECONDS, Confirmations
from loopwright.ui.serving.operations import OPERATIONS
from loopwright.ui.serving.service import Service
from loopwright.ui.serving.tasks import status_of

from .conftest import PLAIN, WHO, confirmed, until

TABLE = {operation.name: operation for operation in OPERATIONS}


async def test_only_the_workflows_of_the_folder_are_there(service: Service, folder: Path) -> None:
    """A path with `..`, an absolute path and a link that leads out of the folder name no workflow."""
    (folder.parent / "outside.yaml").write_text(PLAIN, "utf-8")
    (folder / "link.yaml").symlink_to(folder.parent / "outside.yaml")
    (folder / "inside.yaml").symlink_to(folder / "plain.yaml")
    listed: Any = await service.workflows({}, WHO)
    names = [one["workflow"] for one in listed["workflows"]]
    assert names == ["acts.yaml", "asks.yaml", "inside.yaml", "plain.yaml", "slow.yaml"]
    for name in ("../outside.yaml", str(folder.parent / "outside.yaml"), "link.yaml", "plan.yaml"):
        for asked in (service.check, service.run):
            with pytest.raises(
                ConfigurationError, match=r"^workflow: there is no workflow"
            ) as error:
                await asked({"workflow": name}, WHO)
    assert "did you mean 'plain.yaml'?" in str(error.value)


async def test_a_run_with_effects_needs_a_confirmation_of_exactly_these(
    service: Service, folder: Path
) -> None:
    """Without one, with an altered one, of another workflow, after the time and after an edit nothing is started."""

    async def refused(confirmation: str, sentence: str) -> None:
        with pytest.raises(ConfigurationError, match=sentence):
            await service.run({"workflow": "acts.yaml", "confirmation": confirmation}, WHO)

    await refused("", "confirmation: acts.yaml runs 1 command on this machine; call check")
    good = await confirmed(service, "acts.yaml")
    other = await confirmed(service, "slow.yaml")
    later = str(int(good.partition(".")[0]) + 60) + "." + good.partition(".")[2]
    for wrong in (
        "x",
        "..",
        "9" * 30 + "..",
        good[:-1],
        good + "0",
        later,
        other,
        "\u00fc.\u00e9.\u2603",
    ):
        await refused(wrong, "confirmation: it is not one that check returned here for acts.yaml")
    service.confirmations = Confirmations(service.confirmations.key, lambda: 1e12)
    await refused(good, f"confirmation: it expired {SECONDS // 60} minutes after its check")
    service.confirmations = Confirmations(service.confirmations.key)
    text = (folder / "acts.yaml").read_text()
    (folder / "acts.yaml").write_text(text.replace("echo", "printf"), "utf-8")
    await refused(good, "confirmation: acts.yaml or its files have changed since its check")
    assert await service.journal.runs() == []
    (folder / "acts.yaml").write_text(text, "utf-8")
    done: Any = await service.run({"workflow": "acts.yaml", "confirmation": good, "wait": 60}, WHO)
    assert (done["status"], done["output"]) == ("satisfied", "hello")


async def test_what_is_trusted_everywhere_needs_no_confirmation(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a dedicated machine the command line does not ask either."""
    monkeypatch.setenv("LOOPWRIGHT_TRUST", "all")
    done: Any = await service.run({"workflow": "acts.yaml", "wait": 60}, WHO)
    assert done["status"] == "satisfied"


async def test_secrets_are_files_of_the_user_outside_of_the_folder(
    service: Service, folder: Path
) -> None:
    """A secret is made once, its file is readable by the user only, and a copy of the folder elsewhere has another."""
    secret = service.home.secret("confirmation")
    assert secret == service.confirmations.key
    file = service.home.private_file("confirmation")
    assert not file.is_relative_to(folder)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert all(
        secret not in one.read_text(errors="replace") for one in folder.rglob("*") if one.is_file()
    )


async def test_declared_inputs_are_the_schema_and_are_checked(
    service: Service, folder: Path
) -> None:
    """A workflow with declared inputs is listed with their schema, and an input that does not fit starts nothing."""
    text = "schema: loopwright/1\nname: greet\ninputs: {who: {choices: [Ann, Bob]}}\n"
    (folder / "greet.yaml").write_text(
        text + "steps: [{name: greet, set: 'Hello {{ input.who }}'}]"
    )
    listed: Any = await service.workflows({}, WHO)
    (row,) = [one for one in listed["workflows"] if one["name"] == "greet"]
    assert (row["input"]["required"], row["input"]["properties"]["who"]["enum"]) == (
        ["who"], ["Ann", "Bob"],
    )  # fmt: skip
    with pytest.raises(ConfigurationError, match="who"):
        await service.run({"workflow": "greet.yaml", "input": {"who": "Eve"}}, WHO)
    done: Any = await service.run(
        {"workflow": "greet.yaml", "input": {"who": "Bob"}, "wait": 60}, WHO
    )
    assert done["output"] == "Hello Bob"


async def test_a_check_reports_problems_and_effects(service: Service, folder: Path) -> None:
    """A wrong workflow has its problems and no confirmation, one without effects needs none."""
    (folder / "plain.yaml").write_text(PLAIN.replace("set:", "sett:"), "utf-8")
    wrong: Any = await service.check({"workflow": "plain.yaml"}, WHO)
    assert not wrong["ok"]
    assert wrong["confirmation"] is None
    assert "sett" in wrong["problems"][0]["text"]
    acts: Any = await service.check({"workflow": "acts.yaml"}, WHO)
    assert acts["effects"] == {"commands": ["echo $WORD"], "python": [], "keys": [], "files": []}
    asks: Any = await service.check({"workflow": "asks.yaml"}, WHO)
    assert (asks["ok"], asks["effects"], asks["confirmation"]) == (True, None, None)
    with pytest.raises(LoopwrightError, match="unknown key 'sett'"):
        await service.run({"workflow": "plain.yaml"}, WHO)


async def test_the_same_id_is_the_same_run(service: Service, folder: Path) -> None:
    """Two requests at once and a later one start one run; another input or workflow under the id is refused."""
    asked = {"workflow": "plain.yaml", "input": "Ada", "id": "order 17", "wait": 60}
    first, second = await asyncio.gather(service.run(asked, WHO), service.run(asked, WHO))
    third: Any = await service.run(asked, WHO)
    assert first == second == third
    assert third["output"] == "Hello Ada"
    assert len(await service.journal.runs()) == 1
    with pytest.raises(ReplayMismatch, match="id: 'order 17' has a run with another input"):
        await service.run({**asked, "input": "Bob"}, WHO)
    with pytest.raises(ReplayMismatch, match="id: 'order 17' has a run with another workflow"):
        await service.run({**asked, "workflow": "asks.yaml"}, WHO)
    # Another server of this folder has the same IDs.
    async with opened("sqlite:.loopwright/runs.db") as store:
        again: Any = await Service(folder, store, "sqlite:.loopwright/runs.db", note=print).run(
            asked, WHO
        )
    assert again == third


async def test_runs_of_another_folder_are_not_there(service: Service, tmp_path: Path) -> None:
    """In a journal that has them, too, they are neither listed nor shown, cancelled or answered."""
    other = tmp_path / "other.yaml"
    other.write_text(PLAIN, "utf-8")
    result = await run(load(other), journal=service.journal, run_id="foreign")
    assert result.satisfied
    mine: Any = await service.run({"workflow": "plain.yaml", "wait": 60}, WHO)
    listed: Any = await service.workflows({}, WHO)
    assert [one["run_id"] for one in listed["runs"]] == [mine["run_id"]]
    more = {"approve": {"answer": True}, "steer": {"text": "x"}}
    for name in ("status", "result", "cancel", "approve", "steer", "hold", "continue"):
        arguments = {"run": "foreign", **more.get(name, {})}
        with pytest.raises(RunNotFound, match="foreign is not a run of the workflows in"):
            await TABLE[name].call(service, arguments, WHO)
    with pytest.raises(RunNotFound, match="is not a run ID"):
        await service.status({"run": "a\0b"}, WHO)


async def test_questions_are_answered_and_the_run_continues(service: Service) -> None:
    """The answer is recorded with the name of the caller, in one of the forms of its kind, and the run goes on."""
    waiting: Any = await service.run({"workflow": "asks.yaml", "wait": 60}, WHO)
    assert waiting["status"] == "suspended"
    status: Any = await service.status({"run": waiting["run_id"]}, WHO)
    (question,) = status["questions"]
    assert question["kind"] == "iteration"
    with pytest.raises(ConfigurationError, match="approve"):
        await service.approve({"run": waiting["run_id"], "answer": "maybe"}, WHO)
    answer = {"run": waiting["run_id"], "path": question["path"], "answer": {"approve": True}}
    await service.approve(answer, WHO)
    inbox = await service.journal.inbox(waiting["run_id"])
    assert [one.who for one in inbox] == ["a test"]
    done: Any = await service.result({"run": waiting["run_id"], "wait": 60}, WHO)
    assert (done["status"], done["output"], done["iterations"]) == ("exhausted", "xx", 2)
    with pytest.raises(ConfigurationError, match="answered already"):
        await service.approve(answer, WHO)


async def test_a_run_is_steered_held_and_continued(service: Service) -> None:
    """The caller is the person of the record; with another open question the run stays suspended."""
    run_id = (await service.run({"workflow": "asks.yaml", "wait": 60}, WHO))["run_id"]
    hint = {"run": run_id, "text": "Use x."}
    assert await TABLE["steer"].call(service, hint, WHO) == {"hint": 1}
    held: Any = await TABLE["hold"].call(service, {"run": run_id}, WHO)
    assert (held["status"], held["reason"], len(held["questions"])) == ("suspended", "held", 2)
    again: Any = await TABLE["continue"].call(service, {"run": run_id}, WHO)
    assert [one["kind"] for one in again["questions"]] == ["iteration"]
    assert {one.who for one in await service.journal.inbox(run_id)} == {"a test"}


async def test_a_run_is_cancelled_and_no_other_is(service: Service) -> None:
    """A run that goes on is cancelled, and one that has ended is refused."""
    confirmation = await confirmed(service, "slow.yaml")
    started: Any = await service.run({"workflow": "slow.yaml", "confirmation": confirmation}, WHO)
    assert started["status"] == "running"
    await service.cancel({"run": started["run_id"]}, WHO)
    done: Any = await service.result({"run": started["run_id"], "wait": 60}, WHO)
    assert done["status"] == "cancelled"
    with pytest.raises(LoopwrightError, match="is cancelled, so there is nothing to cancel"):
        await service.cancel({"run": started["run_id"]}, WHO)


async def test_budgets_are_those_of_the_command_line(service: Service) -> None:
    """A limit of the request limits the run, and an invalid one is refused before it starts."""
    limits = {"max_effects": 1, "max_usd": 0.5}
    done: Any = await service.run({"workflow": "plain.yaml", "wait": 60, **limits}, WHO)
    source = (await service.find(done["run_id"])).source
    assert {name: source[name] for name in limits} == limits
    for wrong in ({"max_usd": -1}, {"max_calls": "many"}, {"wait": 1e9}, {"input": 7}, {"id": 3}):
        with pytest.raises(ConfigurationError, match=f"^run: {next(iter(wrong))}"):
            TABLE["run"].check({"workflow": "plain.yaml", **wrong})


WRONG = {
    "no object": (["x"], "run: the arguments are not a JSON object"),
    "unknown": ({"workflo": "x"}, "run: unknown argument 'workflo'; did you mean 'workflow'?"),
    "missing": ({}, "run: the argument 'workflow' is missing"),
    "type": ({"workflow": 1}, "run: workflow: 1 is not of type 'string'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_nonsense_is_refused_in_one_sentence(name: str) -> None:
    """The sentence names the operation, the argument, and the nearest valid name."""
    arguments, sentence = WRONG[name]
    with pytest.raises(ConfigurationError) as error:
        TABLE["run"].check(arguments)  # type: ignore[arg-type]
    assert str(error.value) == sentence


def test_the_state_folder_is_needed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no secret can be stored, nothing is served."""
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/nowhere")
    with pytest.raises(ConfigurationError, match="XDG_STATE_HOME"):
        Service(folder, MemoryJournal(), "memory:", note=print)


WAITS = """
schema: loopwright/1
name: waits
steps:
  - {name: ci, wait: {event: done, timeout: 2h, schema: {type: object}}}
"""


async def test_an_event_continues_the_run_that_waits_for_it(service: Service, folder: Path) -> None:
    """It is stored once, by the run or by the key; what the run would set aside is refused, and a foreign run left alone."""
    (folder / "waits.yaml").write_text(WAITS, "utf-8")
    words = ["run", "waits.yaml", "--run-id", "r1", "--on-wait", "leave"]
    await service._processes.launch(words)
    await until(lambda: _is(service, "suspended"))
    state: Any = await service.status({"run": "r1"}, WHO)
    assert "waits for the event done" in state["detail"]
    assert status_of(await service.journal.find("r1")) == "working"  # nobody is asked
    for arguments, said in [
        ({}, "give one of run and key"),
        ({"run": "r1", "key": "k"}, "give one of run and key"),
        ({"run": "r1", "value": 3}, "its value does not fit"),
        ({"run": "r1", "name": "no name"}, "is not a name"),
    ]:
        with pytest.raises(ConfigurationError, match=said):
            await service.signal({"name": "done", **arguments}, WHO)
    with pytest.raises(RunNotFound):
        await service.signal({"name": "done", "run": "r2"}, WHO)
    event = {"name": "done", "key": "r1", "value": {"ok": True}, "id": "x"}
    assert await service.signal(event, WHO) == {"id": "x", "repeated": False, "waiting": 1}
    await until(lambda: _is(service, "satisfied"))
    result: Any = await service.result({"run": "r1"}, WHO)
    assert (result["output"]["value"], result["output"]["ended"]) == ({"ok": True}, "event")
    assert await service.signal(event, WHO) == {"id": "x", "repeated": True, "waiting": 0}


async def _is(service: Service, status: str) -> bool:
    return (await service.journal.find("r1")).status == status
