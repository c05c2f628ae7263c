"""The corpus of loop-node documents: each case says what its document does, or what is wrong with it."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from loopwright.errors import DocumentError

from .support import Case, Played, cases, converted, loaded, matches, played, written

ALL = cases()
RUNNABLE = [case for case in ALL if case.runs]
names = {"ids": lambda case: case.name}
WRAPPERS = ("{'", '"previous_outputs"', '"internal_reasoning"', "$agents", "TemplateValue(")


def test_the_corpus_is_large() -> None:
    """At least sixty documents were written from the tables of fields and the decisions."""
    assert len(ALL) >= 60


@pytest.mark.parametrize("case", [c for c in ALL if c.problems], **names)
def test_wrong_documents_say_all_that_is_wrong(case: Case, tmp_path: Path) -> None:
    """Every problem has its line and column, and what to do."""
    file = written(case, tmp_path)
    with pytest.raises(DocumentError) as caught:
        loaded(case, file)
    found = [str(p).replace(f"{tmp_path}/", "") for p in caught.value.problems]
    for wanted, problem in itertools.zip_longest(case.problems, found):
        assert wanted is not None, f"one more: {problem}"
        assert problem is not None, f"not found: {wanted}"
        assert all(part in problem for part in wanted.split(" … ")), (
            f"{problem!r} is not {wanted!r}"
        )
        assert problem.startswith(wanted.partition(" … ")[0]), f"{problem!r} is not {wanted!r}"


@pytest.mark.parametrize("case", RUNNABLE, **names)
def test_cases_run_as_they_say(case: Case, tmp_path: Path) -> None:
    """Calls, result, loops, steps, warnings and notes are those of the case."""
    done = played(case, written(case, tmp_path))
    _check_result(case, done)
    _check_calls(case, done)
    for key, found in (
        ("warnings", done.result.warnings),
        ("notes", [str(note).replace(f"{tmp_path}/", "") for note in done.loaded.notes]),
    ):
        wanted = case.expect.get(key, [])
        assert len(found) == len(wanted), found
        for part, sentence in zip(wanted, found, strict=True):
            assert part in sentence, f"{part!r} is not in {sentence!r}"


def _check_result(case: Case, done: Played) -> None:
    outcome = done.outcome
    for key in ("status", "reason", "detail", "output", "steps"):
        if key in case.expect:
            _within(case.expect[key], outcome[key], key)
    for name, wanted in case.expect.get("loops", {}).items():
        found = outcome["loops"][name]
        _within({k: v for k, v in wanted.items() if k != "history"}, found, name)
        for row, expected in zip(found["history"], wanted.get("history", []), strict=False):
            assert {key: row.get(key) for key in expected} == expected


def _within(wanted: Any, found: Any, where: str) -> None:
    """Check that what is wanted is there; of mappings, only the keys that are named."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        for key, value in wanted.items():
            assert key in found, f"{where}: no {key} in {found}"
            _within(value, found[key], f"{where}.{key}")
    else:
        assert found == wanted, f"{where}: {found!r} is not {wanted!r}"


def _check_calls(case: Case, done: Played) -> None:
    wanted: list[dict[str, Any]] | None = case.expect.get("calls")
    if wanted is None:
        return
    assert len(done.asked) == len(wanted), [request.path for request in done.asked]
    for request, expected in zip(done.asked, wanted, strict=True):
        known = {"path", "prompt", "says", "lacks", "model", "temperature", "max_tokens", "timeout"}
        assert expected.keys() <= known, expected.keys() - known
        assert not matches(request, expected), f"{request.path}: {matches(request, expected)}"


@pytest.mark.parametrize("case", RUNNABLE, **names)
def test_no_model_sees_a_wrapper_or_a_leftover(case: Case, tmp_path: Path) -> None:
    """No placeholder is left over, no None is printed, and no object stands in for a text."""
    for request in played(case, written(case, tmp_path)).asked:
        for message in request.messages:
            said = message.content
            assert case.literal or ("{{" not in said and "{%" not in said)
            assert "None" not in said
            assert not any(wrapper in said for wrapper in WRAPPERS), said


@pytest.mark.parametrize("case", RUNNABLE, **names)
def test_the_native_form_does_the_same(case: Case, tmp_path: Path) -> None:
    """What convert prints makes the same calls in the same order and has the same result."""
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    for folder in (theirs, ours):
        folder.mkdir()
        file = written(case, folder)
    first = played(case, theirs / file.name)
    again = converted(first.loaded, theirs / file.name, ours)
    assert "orchestrator:" not in again.read_text(encoding="utf-8")
    second = played(case, again)
    assert second.calls == first.calls
    assert _timeless(second.outcome) == _timeless(first.outcome)


def _timeless(value: Any) -> Any:
    """Return a result without the moments at which its rounds ended."""
    if isinstance(value, dict):
        return {k: _timeless(v) for k, v in value.items() if k != "timestamp"}
    return [_timeless(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("case", RUNNABLE, **names)
def test_converting_twice_changes_nothing(case: Case, tmp_path: Path) -> None:
    """A native document read back and printed again is the same text."""
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    for folder in (theirs, ours):
        folder.mkdir()
        file = written(case, folder)
    once = converted(loaded(case, theirs / file.name), theirs / file.name, ours)
    text = once.read_text(encoding="utf-8")
    twice = converted(loaded(case, once), once, ours)
    assert twice.read_text(encoding="utf-8") == text
