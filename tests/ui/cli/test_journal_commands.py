"""`runs`, `show`, `export`, `rewind`, `cancel`: what is on record, and changing it."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from .conftest import Project

NOTE = """\
schema: loopwright/1
name: note
steps:
  - name: first
    loop: {execute: {shell: [echo, a]}, until: [{max_iterations: 2}]}
"""


@pytest.fixture
def done(project: Project) -> Project:
    """A folder with two runs in its journal: `refined` and, later, `short`."""
    project.call("run", "steps:refine", "--input", "x", "--run-id", "refined")
    project.call("run", "steps:short", "--input", "y", "--run-id", "short")
    return project


def test_runs_lists_the_newest_first(done: Project) -> None:
    """A line per run: id, status, name, iterations, best score."""
    lines = [line.split() for line in done.call("runs").out.splitlines()]
    assert [line[:6] for line in lines] == [
        ["short", "exhausted", "short", "2", "iterations", "0.50"],
        ["refined", "satisfied", "refine", "3", "iterations", "0.90"],
    ]


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ([], ["short", "refined"]),
        (["--limit", "1"], ["short"]),
        (["--status", "satisfied"], ["refined"]),
        (["--name", "short"], ["short"]),
        (["--status", "running"], []),
    ],
)
def test_runs_can_be_narrowed(done: Project, options: list[str], found: list[str]) -> None:
    """By number, status and name; as one object for programs."""
    rows = done.call("runs", "--json", *options).json["runs"]
    assert [row["run_id"] for row in rows] == found


def test_a_folder_without_a_journal_has_no_runs(project: Project) -> None:
    """Looking makes nothing and is no error."""
    answer = project.call("runs")
    assert (answer.code, answer.out) == (0, "")
    assert answer.err == "no runs in sqlite:.loopwright/runs.db\n"
    assert project.call("runs", "--json").json == {"runs": [], "total": 0}
    assert not (project.folder / ".loopwright").exists()


@pytest.mark.parametrize(
    ("name", "found"),
    [("refined", "refined"), ("ref", "refined"), ("last", "short")],
)
def test_a_run_is_its_id_the_beginning_of_it_or_last(done: Project, name: str, found: str) -> None:
    """Nobody types whole ids."""
    assert done.call("show", name, "--json").json["run_id"] == found


def test_an_unknown_run_names_the_nearest(done: Project) -> None:
    """A typo is answered with the id that was meant."""
    answer = done.call("show", "refinde")
    assert answer.code == 2
    assert answer.err == (
        "loopwright: there is no run 'refinde' in this journal; did you mean 'refined'?\n"
    )


def test_show_tells_a_run_as_run_did(done: Project) -> None:
    """The object of `show` is that of `run`, and more of what is known."""
    shown = done.call("show", "refined", "--json").json
    ran = done.call("run", "steps:refine", "--run-id", "refined", "--json").json
    assert {key: shown[key] for key in ran} == ran
    assert shown["input"] == "x"
    assert shown["source"].pop("bounds")["loops"][0]["name"] == "refine"
    assert shown["source"] == {"python": "steps:refine", "root": str(done.folder)}


def test_show_is_an_overview(done: Project) -> None:
    """What it is, why it ended, how the scores went, its rounds, its output, what to ask next."""
    out = done.call("show", "refined").out
    assert out.startswith("refine  run refined, started ")
    assert "from steps:refine\nSatisfied: score 0.9 is at least 0.9 (3 iterations, " in out
    assert "input: x\nrefine scores ▃▅█ 0.25 → 0.90\n" in out
    assert sum(line.startswith("refine ") and "░" in line for line in out.splitlines()) == 3
    assert "output:\ndraft 3\nof x\njournal: sqlite:.loopwright/runs.db\n" in out
    assert out.endswith("loopwright show refined --iteration 3; or --diff I J, --trace\n")


def test_show_gives_the_output_alone(done: Project) -> None:
    """Whole and as it is, for the next program."""
    assert done.call("show", "refined", "--output").out == "draft 3\nof x\n"


def test_show_gives_all_of_one_iteration(done: Project) -> None:
    """Its input, output, feedback, and what it consists of."""
    out = done.call("show", "refined", "--iteration", "2").out
    assert "input:\nx\noutput:\ndraft 2\nof x\nfeedback:\nround 2 is long\n" in out
    assert "step execute  draft 2 of x" in out
    assert "draft 1" not in out
    data = done.call("show", "refined", "--iteration", "2", "--json").json
    assert (data["loop"], data["iteration"], data["score"]) == ("refine", 2, 0.5)


def test_show_compares_two_iterations(done: Project) -> None:
    """What changed in the output, line by line."""
    lines = done.call("show", "refined", "--diff", "1", "3").out.splitlines()
    assert lines[:2] == ["--- iteration 1 (0.25)", "+++ iteration 3 (0.90)"]
    assert lines[3:] == ["-draft 1", "+draft 3", " of x"]
    same = done.call("show", "refined", "--diff", "2", "2").out
    assert same == "the outputs of iterations 2 and 2 are the same\n"


def test_show_has_a_trace(done: Project) -> None:
    """A tree in words: the loop, its iterations, and what each of them consists of."""
    lines = done.call("show", "refined", "--trace").out.splitlines()
    heads = [
        line.split("  ")[0] if line[0] != " " else line.strip().split("  ")[0] for line in lines
    ]
    each = [w for n in (1, 2, 3) for w in (f"iteration {n}", "step execute", "check evaluate")]
    assert [head for head in heads if "adapt" not in head] == ["loop refine", *each]
    (loop,) = done.call("show", "refined", "--trace", "--json").json["trace"]
    assert (loop["kind"], loop["path"], len(loop["children"])) == ("loop", "refine", 3)
    assert loop["children"][0]["children"][0]["path"] == "refine/1/execute"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--iteration", "4"], "refine has iterations 1 to 3, not 4"),
        (["--diff", "0", "1"], "refine has iterations 1 to 3, not 0"),
        (
            ["--loop", "refin"],
            "--loop: there is no loop 'refin' in refined; did you mean 'refine'?",
        ),
    ],
)
def test_what_was_not_recorded_cannot_be_shown(
    done: Project, options: list[str], sentence: str
) -> None:
    """The sentence says what there is."""
    answer = done.call("show", "refined", *options)
    assert (answer.code, answer.out, answer.err) == (2, "", f"loopwright: {sentence}\n")


def test_one_loop_of_several_is_chosen_by_name(project: Project) -> None:
    """The outermost by default, else the latest of that name or path."""
    project.call("run", "steps:outer", "--run-id", "nest")
    data = project.call("show", "nest", "--iteration", "1", "--json").json
    assert data["loop"] == "outer"
    data = project.call("show", "nest", "--loop", "inner", "--iteration", "1", "--json").json
    assert data["loop"] == "outer/2/execute/inner"
    path = "outer/1/execute/inner"
    assert (
        project.call("show", "nest", "--loop", path, "--diff", "1", "2", "--json").json["loop"]
        == path
    )


def test_other_loops_are_told_of(project: Project) -> None:
    """Where nobody named one of several loops, what is shown of one says how to ask for another."""
    project.call("run", "steps:outer", "--run-id", "nest")
    told = "for another loop, use --loop inner"
    assert told in project.call("show", "nest", "--diff", "1", "2").out
    assert told in project.call("show", "nest", "--iteration", "9").err
    named = project.call("show", "nest", "--loop", "outer", "--diff", "1", "2")
    assert "--loop" not in named.out


def test_the_list_of_runs_is_that_of_the_same_journal(project: Project) -> None:
    """A run that is not there is looked for where it was looked for."""
    project.call("run", "steps:echo", "--journal", "sqlite:other.db")
    asked = project.call("show", "zzz", "--journal", "sqlite:other.db")
    assert asked.err.endswith("list them with: loopwright runs --journal sqlite:other.db\n")


def test_export_writes_the_run_in_three_forms(done: Project) -> None:
    """All of it, its iterations as a table, its journal line by line."""
    whole = done.call("export", "refined").json
    assert whole["entries"][0]["kind"] == "started"
    assert whole["loops"]["refine"]["iterations"] == 3
    table = list(csv.DictReader(io.StringIO(done.call("export", "refined", "-f", "csv").out)))
    assert [(r["loop"], r["iteration"], r["score"], r["output"]) for r in table] == [
        ("refine", str(n), score, f"draft {n}\nof x")
        for n, score in ((1, "0.25"), (2, "0.5"), (3, "0.9"))
    ]
    lines = done.call("export", "refined", "-f", "jsonl").out.splitlines()
    assert [json.loads(line) for line in lines] == whole["entries"]


def test_export_writes_a_file_whole_or_not_at_all(done: Project) -> None:
    """A file that cannot be written is a sentence, and leaves nothing behind."""
    answer = done.call("export", "refined", "--out", "run.json")
    assert (answer.code, answer.out, answer.err) == (0, "", "wrote refined to run.json\n")
    assert json.loads(Path("run.json").read_text())["run_id"] == "refined"
    answer = done.call("export", "refined", "-o", "no/run.json")
    assert answer.code == 2
    assert (
        answer.err
        == "loopwright: --out: 'no/run.json' cannot be written: No such file or directory\n"
    )


def test_a_rewound_run_does_again_what_was_set_aside(done: Project) -> None:
    """From the path on, and nothing before it; export still has what was set aside."""
    answer = done.call("rewind", "refined", "refine/3/execute")
    assert answer.code == 0
    assert "\nresume: loopwright resume refined\n" in answer.out
    assert answer.out.endswith("undo: loopwright rewind refined --undo\n")
    told = done.call("show", "refined").out
    assert "Rewound: the later results were discarded" in told and "process" not in told
    assert "resume: loopwright resume refined" in told
    before = done.effects()
    assert done.call("show", "refined", "--json").json["status"] == "interrupted"
    assert done.call("resume", "refined", "--json").json["output"] == "draft 3\nof x"
    assert done.effects() == [*before, "draft 3"]
    kinds = [
        json.loads(line)["kind"]
        for line in done.call("export", "refined", "-f", "jsonl").out.splitlines()
    ]
    assert kinds.count("rewound") == 1
    assert kinds.count("ended") == 4


def test_a_path_that_is_not_there_is_named_with_the_nearest(done: Project) -> None:
    """Rewinding to nowhere changes nothing."""
    answer = done.call("rewind", "refined", "refine/4/execute")
    assert answer.code == 2
    assert answer.err.startswith(
        "loopwright: nothing was recorded at 'refine/4/execute'; did you mean "
    )
    # An iteration has no entry at its path.
    for words in (["rewind", "refined", "refnie/3"], ["fork", "refined", "refnie/3"]):
        assert "; did you mean 'refine/3'?" in done.call(*words).err


def test_the_end_of_a_path_does_where_it_fits_one_only(project: Project) -> None:
    """What a document's loop is called on screen is enough to rewind it; two of that name are told."""
    (project.folder / "note.yaml").write_text(NOTE)
    project.call("run", "note.yaml", "--yes", "--run-id", "one")
    answer = project.call("rewind", "one", "execute")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("loopwright: PATH: 'execute' matches 2 paths, such as note/")
    # The end of the run has a path of its own, which the ends of loops do not hide.
    for path in ("ended", "/ended"):
        answer = project.call("rewind", "one", path)
        assert (answer.code, " from ended onward" in answer.out) == (0, True), answer.err
        assert project.call("resume", "one", "--yes").code == 3
    answer = project.call("rewind", "one", "first/2")
    assert (answer.code, " from note/first/2 onward" in answer.out) == (0, True)
    answer = project.call("rewind", "one", "first/1", "--input", "x")
    assert (answer.code, "note/first/1 will run with the new input" in answer.out) == (0, True)


def test_an_export_that_cannot_be_written_says_where_it_should_have_gone(done: Project) -> None:
    """Neither a name that nobody gave nor a traceback, also where nothing can be removed either."""
    (done.folder / "file").touch()
    answer = done.call("export", "refined", "-o", "file/run.json")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == "loopwright: --out: 'file/run.json' cannot be written: Not a directory\n"


def test_changes_are_one_object_for_programs(done: Project) -> None:
    """What was set aside, by the run's whole id."""
    answer = done.call("rewind", "ref", "refine/3", "--json")
    keys = {"run_id", "path", "entries", "iterations", "usage", "undone"}
    assert answer.json.keys() == keys
    assert (answer.json["run_id"], answer.json["path"]) == ("refined", "refine/3")
    undone = done.call("rewind", "ref", "--undo", "--json").json
    assert (undone["undone"], undone["entries"]) == (True, answer.json["entries"])


def test_an_ambiguous_beginning_names_nobody(done: Project) -> None:
    """Two runs that begin alike are two runs."""
    done.call("run", "steps:echo", "--run-id", "ref2")
    answer = done.call("show", "ref")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == "loopwright: 'ref' matches 2 runs; use more characters of the id\n"


def test_a_folder_that_cannot_be_made_is_told(project: Project) -> None:
    """The default journal needs its folder; exit code 1, as for any journal out of reach."""
    (project.folder / ".loopwright").touch()
    answer = project.call("run", "steps:echo")
    assert answer.code == 1
    assert answer.err == (
        "loopwright: .loopwright cannot be created: File exists. Choose another place with --journal.\n"
    )


def test_what_does_not_run_cannot_be_cancelled(done: Project) -> None:
    """The sentence says how it is."""
    answer = done.call("cancel", "refined")
    assert (answer.code, answer.err) == (
        1,
        "loopwright: refined is satisfied; no process is running it\n",
    )


def test_check_tells_what_a_step_of_python_says(project: Project) -> None:
    """Its bounds, if it can run; the problem and exit code 2, if not."""
    answer = project.call("check", "steps:refine", "steps:xyzzy", "--json")
    assert answer.code == 2
    good, bad = answer.json["documents"]
    assert good["plan"]["bounds"] == ["refine: at most 10 iterations"]
    assert bad["problems"][0]["message"] == "steps:xyzzy: there is no 'xyzzy'"
    text = project.call("check", "steps:refine").out
    assert text.startswith("steps:refine: can run\n")
