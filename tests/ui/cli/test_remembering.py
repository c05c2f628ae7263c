"""`memory`: what runs remember, on the command line; and a run shown as a lifecycle."""

from __future__ import annotations

from typing import Any

from ui.cli.conftest import Project

MODULE = """
from loopwright import Loop, MaxIterations
from loopwright.engine.loop_memory import remembered, remembering

async def draft(value, ctx):
    space = remembered(ctx, "desk")
    await space.remember("mail comes at nine", category="office")
    await space.note({"seen": value})
    await space.set("task", value)
    return f"draft {ctx.iteration}"

loop = remembering(Loop(draft, lambda text: 0.5, until=MaxIterations(2), name="draft"))
"""


def _remembers(project: Project) -> None:
    (project.folder / "keeps.py").write_text(MODULE, encoding="utf-8")
    for value in ("one", "two"):
        assert project.call("run", "keeps:loop", "--input", value).code == 3


def test_spaces_and_what_is_in_them(project: Project) -> None:
    """Without a space they are listed; of one, episodes, facts, notes and working memory are shown."""
    _remembers(project)
    told = project.call("memory").out.splitlines()
    assert told == ["desk  1 fact, 4 notes", "draft  2 episodes"]
    desk = project.call("memory", "desk").out
    assert "active" in desk and "mail comes at nine" in desk and '{"seen": "two"}' in desk
    assert "working memory of run" in desk
    draft = project.call("memory", "draft").out.splitlines()
    assert draft[0] == "0 of 2 episodes successful"
    assert "partial" in draft[1] and "two" in draft[1]


def test_one_of_them(project: Project) -> None:
    """An episode or a fact is shown whole by its id; a wrong id or space names the nearest."""
    _remembers(project)
    data: Any = project.call("memory", "desk", "--json", "--only", "facts").json
    (fact,) = data["facts"]
    assert fact["reinforced"] == 3 and "notes" not in data
    shown = project.call("memory", "desk", "--entry", fact["id"]).out
    assert "text: mail comes at nine" in shown
    wrong = project.call("memory", "desc")
    assert wrong.code != 0 and "did you mean 'desk'" in wrong.err
    assert "no episode or fact 'x'" in project.call("memory", "desk", "--entry", "x").err
    assert "did you mean 'facts'" in project.call("memory", "desk", "--only", "fact").err


def test_what_shares_words(project: Project) -> None:
    """--find shows only what shares words with it."""
    _remembers(project)
    found: Any = project.call("memory", "desk", "--find", "mail", "--json").json
    assert len(found["facts"]) == 1 and found["notes"] == []
    listed: Any = project.call("memory", "--json").json
    assert [row["space"] for row in listed["spaces"]] == ["desk", "draft"]


def test_without_a_journal_nothing_is_remembered(project: Project) -> None:
    """Looking makes no journal, and finds nothing."""
    done = project.call("memory")
    assert done.code == 0 and "no memory in" in done.err
    assert not (project.folder / ".loopwright").exists()


def test_a_run_is_shown_as_a_lifecycle(project: Project) -> None:
    """`show --lifecycle` tells the states of a run, from its journal."""
    _remembers(project)
    lines = project.call("show", "last", "--lifecycle").out.splitlines()
    assert "START" in lines[0] and "failed" in lines[-1] and "2 of 2 iterations" in lines[-1]
    data: Any = project.call("show", "last", "--lifecycle", "--json").json
    assert data["state"] == "failed" and data["moments"][-1]["event"] == "MAX_ITERATIONS"
