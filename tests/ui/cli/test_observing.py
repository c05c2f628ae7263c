"""`--otel` and `--log`: a run watched by other programs."""

from __future__ import annotations

import json

import pytest

from telemetry.sink import Server, attributes

from .conftest import Project
from .test_processes import until


def test_a_run_is_sent_to_the_collector_that_the_command_line_names(project: Project) -> None:
    """`--otel URL` sends the spans and events of the run, and says nothing of it."""
    with Server() as sink:
        answer = project.run(
            "run", "steps:refine", "-i", "note", "--otel", sink.url, "--run-id", "r"
        )
        assert answer.code == 0
        assert "telemetry" not in answer.err
        names = [span.name for span in sink.spans()]
        assert names.count("iteration 3") == 1
        assert "invoke_workflow refine" in names
        assert len(sink.events()) == 3
        cost = sink.metrics()["loopwright.cost"][0]
        assert cost.as_double == pytest.approx(0.03)


def test_the_environment_names_the_collector_too(project: Project) -> None:
    """OTEL_EXPORTER_OTLP_ENDPOINT does what `--otel` does, unless OTEL_SDK_DISABLED says no."""
    with Server() as sink:
        told = {"OTEL_EXPORTER_OTLP_ENDPOINT": sink.url}
        project.run("run", "steps:refine", "-i", "x", **told, OTEL_SDK_DISABLED="true")
        assert sink.bodies == []
        assert project.run("run", "steps:refine", "-i", "x", **told).code == 0
        assert sink.spans()
        sink.bodies.clear()
        assert project.run("run", "--otel", "steps:refine", "-i", "x", **told).code == 0
        assert sink.spans()


def test_an_interrupted_run_ends_in_its_trace_and_its_resume_goes_on_in_it(
    project: Project,
) -> None:
    """Two processes, one trace: the first tells that it was interrupted, the second how it ended."""
    with Server() as sink:
        process = project.start(
            "run", "steps:waits", "-i", "x", "--otel", sink.url, "--run-id", "r"
        )
        until(process.stdout, "waits 2")
        process.terminate()
        process.communicate()
        first = {span.name: attributes(span) for span in sink.spans()}
        assert first["invoke_workflow waits"]["loopwright.status"] == "interrupted"
        assert first["loop waits"]["loopwright.interrupted"] is True
        (project.folder / "go.txt").write_text("go")
        answer = project.run("resume", "r", "--otel", sink.url, "--in-doubt", "rerun")
        assert answer.code in (0, 3)
        spans = sink.spans()
        assert len({span.trace_id for span in spans}) == 1
        assert len({span.span_id for span in spans}) == len(spans)
        ends = [attributes(s)["loopwright.status"] for s in spans if not s.parent_span_id]
        assert ends[0] == "interrupted"
        assert ends[1] in ("satisfied", "exhausted")


def test_a_dead_collector_costs_a_note_and_no_exit_code(project: Project) -> None:
    """The run ends as it would have; the note is one line after everything else."""
    with Server() as sink:
        url = sink.url  # and nobody listens there any more
    answer = project.run("run", "steps:refine", "-i", "x", "--otel", url)
    assert answer.code == 0
    assert answer.err.splitlines()[-1].startswith("note: telemetry: ")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--otel=nowhere",), "'nowhere' is not the URL of a collector"),
        (("--log", "no/such/folder/x.log"), "--log: no/such/folder/x.log cannot be written"),
    ],
)
def test_what_cannot_be_followed_is_refused_before_the_run(
    project: Project, arguments: tuple[str, ...], words: str
) -> None:
    """A wrong endpoint or log file is a wrong command line, and nothing has run."""
    answer = project.call("run", "steps:refine", "-i", "x", *arguments)
    assert answer.code == 2
    assert words in answer.err
    assert project.effects() == []


def test_log_lines_go_to_a_file_or_to_stderr(project: Project) -> None:
    """`--log FILE` appends a JSON object per entry, `--log -` writes them to stderr."""
    assert project.call("run", "steps:refine", "-i", "x", "--log", "run.log").code == 0
    found = [json.loads(line) for line in (project.folder / "run.log").read_text().splitlines()]
    assert found[0]["event"] == "opened"
    assert found[-1]["status"] == "satisfied"
    answer = project.call("run", "steps:refine", "-i", "x", "--log", "-", "--json")
    assert json.loads(answer.out)["status"] == "satisfied"
    assert [line for line in answer.err.splitlines() if line.startswith('{"time"')]


def test_secrets_of_the_environment_are_in_no_log_line(project: Project) -> None:
    """What a variable that is called a key or token holds is taken out, even with content."""
    secret = "canary-0123456789"
    with (project.folder / "steps.py").open("a") as file:
        file.write(
            "\n\nasync def tells(value):\n    return 'with ' + os.environ['MY_SERVICE_TOKEN']\n"
        )
    answer = project.run(
        "run", "steps:tells", "--log", "-", "--capture-content", MY_SERVICE_TOKEN=secret
    )
    lines = [line for line in answer.err.splitlines() if line.startswith('{"time"')]
    assert "[redacted]" in "".join(lines)
    assert secret not in "".join(lines)
