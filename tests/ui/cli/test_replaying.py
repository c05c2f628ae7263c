"""`loopwright measure limits`: the table, the files, and one sentence for each wrong input."""

from __future__ import annotations

import json

import pytest

from .conftest import Project


def recorded(project: Project) -> None:
    for _ in range(3):
        assert project.call("run", "steps:short").code == 3
    project.call("run", "steps:refine", "-i", "x")


def test_replay_prints_the_reproduced_stops_first(project: Project) -> None:
    recorded(project)
    long = (
        "[{score_at_least: 0.95}, {no_improvement: 3}, {repeated_output: 3}, {max_iterations: 1}]"
    )
    answer = project.call(
        "measure", "limits", "name:short", "--until", "[{max_iterations: 1}]", "--until", long
    )
    assert answer.code == 0
    first, header, *rows = answer.out.splitlines()
    assert first.startswith("recorded stops reproduced: 3 of 3, short, quality: selection score")
    assert header.split()[:4] == ["policy", "exact", "censored", "iterations"]
    assert [row.split("  ")[0] for row in rows[:2]] == ["recorded", "limit 1"]
    ends = [row.index(" 3 ") for row in rows[:2]]
    assert ends == [header.index("exact") + 3] * 2  # the longest name decides the columns
    priced = project.call("measure", "limits", "name:short", "--call-price", "0.05").out
    assert priced.splitlines()[0] == f"{first}, price of a call: 0.05"


def test_replay_writes_its_files_and_one_json_object(project: Project) -> None:
    recorded(project)
    (project.folder / "p.yaml").write_text(
        "- {name: one, until: {max_iterations: 1}}\n- {until: passed}\n"
    )
    answer = project.call(
        "measure", "limits", "name:short", "--policy", "p.yaml", "--out", "out", "--json"
    )
    assert answer.json == json.loads((project.folder / "out/limits.json").read_text())
    assert [p["policy"]["name"] for p in answer.json["policies"]] == ["recorded", "one", "passed"]
    assert answer.json["reproduced"] == {"ok": 3, "of": 3, "failed": 0, "left_out": []}
    assert {p.name for p in (project.folder / "out").iterdir()} == {
        "limits.json", "pairs.csv", "frontier.svg",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ("name:short", "--until", "[{score_at_lest: 1}]"),
            "--until: unknown condition 'score_at_lest'",
        ),
        (("name:short", "--until", "[{"), "--until:1:"),
        (("name:short", "--until", "{score_at_least: .nan}"), "--until"),
        (("name:short", "--policy", "wrong.yaml"), "wrong.yaml:2:3: unknown key 'utnil'"),
        (("name:short", "--policy", "none.yaml"), "none.yaml: No such file"),
        (("name:short", "--policy", "empty.yaml"), "empty.yaml is empty"),
        (("name:short", "--call-price", "-1"), "--call-price"),
        (("name:short", "--loop", "x"), "has no loop 'x'"),
        (("name:short", "name:refine"), "use name: once"),
        (("last", "name:short"), "runs of 2 documents: refine, short"),
        (("nobody",), "nobody"),
        (
            ("name:none",),
            "name:none: no run is selected. List the runs with: loopwright runs\n",
        ),
    ],
)
def test_wrong_input_is_one_sentence(
    project: Project, arguments: tuple[str, ...], expected: str
) -> None:
    recorded(project)
    (project.folder / "empty.yaml").write_text("[]\n")
    (project.folder / "wrong.yaml").write_text("- {until: passed}\n- {until: passed, utnil: 1}\n")
    answer = project.call("measure", "limits", *arguments)
    assert answer.code == 2
    assert expected in answer.err
    assert "Traceback" not in answer.err
    assert len(answer.err.strip().splitlines()) == 1
