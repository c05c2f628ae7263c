"""The answers to sentences of `until` in the terminal, exports and the page; a person's answer has no score."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from loopwright.journal.questions import Question
from loopwright.ui.cli import main
from loopwright.ui.web.forms import form_of

DOCUMENT = """
schema: loopwright/1
name: main
model: openai:gpt-4o
steps:
  - name: describe
    loop:
      execute: {prompt: "Describe {{ input }}."}
      until: ["It names a colour.", "It names a number."]
      max_iterations: 2
"""
REPLIES = """
- {step: "*/until/1*", replies: ['{"verdict": "no", "score": 10, "reason": "No colour."}']}
- {step: "*/1/until/2*", replies: ['{"verdict": "no", "score": 10, "reason": "No number."}']}
- {step: "*/until/2*", replies: ['{"verdict": "yes", "score": 90, "reason": "Two."}']}
- {replies: ["Two houses."]}
"""


@pytest.fixture
def live(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> str:
    """Return the lines of a run, `r`, that ends in its second iteration."""
    monkeypatch.chdir(tmp_path)
    Path("main.yaml").write_text(DOCUMENT)
    Path("replies.yaml").write_text(REPLIES)
    code = main(
        ["run", "main.yaml", "--input", "a house", "--replies", "replies.yaml", "--journal", "sqlite:runs.db", "--run-id", "r", "--verbose"]
    )  # fmt: skip
    assert code == 0
    text = capsys.readouterr()
    return text.out + text.err


def test_every_view_has_the_answers(live: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The live lines, `show`, `--json` and each export name the sentences that were asked, and their answers."""
    assert "0 of 2 sentences It names a colour: No colour." in live
    assert "1 of 2 sentences" in live
    main(["show", "r", "--loop", "describe", "--iteration", "2", "--journal", "sqlite:runs.db"])
    shown = capsys.readouterr().out
    assert ("✗ It names a colour." in shown, "✓ It names a number." in shown) == (True, True)
    main(["export", "r", "--format", "csv", "--journal", "sqlite:runs.db"])
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert json.loads(rows[1]["verdicts"]) == {
        "It names a colour.": False, "It names a number.": True,
    }  # fmt: skip
    main(["export", "r", "--format", "json", "--journal", "sqlite:runs.db"])
    assert '"verdicts": {' in capsys.readouterr().out
    main(["export", "r", "--format", "html", "--journal", "sqlite:runs.db"])
    assert "yes: It names a number." in capsys.readouterr().out


def test_sentences_that_were_not_asked_count_in_the_rows(
    live: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `all_of`, the first no leaves the others unasked: both are counted, live and in `show`."""
    assert "not asked" not in live
    Path("main.yaml").write_text(
        DOCUMENT.replace("until: [", "until: {all_of: [").replace('number."]', 'number."]}')
    )
    main(["run", "main.yaml", "--input", "x", "--replies", "replies.yaml", "--journal", "sqlite:runs.db", "--run-id", "all"])  # fmt: skip
    text = "0 of 2 sentences, 1 not asked It names a colour: No colour."
    assert capsys.readouterr().out.count(text) == 2
    monkeypatch.setenv("COLUMNS", "160")
    main(["show", "all", "--journal", "sqlite:runs.db"])
    assert capsys.readouterr().out.count("0 of 2 sentences, 1 not asked") == 2


@pytest.mark.parametrize(
    "said",
    ['{"verdict": "no", "reason": "None."}', "No number, no colour.\nVERDICT {{ mark }}: NO"],
    ids=["json", "plain"],
)
def test_a_verdict_that_was_read_is_no_failed_call(
    said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The record of a judge's call has its reply, in whatever form the verdict was given, and no fault."""
    monkeypatch.chdir(tmp_path)
    Path("main.yaml").write_text(DOCUMENT)
    replies = [{"step": "*/until/*", "replies": [said]}, {"replies": ["Houses."]}]
    Path("replies.yaml").write_text(json.dumps(replies))
    url = "sqlite:runs.db"
    main(["run", "main.yaml", "--input", "x", "--replies", "replies.yaml", "--journal", url, "--run-id", "r"])  # fmt: skip
    capsys.readouterr()
    main(["show", "r", "--trace", "--journal", url])
    shown = capsys.readouterr().out
    assert (shown.count("judge until"), "failed" in shown, "again" in shown) == (2, False, False)
    main(["show", "r", "--trace", "--json", "--journal", url])
    assert '"malformed"' not in capsys.readouterr().out


def test_the_form_for_a_sentence_has_no_score() -> None:
    """A sentence is true or not, so the page offers two buttons."""
    request = {"kind": "verdict", "sentence": "It is kind.", "output": "x"}
    of_sentence = form_of(Question("w/1/verdict-1", "verdict", "is this true?", request))
    assert [value for value, _ in of_sentence.buttons] == ["passed", "failed"]
    del request["sentence"]
    of_judge = form_of(Question("w/1/verdict", "verdict", "is it good?", request))
    assert [value for value, _ in of_judge.buttons] == ["passed", "failed", "score"]


def test_a_replay_of_sentences_alone_shows_no_quality(
    live: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a score or verdict there is no quality: it is not 0."""
    words = [
        "measure",
        "limits",
        "r",
        "--until",
        "[{max_iterations: 1}]",
        "--journal",
        "sqlite:runs.db",
    ]
    assert main(words) == 0
    first, *rows = capsys.readouterr().out.splitlines()
    assert ", quality: none, " in first
    assert [row.rstrip()[-1] for row in rows if row.startswith(("recorded", "limit 1"))] == [
        "-"
    ] * 2
    assert "[0.000" not in "".join(rows)
    assert main([*words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["policies"]
    assert [(one["quality"], one["difference"]) for one in told] == [(None, None)] * len(told)
