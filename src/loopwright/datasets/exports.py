"""Results of an evaluation in the formats of other tools: a log of Inspect, a report of pydantic-evals.

A row is the object `{id, repeat, state, score, passed, output, feedback, metrics, usage, seconds}` of a run of a case.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from statistics import fmean

from ..records.codec import Json, text_of
from .case import Case

__all__ = ["inspect_log", "pydantic_evals_report"]

_NO_MODEL = "none/none"  # the task of an evaluation may call several models, or none
_USED = ("calls", "input_tokens", "output_tokens", "usd")


def inspect_log(
    name: str,
    run_id: str,
    created: float,
    dataset: str,
    cases: Mapping[str, Case],
    rows: Sequence[Mapping[str, Json]],
) -> dict[str, Json]:
    """Return a log that Inspect reads (`read_eval_log`, `inspect view`).

    Args:
        name: the name of the evaluation.
        run_id: the ID of its run.
        created: when it began, in seconds since the epoch.
        dataset: the name of the data set.
        cases: the cases by ID; one that is not there has no input and no target.
        rows: the runs of the cases.
    """
    began = datetime.fromtimestamp(created, UTC).isoformat()
    scores = [row["score"] for row in rows if row["score"] is not None]
    figures = {"mean": {"name": "mean", "value": fmean(scores)}} if scores else {}
    failed = any(row["state"] == "errored" for row in rows)
    return {
        "version": 2,
        "status": "success",
        "eval": {
            "run_id": run_id,
            "eval_id": run_id,
            "task_id": run_id,
            "task": name,
            "created": began,
            "model": _NO_MODEL,
            "dataset": {"name": dataset, "samples": len({row["id"] for row in rows})},
            "config": {
                "epochs": max((row["repeat"] for row in rows), default=1),
                "continue_on_fail": failed,
            },
        },
        "results": {
            "total_samples": len(rows),
            "completed_samples": sum(
                row["state"] in ("passed", "failed", "undecided") for row in rows
            ),
            "scores": [
                {
                    "name": "score",
                    "scorer": "score",
                    "scored_samples": len(scores),
                    "unscored_samples": len(rows) - len(scores),
                    "metrics": figures,
                }
            ],
        },
        "stats": {"started_at": began, "completed_at": began},
        "samples": [_sample(row, cases.get(row["id"])) for row in rows],
    }


def _sample(row: Mapping[str, Json], case: Case | None) -> dict[str, Json]:
    expected = None if case is None else case.expected
    text, used = text_of(row["output"]), row.get("usage") or {}
    sample: dict[str, Json] = {
        "id": row["id"],
        "epoch": row["repeat"],
        "input": "" if case is None else text_of(case.inputs),
        "target": [text_of(one) for one in expected] if isinstance(expected, list) else text_of(expected),
        "metadata": {
            **({} if case is None else case.metadata), "state": row["state"], "metrics": row.get("metrics") or {},
            "usage": used,
        },
        "output": {
            "model": _NO_MODEL,
            "choices": [{"message": {"role": "assistant", "content": text}, "stop_reason": "stop"}],
            "completion": text,
        },
        "total_time": row.get("seconds"),
    }  # fmt: skip
    if row["score"] is not None:
        sample["scores"] = {
            "score": {
                "value": row["score"],
                "answer": text,
                "explanation": row["feedback"] or None,
            },
            "passed": {"value": "C" if row["passed"] else "I"},
        }
    if row["state"] == "errored":
        message = row.get("error") or row["feedback"] or "the case errored"
        sample["error"] = {"message": message, "traceback": "", "traceback_ansi": ""}
    return sample


def pydantic_evals_report(
    name: str, cases: Mapping[str, Case], rows: Iterable[Mapping[str, Json]]
) -> dict[str, Json]:
    """Return a report that `EvaluationReportAdapter` of pydantic-evals reads.

    Args:
        name: the name of the evaluation.
        cases: the cases by ID; one that is not there has no inputs and no expected output.
        rows: the runs of the cases.
    """
    rows = list(rows)
    times = Counter(row["id"] for row in rows)
    report: dict[str, Json] = {"name": name, "cases": [], "failures": []}
    for row in rows:
        case, several = cases.get(row["id"]), times[row["id"]] > 1
        item: dict[str, Json] = {
            "name": f"{row['id']} [{row['repeat']}/{times[row['id']]}]" if several else row["id"],
            "inputs": None if case is None else case.inputs,
            "expected_output": None if case is None else case.expected,
            "metadata": None if case is None else dict(case.metadata) or None,
        }
        if several:
            item["source_case_name"] = row["id"]
        if row["state"] in ("errored", "skipped"):
            message = row.get("error") or row["feedback"] or f"the case was {row['state']}"
            report["failures"].append({**item, "error_message": message, "error_stacktrace": ""})
            continue
        used, seconds = row.get("usage") or {}, row.get("seconds") or 0.0
        counted = {key: used[key] for key in _USED if used.get(key) is not None}
        given = {"score": row["score"], "passed": row["passed"]}
        results = {
            key: {"name": key, "value": value, "reason": row["feedback"] or None, "source": _SOURCE}
            for key, value in given.items()
            if value is not None
        }
        report["cases"].append(
            {
                **item,
                "output": row["output"],
                "metrics": {**counted, **(row.get("metrics") or {})},
                "attributes": {"state": row["state"]},
                "scores": {key: one for key, one in results.items() if key == "score"},
                "labels": {},
                "assertions": {key: one for key, one in results.items() if key == "passed"},
                "task_duration": seconds,
                "total_duration": seconds,
            }
        )
    return report


_SOURCE = {"name": "Loopwright", "arguments": None}
