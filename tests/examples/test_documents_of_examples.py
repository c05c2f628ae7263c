"""Every document among the examples: what its models are told, and that its native form does the same."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from dialects.leftovers import leftovers
from examples.programs import EXAMPLES, loopwright, python
from loopwright.documents import Settings, load
from loopwright.models.providers.endpoints import PROVIDER_NAMES

DOCUMENTS = [
    file
    for file in sorted(EXAMPLES.rglob("*.yaml"))
    if re.search(r"(?m)^(steps|orchestrator|agents):", file.read_text(encoding="utf-8"))
]
FOREIGN = [
    file
    for file in DOCUMENTS
    if re.search(r"(?m)^(\$schema|orchestrator|agents):", file.read_text(encoding="utf-8"))
]
# What is run besides the document, where its own input is not enough; a child is run by its caller.
GIVEN = {
    "interview_analysis.yaml": ("--input-file", "transcript.txt"),
    "polish.yaml": ("--input-file", "draft.txt"),
    "resume_with_model.yaml": ("--input", "resumes/unseen/33-de-letter.txt"),
    "announce.yaml": ("--input", "2.4 drops the old format"),
    "debate.yaml": ("--input", "Should the office close on Fridays?"),
    "slogan.yaml": ("--input", '{"product": "a kettle"}'),
}
CHILDREN = ("improve_cycle.yaml",)
named = {"ids": lambda file: file.name}


def replies_of(file: Path) -> Path:
    """Return the scripted replies of a document."""
    own = file.with_name(f"{file.stem}_replies.yaml")
    return own if own.exists() else file.with_name("replies.yaml")


def copied(file: Path, folder: Path) -> Path:
    """Copy the folder of a document; return the copy of it."""
    shutil.copytree(file.parent, folder, ignore=shutil.ignore_patterns(".loopwright"))
    return folder / file.name


def run(file: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Run a document on its replies; return its result, and its model calls as the transcript has them."""
    calls = file.parent / "calls.jsonl"
    found = loopwright(
        "run", file.name, *GIVEN.get(file.name, ()), "--yes", "--replies", replies_of(file).name,
        "--transcript", calls.name, cwd=file.parent,
    )  # fmt: skip
    lines = calls.read_text(encoding="utf-8").splitlines() if calls.exists() else []
    return found, [json.loads(line) for line in lines]


def timeless(value: Any) -> Any:
    """Return a result or a record without what no two runs share."""
    if isinstance(value, dict):
        gone = ("seconds", "run_id", "timestamp", "at", "idempotency_key", "resume", "journal")
        return {k: timeless(v) for k, v in value.items() if k not in gone}
    return [timeless(item) for item in value] if isinstance(value, list) else value


def told(call: dict[str, Any]) -> str:
    """Return a record of a call as text, its path first."""
    kept = {key: call[key] for key in ("path", "provider", "model", "temperature", "messages")}
    return json.dumps(kept)


def loop_of(call: dict[str, Any]) -> str:
    """Return the step of the document, and the round of its loop, in which a call was made."""
    return "/".join(call["path"].split("/")[:3])


@pytest.mark.slow
@pytest.mark.parametrize("file", [f for f in DOCUMENTS if f.name not in CHILDREN], **named)
def test_nothing_is_left_over_in_what_a_model_reads(file: Path, tmp_path: Path) -> None:
    """By the transcript, no placeholder, None, wrapper or printed object is in a prompt; or no model is asked."""
    plan = load(file, Settings(execute=False, providers=PROVIDER_NAMES)).plan()
    if not plan["worst_case_calls"]:
        return
    npm = EXAMPLES.parent / "tests" / "npm" / "node_modules"
    if file.stem == "folder_questions" and not npm.exists():
        what = "the npm servers are missing: run `make npm` (needs node 20 and npm)"
        pytest.fail(what) if os.environ.get("CI") else pytest.skip(what)
    copy = copied(file, tmp_path / "examples" / file.parent.name)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "npm").symlink_to(npm.parent)
    result, calls = run(copy)
    assert result["status"] == "satisfied", result["detail"]
    assert calls
    assert not [text for record in calls for text in leftovers(record)]


def test_there_is_an_example_of_each_dialect() -> None:
    """Each dialect has an example that runs as it is; that of Archon, whose prompts are agents, is a dry run."""
    known = r"(?m)^(\$schema|orchestrator|workflow):"
    heads = {re.search(known, f.read_text())[1] for f in FOREIGN}  # type: ignore[index]
    assert heads == {"$schema", "orchestrator", "workflow"}


@pytest.mark.parametrize("file", [f for f in FOREIGN if f.name not in CHILDREN], **named)
def test_the_native_form_does_the_same(file: Path, tmp_path: Path) -> None:
    """What `convert` prints of it, and of what it calls, makes the same calls in the same order with the same result."""
    theirs, ours = copied(file, tmp_path / "theirs"), copied(file, tmp_path / "ours")
    python("-m", "loopwright", "convert", theirs.name, "-o", ours.parent, cwd=theirs.parent)
    assert "\nschema: loopwright/1\n" in ours.read_text(encoding="utf-8")
    (first, called), (second, again) = run(theirs), run(ours)
    assert timeless(second) == timeless(first)
    # Branches that run at once are done in any order.
    assert sorted(map(told, again)) == sorted(map(told, called))
    assert list(map(loop_of, again)) == list(map(loop_of, called))
