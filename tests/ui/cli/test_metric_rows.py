"""Metrics on the terminal, in JSON, in exports and on the page."""

from __future__ import annotations

import csv
import io
import json
import re

import pytest

from .conftest import Project

DOCUMENT = """\
schema: loopwright/1
name: tune
steps:
  - name: fit
    loop:
      execute: {shell: "echo $N", env: {N: "{{ loop.iteration }}", TABLE: "{{ loop.table }}"}}
      evaluate:
        metric: {name: time, command: "sed -e 's/1/9/' -e 's/2/4.5/' -e 's/3/7/'"}
      metrics: {time: {minimise: true, unit: s}}
      max_iterations: 3
"""


@pytest.fixture
def tuned(project: Project) -> Project:
    """A folder with a run of a loop that measures 9, 4.5 and 7 seconds."""
    (project.folder / "tune.yaml").write_text(DOCUMENT)
    assert project.call("run", "tune.yaml", "--yes").code == 3
    return project


def test_rows_have_the_value_its_unit_and_its_change(tuned: Project) -> None:
    """`show` has a row per iteration, a curve, and the accepted value."""
    shown = tuned.call("show", "last").out
    assert "accepted: iteration 2 with time 4.5 s" in " ".join(shown.split())
    assert [line for line in shown.splitlines() if "fit time" in line and line.endswith(" 7 s")]
    rows = [line for line in shown.splitlines() if re.match(r"fit [0-9]", line)]
    assert ["accepted" in row for row in rows] == [True, True, False]
    assert ["rejected" in row for row in rows] == [False, False, True]
    assert "4.5 s" in rows[1]
    assert "-4.5" in rows[1]


def test_a_run_without_a_better_iteration_says_so(project: Project) -> None:
    """With a baseline that nothing beats, the last line says that no iteration was accepted."""
    text = DOCUMENT.replace("      max", "      baseline: true\n      max")
    (project.folder / "tune.yaml").write_text(text.replace("s/2/4.5/", "s/1/1/"))
    # The evaluator measures the input, 0, and then 9 and higher.
    ended = project.call("run", "tune.yaml", "--yes", "--input", "0")
    assert ended.code == 3 and "accepted: no iteration" in ended.out


def test_json_has_the_measures(tuned: Project) -> None:
    """The rows, the loop and the run have them; other members are unchanged."""
    data = json.loads(tuned.call("show", "last", "--json").out)
    best = {
        "time": {
            "value": 4.5,
            "unit": "s",
            "direction": "minimise",
            "change": -4.5,
            "objective": True,
        }
    }
    assert data["best"] == {"iteration": 2, "score": None, "measures": best}
    assert data["loops"]["fit"]["measures"] == best
    assert [row["accepted"] for row in data["loops"]["fit"]["history"]] == [True, True, False]


def test_an_export_has_a_column_per_metric(tuned: Project) -> None:
    """The columns follow the others; without metrics there are none."""
    rows = list(csv.DictReader(io.StringIO(tuned.call("export", "last", "-f", "csv").out)))
    assert [row["time"] for row in rows] == ["9.0", "4.5", "7.0"]
    assert [row["accepted"] for row in rows] == ["True", "True", "False"]


def test_the_report_shows_the_values(tuned: Project) -> None:
    """The HTML report has the value with its change, the verdict and a curve with the name of the metric."""
    text = tuned.call("export", "last", "-f", "html").out
    assert "4.5 s ↓ -4.5" in text
    assert "rejected" in text
    assert "time, s of 3 iterations: first 9" in text


def test_compared_metrics_have_few_digits(project: Project) -> None:
    """A comparison shows a metric as `show` does; its JSON is exact."""
    text = DOCUMENT.replace(
        "command: \"sed -e 's/1/9/' -e 's/2/4.5/' -e 's/3/7/'\"",
        'command: "echo 0.30000000000000004"',
    )
    (project.folder / "tune.yaml").write_text(text.replace("time", "loss"))
    for name in ("one", "two"):
        assert project.call("run", "tune.yaml", "--yes", "--run-id", name).code == 3
    rows = project.call("compare", "one", "two").out.splitlines()
    assert next(row.split() for row in rows if row.startswith("loss ")) == ["loss", "0.3", "0.3"]
    runs = project.call("compare", "one", "two", "--json").json["runs"]
    assert runs[0]["metrics"] == {"loss": 0.30000000000000004}
