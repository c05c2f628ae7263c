"""`retry` on the command line: a refusal changes nothing, a retry keeps what succeeded."""

from __future__ import annotations

import pytest

from .conftest import Project

LIST = """schema: loopwright/1
name: words
steps:
  - name: make
    each:
      items: "{{ input }}"
      on_failure: continue
      execute: {shell: "echo $X >> done; test ! -e broken-$X", env: {X: "{{ loop.current }}"}}
"""


@pytest.fixture
def failed(project: Project) -> Project:
    """A list of three items, of which two failed."""
    (project.folder / "words.yaml").write_text(LIST)
    for name in "bc":
        (project.folder / f"broken-{name}").touch()
    answer = project.call("run", "words.yaml", "--yes", "-i", '["a", "b", "c"]', "--run-id", "r")
    assert answer.code == 1, answer.err
    return project


def exported(project: Project) -> str:
    return project.call("export", "r", "-f", "jsonl").out


def test_a_retry_does_failed_items_again(failed: Project) -> None:
    """`--item` names some of them; the numbers of the list of runs are those of now."""
    assert failed.call("retry", "r", "--item", "3", "--item", "2").code == 1
    (failed.folder / "broken-b").unlink()
    assert failed.call("retry", "r", "--item", "2").code == 1
    # The items stay in the order of their numbers, and a failed one has its name as the others have.
    rows = [line for line in failed.call("show", "r").out.splitlines() if line.startswith("make ")]
    assert [row.split()[1] for row in rows[:3]] == ["1", "2", "3"]
    assert "! failed  c: " in rows[2]
    assert "make 2" in failed.call("show", "r", "--item", "2").out
    (failed.folder / "broken-c").unlink()
    assert failed.call("retry", "r").code == 0
    done = (failed.folder / "done").read_text().split()
    assert (done[:3], sorted(done[3:5]), done[5:]) == (["a", "b", "c"], ["b", "c"], ["b", "c"])
    assert failed.call("runs", "--json").json["runs"][0]["iterations"] == 3


def test_an_item_that_did_not_fail_is_refused(failed: Project) -> None:
    """The sentence names those that did."""
    before = exported(failed)
    answer = failed.call("retry", "r", "--item", "2", "--item", "1")
    assert (answer.code, answer.err) == (2, "loopwright: r: item 1 did not fail. Failed: 2, 3\n")
    assert exported(failed) == before


def test_a_retry_that_is_refused_changes_nothing(failed: Project) -> None:
    """The failure of the run, with its traceback, stays: the document has changed, or is not approved."""
    before = failed.call("runs", "--json").json["runs"]
    document = failed.folder / "words.yaml"
    document.write_text(LIST.replace("echo", "printf"))
    assert failed.call("retry", "r").code == 2  # not approved
    changed = failed.call("retry", "r", "--yes")  # another step than the recorded one
    assert (changed.code, changed.err.count("\n"), "does again" in changed.err) == (2, 1, False)
    [row] = failed.call("runs", "--json").json["runs"]
    assert {**row, "updated": 0} == {**before[0], "updated": 0}
    assert failed.call("show", "r", "--json").json["status"] == "failed"
    document.write_text(LIST)
    for name in "bc":
        (failed.folder / f"broken-{name}").unlink()
    done = failed.call("retry", "r", "--yes")
    assert (done.code, "; it does again what failed: 2 iterations\n" in done.out) == (0, True)


def test_only_a_failure_is_retried(failed: Project) -> None:
    """A satisfied run has nothing to do again."""
    failed.call("run", "steps:echo", "--run-id", "fine")
    answer = failed.call("retry", "fine")
    assert (answer.code, answer.err.count("\n")) == (2, 1)
    assert "it is satisfied, and nothing in it failed" in answer.err


def test_a_rewind_needs_a_path_or_undo(failed: Project) -> None:
    """Both, and neither, are a mistake that changes nothing."""
    for words in ([], ["make/2", "--undo"]):
        answer = failed.call("rewind", "r", *words)
        assert (answer.code, answer.err) == (
            2,
            "loopwright: rewind: give a PATH, or --undo alone\n",
        )
    answer = failed.call("rewind", "r", "--undo")
    assert answer.code == 1
    assert answer.err.endswith("r: it was not rewound, so there is no rewind to undo\n")
