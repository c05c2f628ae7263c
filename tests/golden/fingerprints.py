"""The fingerprints of the documents of this project and of the steps that Python users make.

    PYTHONPATH=tests python -m golden.fingerprints

writes them to `fingerprints.json`. A recorded run is resumed only by a step with its fingerprint, so a new version keeps
every one of them. Where it cannot, it accepts the former one (`Settings.former`), and only then are they recorded again.
A document that is new or was edited is recorded again too.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from documents.corpus import Project, projects
from loopwright import (
    Loop,
    MaxIterations,
    PhasedAgent,
    ReasoningAgent,
    Workflow,
    agent,
    check,
    checklist,
    fallback,
    for_each,
    judge,
    keep_or_revert_loop,
    parallel,
    prompt,
    retry,
    rubric,
    score,
    sealed_metric,
    sequence,
    shell,
    step,
    tests,
    tool,
    until,
    with_timeout,
)
from loopwright.documents import Settings, load
from loopwright.errors import DocumentError
from loopwright.evaluators import gates, json_schema, similarity, test_report
from loopwright.evaluators.metric import Measurement, metric_of
from loopwright.evaluators.rubric import compare
from loopwright.models.registry import MODEL_VARIABLE
from loopwright.prompts import tool_prompt
from loopwright.prompts.tool_prompt import tool_step
from loopwright.recipes import checklist_loop, confidence_loop, improvement_loop, strategy_loop

FILE = Path(__file__).parent / "fingerprints.json"


@step(fingerprint="act/1")
def act(value: object) -> object:
    """Return the value."""
    return value


@step(fingerprint="other/1")
def other(value: object) -> object:
    """Return the value."""
    return value


@tool
def look_up(word: str) -> str:
    """Return what a word means."""
    return word


def steps() -> dict[str, Any]:
    """Return a step of each kind that Python users make, by name."""
    m = "openai:m"
    evaluators = {
        "check": check(min_words=2, not_matches="todo"),
        "check of a command": check(command=["grep", "-q", "."]),
        "checklist": checklist({"long": {"min_words": 5}, "own": act}, {"long": 2, "own": 1}),
        "gates": gates({"min_words": 2}, judge("It is kind.", model=m), graded=True),
        "json_schema": json_schema({"type": "object"}),
        "judge": judge("It is kind.", model=m),
        "judge of several criteria": judge("Kind.", "Short.", model=m, weights={"Kind.": 2, "Short.": 1}),
        "judge with a preset": judge(preset="quality/strict", model=m),
        "judge with a preset of other weights": judge(
            preset="validation/lenient", model=m, weights={"format.well_formed": 0.5}
        ),
        "judge with votes": judge("It is kind.", model=m, accept_lead=3, max_votes=7),
        "judge that may say impossible": judge("It is kind.", model=m, impossible=True),
        "judge with tools": judge("It is kind.", model=m, tools=[look_up]),
        "metric": metric_of(Measurement("seconds"), ["cat", "time.txt"], repeats=3),
        "rubric": rubric("clear", "short", model=m),
        "score": score("score", (0, 10)),
        "score of a step": score(of=act, pattern=r"(\d+)"),
        "sealed_metric": sealed_metric("seconds", ["cat", "time.txt"]),
        "similarity": similarity("a text", at_least=0.5),
        "test_report": test_report(["pytest", "-q"]),
        "tests": tests(["pytest", "-q"]),
    }  # fmt: skip
    kind = evaluators["judge"]
    return evaluators | {
        "agent": agent("claude", "Fix {{ input }}"),
        "checklist_loop": checklist_loop({"a": act, "b": other}, {"a": {"min_words": 1}, "b": act}),
        "compare": compare(kind),
        "confidence_loop": confidence_loop(act, kind, other),
        "fallback": fallback(act, other),
        "for_each": for_each(act, items=other),
        "function": act,
        "improvement_loop": improvement_loop(act, kind),
        "keep_or_revert_loop": keep_or_revert_loop(act, other, {"seconds": "minimise"}),
        "loop": Loop(act, kind, other, max_iterations=4, min_score=0.9, keep="last"),
        "loop in a loop": Loop(Loop(act, kind, max_iterations=2), kind, until=MaxIterations(3)),
        "parallel": parallel(act, other),
        "phased": PhasedAgent(planning=act, execution=other, evaluate=kind, max_iterations=4),
        "prompt": prompt("Say {{ input }}", model=m, temperature=0.5, schema={"type": "object"}),
        "reasoning": ReasoningAgent("Think about {{ input }}", model=m),
        "retry": retry(act, attempts=3),
        "sequence": sequence(act, other),
        "shell": shell(["wc", "-w"]),
        "strategy_loop": strategy_loop({"a": act, "b": other}, kind, threshold=0.8),
        "tool_prompt": tool_prompt("Say {{ input }}", [look_up], model=m),
        "tool_step": tool_step(look_up),
        "until": until("test -e part", ["sh", "-c", "touch part"]),
        "with_timeout": with_timeout(act, 5),
        "workflow": Workflow("work", {"first": act, "second": kind}, needs={"second": ["first"]}),
    }


def documents() -> Iterator[tuple[str, Project]]:
    """Iterate over the names and the files of the documents: of the corpora, the examples and the golden journals."""
    golden = {
        file.name: file.read_text(encoding="utf-8")
        for file in sorted((FILE.parent / "documents").glob("*.yaml"))
    }
    of_golden = [
        {name: text, **golden}
        for name, text in golden.items()
        if not name.endswith("_replies.yaml")
    ]
    for project in projects() + of_golden:
        files = "\0".join(f"{name}\0{project[name]}" for name in sorted(project))
        yield f"{next(iter(project))} {hashlib.sha256(files.encode()).hexdigest()[:12]}", project


def fingerprint(project: Project) -> str:
    """Return the fingerprint of the first document of a project; "" if it has problems."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in project.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        # A model for the documents that name none; no Python is imported, so its source does not count.
        settings = Settings(environ={MODEL_VARIABLE: "openai:m"}, execute=False, lenient=True)
        try:
            return load(Path(folder, next(iter(project))), settings).step.fingerprint
        except DocumentError:
            return ""


def recorded() -> dict[str, dict[str, str]]:
    """Return what `fingerprints.json` holds."""
    found: dict[str, dict[str, str]] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def main() -> None:
    """Record them."""
    found = {
        "steps": {name: made.fingerprint for name, made in steps().items()},
        "documents": {
            name: digest for name, project in documents() if (digest := fingerprint(project))
        },
    }
    FILE.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
