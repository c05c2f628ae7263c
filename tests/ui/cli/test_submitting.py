"""Mistakes in `submit` and `worker` are refused before the journal is opened."""

from __future__ import annotations

import pytest

from .conftest import Project

WORDS = "schema: loopwright/1\nname: words\nsteps: [{name: say, set: 'Hello {{ input }}'}]\n"
NOWHERE = "postgres://127.0.0.1:1/runs"


@pytest.mark.parametrize(
    ("lines", "words", "message"),
    [
        ('1\n{"a":\n3\n', [], "--inputs: line 2 is not JSON"),
        ("1\nNaN\n", [], "line 2 is not JSON: NaN is not a number of JSON"),
        ("\n \n", [], "has no inputs; write one JSON value per line"),
        ("1\n", ["--cron", "0 6 * * *"], "--cron needs --id NAME"),
        ("1\n", ["--queue", "bad name!"], "queue: 'bad name!' is not the name of a queue"),
        ("1\n", ["--journal", "sqlite:runs.db"], "need a journal in PostgreSQL"),
        ("1\n", ["--journal", "postgres//runs"], "no colon after its scheme. Use postgres://"),
        ("1\n", ["--deliverer", "pgqueuer:x"], "'x' is not a PostgreSQL URL"),
    ],
)
def test_a_submission_with_a_mistake_queues_nothing(
    project: Project, lines: str, words: list[str], message: str
) -> None:
    """One sentence names the line or option, with exit code 2, and no run is created."""
    (project.folder / "words.yaml").write_text(WORDS)
    (project.folder / "inputs.jsonl").write_text(lines)
    journal = [] if "--journal" in words else ["--journal", NOWHERE]
    done = project.call("submit", "words.yaml", "--inputs", "inputs.jsonl", *journal, *words)
    assert done.code == 2
    assert message in done.err
    assert "submitted" not in done.out


@pytest.mark.parametrize("digest", ["zz", "0" * 15, "All", "0123456789abcdefz"])
def test_a_worker_refuses_a_digest_that_trusts_nothing(project: Project, digest: str) -> None:
    """A mistyped digest is reported when the worker starts, not by runs that never start."""
    done = project.call("worker", "start", "--journal", NOWHERE, "--trust", digest)
    assert done.code == 2
    assert "is not a digest; use 16 or more" in done.err


def test_a_worker_refuses_a_file_of_digests_that_it_cannot_read(project: Project) -> None:
    """What a fleet shares is read when the worker starts, and again for each run."""
    done = project.call("worker", "start", "--journal", NOWHERE, "--trust-file", "missing")
    assert done.code == 2
    assert "--trust-file: missing cannot be read: No such file" in done.err


def test_submitting_a_plain_function_says_that_workers_run_steps(project: Project) -> None:
    """The note comes with the submission and not only with the reason for which the run waits."""
    (project.folder / "shouting.py").write_text("def shout(text):\n    return text.upper()\n")
    done = project.call("submit", "shouting:shout", "--journal", NOWHERE)
    assert "shouting:shout is a function, and a worker with --root runs only steps" in done.err


def test_prune_needs_a_time(project: Project) -> None:
    """The message names the option that is missing."""
    done = project.call("journal", "prune")
    assert done.code == 2
    assert "prune --ended-before 30d" in done.err
