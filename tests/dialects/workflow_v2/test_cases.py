"""The corpus of `workflow/v2.0`: each case says what its documents do, or what is wrong with them."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from loopwright.documents import load
from loopwright.errors import DocumentError

from .support import JUDGE, Case, Played, cases, converted, loaded, matches, played, written

ALL = cases()
RUNNABLE = [case for case in ALL if case.runs]
names = {"ids": lambda case: case.name}


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
        assert problem.startswith(wanted.partition(" … ")[0]), f"{problem!r} is not {wanted!r}"
        assert all(part in problem for part in wanted.split(" … ")), (
            f"{problem!r} is not {wanted!r}"
        )


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
            assert outcome[key] == case.expect[key], f"{key}: {outcome['detail']}"
    for name, wanted in case.expect.get("loops", {}).items():
        found = outcome["loops"][name]
        assert {key: found[key] for key in wanted if key != "history"} == {
            key: value for key, value in wanted.items() if key != "history"
        }
        for row, expected in zip(found["history"], wanted.get("history", []), strict=False):
            assert {key: row.get(key) for key in expected} == expected


def _check_calls(case: Case, done: Played) -> None:
    wanted: list[dict[str, Any]] | None = case.expect.get("calls")
    if wanted is None:
        return
    assert len(done.asked) == len(wanted), [request.path for request in done.asked]
    for request, expected in zip(done.asked, wanted, strict=True):
        known = {
            "path", "prompt", "says", "lacks", "model", "temperature", "max_tokens", "timeout", "judge",
        }  # fmt: skip
        assert expected.keys() <= known, expected.keys() - known
        assert not matches(request, expected), f"{request.path}: {matches(request, expected)}"


@pytest.mark.parametrize("case", RUNNABLE, **names)
def test_no_model_sees_what_was_not_meant_for_it(case: Case, tmp_path: Path) -> None:
    """No placeholder is left over, no None is printed, and no object stands in for a text."""
    for request in played(case, written(case, tmp_path)).asked:
        for message in request.messages:
            said = message.content
            assert case.literal or ("{{" not in said and "}}" not in said)
            assert "None" not in said
            assert "{'" not in said
            assert "null" not in said


@pytest.mark.parametrize("case", RUNNABLE, **names)
def test_the_native_form_does_the_same(case: Case, tmp_path: Path) -> None:
    """What convert prints makes the same calls in the same order and has the same result."""
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    for folder in (theirs, ours):
        folder.mkdir()
        file = written(case, folder)
    first = played(case, theirs / file.name)
    again = converted(first.loaded, theirs / file.name, ours)
    assert "$schema" not in again.read_text(encoding="utf-8")
    second = played(case, again)
    assert second.calls == first.calls
    assert second.outcome == first.outcome


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


@pytest.mark.parametrize("case", RUNNABLE, **names)
def test_judges_are_asked_in_the_words_of_the_guide(case: Case, tmp_path: Path) -> None:
    """A judge is asked one question, cold, with the whole output and without a system prompt."""
    for request in played(case, written(case, tmp_path)).asked:
        first = request.messages[0]
        if first.content.startswith(JUDGE):
            assert first.role == "user"
            assert "\n\nOutput to evaluate:\n" in first.content
            assert "Answer with YES if condition is met, NO if not met." in first.content
            assert request.temperature == 0.0


def test_every_case_is_checked_by_load_alone(tmp_path: Path) -> None:
    """Loading a document reads it and runs nothing: no model is asked."""
    file = written(RUNNABLE[0], tmp_path)
    assert load(file).plan()["worst_case_calls"] > 0
