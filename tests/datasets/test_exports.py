"""States of cases in the formats of other tools; `tests/interop` reads them with these tools."""

from __future__ import annotations

from typing import Any

from loopwright import Case
from loopwright.datasets.exports import inspect_log, pydantic_evals_report


def row(
    state: str, score: float | None = None, passed: bool | None = None, **more: Any
) -> dict[str, Any]:
    return {
        "id": state, "repeat": 1, "state": state, "score": score, "passed": passed, "output": "x", "feedback": "",
        "metrics": {}, "usage": {"calls": 1, "usd": None}, "seconds": 0.5, **more,
    }  # fmt: skip


ROWS = [
    row("passed", 1.0, True), row("failed", 0.0, False, feedback="too long"), row("undecided"),
    row("errored", error="no answer"), row("skipped"),
]  # fmt: skip
CASES = {"passed": Case({"q": 1}, ["a", "b"], id="passed", metadata={"kind": "easy"})}


def test_each_state_has_its_place_in_a_log_of_inspect() -> None:
    """Only cases with a score have one, errors have their message, and unknown cases no input."""
    log = inspect_log("answers", "r", 0.0, "cases.jsonl", CASES, ROWS)
    samples = log["samples"]
    assert [sample.get("scores", {}).get("score", {}).get("value") for sample in samples] == [
        1.0,
        0.0,
        None,
        None,
        None,
    ]
    assert [sample.get("error", {}).get("message") for sample in samples] == [
        None,
        None,
        None,
        "no answer",
        None,
    ]
    assert (samples[0]["input"], samples[0]["target"], samples[1]["input"]) == (
        '{"q": 1}',
        ["a", "b"],
        "",
    )
    assert (log["results"]["total_samples"], log["results"]["completed_samples"]) == (5, 3)
    assert (log["eval"]["created"], log["eval"]["config"]["continue_on_fail"]) == (
        "1970-01-01T00:00:00+00:00",
        True,
    )
    assert inspect_log("a", "r", 0.0, "c", {}, [])["results"]["scores"][0]["metrics"] == {}


def test_each_state_has_its_place_in_a_report_of_pydantic_evals() -> None:
    """Errors and skipped cases are failures, the others cases with what is known of them."""
    report = pydantic_evals_report("answers", CASES, ROWS)
    assert [(case["name"], [*case["scores"], *case["assertions"]]) for case in report["cases"]] == [
        ("passed", ["score", "passed"]), ("failed", ["score", "passed"]), ("undecided", []),
    ]  # fmt: skip
    assert [(one["name"], one["error_message"]) for one in report["failures"]] == [
        ("errored", "no answer"), ("skipped", "the case was skipped"),
    ]  # fmt: skip
    first, second = report["cases"][:2]
    assert (first["inputs"], first["metadata"], first["metrics"]) == (
        {"q": 1},
        {"kind": "easy"},
        {"calls": 1},
    )
    assert second["scores"]["score"]["reason"] == "too long"
