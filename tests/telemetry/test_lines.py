"""Log lines: one JSON object per entry."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import quote

from loopwright import Evaluation, Loop, MaxIterations, Passed, run
from loopwright.models import Redactor
from loopwright.telemetry import LogLines, trace_id
from loopwright.testing import run_virtual


async def draft(value: Any, ctx: Any) -> str:
    await ctx.sleep(1.0)
    if ctx.iteration == 1:
        raise ValueError("sk-canary-0123456789 is no good")
    return f"draft {ctx.iteration} of {value}"


def judge(output: Any) -> Evaluation:
    return Evaluation(0.9, True, "fine")


refine = Loop(draft, judge, until=Passed() | MaxIterations(3), name="refine", on_failure="continue")


def lines_of(**options: Any) -> list[dict[str, Any]]:
    written: list[str] = []
    lines = LogLines(written.append, wall=lambda: 0.0, **options)
    run_virtual(run(refine, "a note", run_id="r", listeners=[lines]))
    assert all(line.endswith("\n") and line.count("\n") == 1 for line in written)
    return [json.loads(line) for line in written]


def test_every_line_says_when_where_and_what() -> None:
    """Each line has its time, level, message, event, run, ids and path."""
    found = lines_of()
    assert [line["event"] for line in found] == [
        "opened", "started", "finished", "iteration", "started", "finished", "started", "finished",
        "iteration", "ended", "ended",
    ]  # fmt: skip
    for line in found:
        assert line["run_id"] == "r"
        assert line["trace_id"] == f"{trace_id('r'):032x}"
        assert {"time", "level", "message", "run", "span_id", "path"} <= set(line)
    assert found[3]["time"].startswith("1970-01-01T00:00:01.")
    assert [line["level"] for line in found if line["event"] == "iteration"] == ["warning", "info"]
    assert found[-1]["message"] == "refine satisfied: iteration 2 passed its evaluation"
    assert found[-1]["reason"] == "condition_met"


def test_content_and_secrets_stay_out_unless_content_is_asked_for() -> None:
    """Outputs and feedback are in the lines only with the switch, secrets never."""
    redactor = Redactor(["sk-canary-0123456789"])
    quiet, open_ = lines_of(redactor=redactor), lines_of(capture=True, redactor=redactor)
    assert "a note" not in json.dumps(quiet)
    assert open_[-1]["output"] == "draft 2 of a note"
    assert open_[8]["feedback"] == "fine"
    assert "sk-canary" not in json.dumps(quiet) + json.dumps(open_)
    assert quiet[3]["error"]["message"] == "ValueError: [redacted] is no good"


def test_a_line_that_cannot_be_written_fails_no_run() -> None:
    """A full disk is a warning of the run."""

    def full(_: str) -> None:
        raise OSError("no space left")

    result = run_virtual(run(refine, "x", listeners=[LogLines(full)]))
    assert result.status == "satisfied"
    assert any("no space left" in warning for warning in result.warnings)


CANARIES = [
    f"{prefix}{number:02}{tail}"
    for number, (prefix, tail) in enumerate(
        [
            ("sk-", "abcdefgh/+=ijkl"), ("AIza", "SyD-9tSrke72PouQMn"), ("ghp_", "16C7e42F292c6912"),
            ("xox", "b-123-456-abc def"), ("pass", "wörd mit Umlaut"), ("a\"b\\c", "quote'd"),
            ("%", "41%42literal"), ("line", "\\nnot a break"), ("<x>", "&amp;escaped"), ("  pad", "ded  "),
        ] * 2
    )
]  # fmt: skip


def test_no_canary_passes_in_any_form() -> None:
    """Twenty secrets, as they are, in a URL, in JSON text and in base64, reach no line."""
    forms = [CANARIES, [quote(c, safe="") for c in CANARIES], [json.dumps(c) for c in CANARIES]]
    forms.append([base64.b64encode(f"user:{c}".encode()).decode() for c in CANARIES])

    def leak(value: Any) -> Any:
        raise ValueError(" ".join(text for form in forms for text in form))

    written: list[str] = []
    lines = LogLines(written.append, capture=True, redactor=Redactor(CANARIES))
    loop = Loop(leak, until=MaxIterations(1), name="leak", on_failure="continue")
    run_virtual(run(loop, {"given": forms}, listeners=[lines]))
    everything = "".join(written)
    assert "[redacted]" in everything
    for text in (*forms[0], *forms[1]):
        assert text.strip() not in everything
    for text in (*forms[2], *forms[3]):
        assert json.dumps(text)[4:-4] not in everything
