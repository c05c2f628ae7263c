"""`cache` in documents, on the command line, on workers and on the page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cluster.waiting import serving, until_status
from loopwright import Usage, run
from loopwright.cluster import InMemoryDeliverer, Submission, Worker, submit
from loopwright.cluster.carried import carry
from loopwright.documents import Settings, check, load
from loopwright.journal import MemoryJournal
from loopwright.journal.sqlite import SqliteJournal
from loopwright.records.display import spent
from loopwright.ui.cli import main
from loopwright.ui.web.events import RunProgressCache
from loopwright.ui.web.run_page import run_of

DOCUMENT = """
schema: loopwright/1
name: title
model: openai:gpt-4o-mini
temperature: 0
cache: {where: store, ttl: 30d, scope: {release: "2"}}
limits: {openai: {cap: 3}}
steps:
  - {name: write, prompt: "A title for {{ input }}"}
  - name: improve
    loop:
      execute: {prompt: "A better one than {{ write }}", cache: run}
      evaluate: {judge: {criterion: It is short., cache: off}}
      until: [{max_iterations: 1}]
"""
OF_DOCUMENT = 'cache: {where: store, ttl: 30d, scope: {release: "2"}}\n'
REPLIES = """
- {step: "*evaluate*", replies: [{json: {verdict: "yes", score: 90, reason: ok}}]}
- {replies: [A title]}
"""


def document(folder: Path, text: str = DOCUMENT) -> Path:
    (folder / "replies.yaml").write_text(REPLIES)
    file = folder / "title.yaml"
    file.write_text(text)
    return file


def test_a_step_has_its_own_cache_or_that_of_the_document(tmp_path: Path) -> None:
    """`off` is a word, a mapping has its defaults, and the key of a step replaces that of the document."""
    loaded = load(document(tmp_path))
    caches = [settings.cache for _, settings in loaded.asks]
    whole = {"where": "store", "ttl": 30 * 86400.0, "sampling": False, "scope": {"release": "2"}}
    assert caches == [whole, "run", "off"]
    plain = load(document(tmp_path, DOCUMENT.replace(OF_DOCUMENT, "")))
    assert plain.asks[0][1].cache is None
    assert plain.step.fingerprint == loaded.step.fingerprint


@pytest.mark.parametrize(
    ("setting", "noted"),
    [("", 1), ("temperature: 0.5", 1), ("temperature: 0", 0), ("seed: 7", 0), ("temperature: 1\nseed: 7", 0)],
)  # fmt: skip
def test_a_cache_that_can_keep_nothing_is_noted(tmp_path: Path, setting: str, noted: int) -> None:
    """One note for equal ones, but not where sampled replies may be kept; a judge has the temperature 0 of its own."""
    text = DOCUMENT.replace("temperature: 0", setting).replace("cache: off", "cache: store")
    notes = [p for p in load(document(tmp_path, text)).notes if p.code == "cache_unused"]
    assert [(note.line > 0, "no seed" in note.message) for note in notes] == [(True, True)] * noted
    text = text.replace("cache: run", "cache: off").replace("scope:", "sampling: true, scope:")
    assert not any(note.code == "cache_unused" for note in load(document(tmp_path, text)).notes)


@pytest.mark.parametrize(
    ("cache", "path", "message"),
    [
        ("stroe", "cache", "did you mean 'store'?"),
        ("{ttl: soon}", "cache.ttl", "is not a duration"),
        ("{wher: run}", "cache.wher", "did you mean 'where'?"),
        ("{sampling: maybe}", "cache.sampling", ""),
        ("true", "cache", ""),
    ],
)
def test_a_wrong_cache_is_a_problem_with_its_place(
    tmp_path: Path, cache: str, path: str, message: str
) -> None:
    """The problem names the key and the nearest valid word."""
    problem = check(document(tmp_path, DOCUMENT.replace(OF_DOCUMENT, f"cache: {cache}\n")))[0]
    assert (problem.line, problem.path) == (6, path)
    assert message in problem.message


async def test_a_worker_keeps_and_uses_replies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs of workers share the replies of their journal; a hit takes no permit of its model."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    journal, deliverer = MemoryJournal(), InMemoryDeliverer()
    loaded = load(document(tmp_path), Settings(replies=str(tmp_path / "replies.yaml")))
    worker = Worker(journal=journal, deliverer=deliverer, trust="all")
    usages, permits = [], []
    async with serving(worker):
        for _ in range(2):
            submission = Submission(loaded.step, source=carry(loaded, {}, acts=False))
            run_id = await submit(submission, "cats", journal=journal, deliverer=deliverer)
            await until_status(journal, run_id, "satisfied", "exhausted", "failed")
            usages.append((await journal.find(run_id)).usage)
            assert worker.runs is not None
            permits.append(worker.runs.permits._held)  # type: ignore[attr-defined]
    assert [(one.calls, one.cached) for one in usages] == [(3, 0), (2, 1)]


class Called:
    """The command line in a folder, with its output."""

    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self.capture = capture

    def __call__(self, *words: str) -> str:
        main([*words])
        return self.capture.readouterr().out


@pytest.fixture
def called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Called:
    monkeypatch.chdir(tmp_path)
    return Called(capsys)


def usage_of(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text)["usage"]
    return found


def test_the_command_line_turns_it_on_and_off(tmp_path: Path, called: Called) -> None:
    """`--cache` keeps replies of calls that say nothing, `--no-cache` uses none; a resume keeps the option of its run."""
    document(tmp_path, DOCUMENT.replace(OF_DOCUMENT, ""))
    words = ("run", "title.yaml", "--input", "cats", "--replies", "replies.yaml", "--json")
    plain = usage_of(called(*words))
    assert (plain["calls"], "cached" in plain) == (3, False)
    first, second = (usage_of(called(*words, "--cache")) for _ in range(2))
    assert "cached" not in first
    assert (second["calls"], second["cached"]) == (2, 1)
    assert usage_of(called(*words, "--no-cache", "--run-id", "off")) == plain
    assert (
        json.loads(called("journal", "cache", "--json"))["replies"] == 4
    )  # one of all runs, and one of each
    shown = json.loads(called("show", "off", "--json"))
    assert shown["source"]["cache"] == "off"
    assert (
        json.loads(called("journal", "cache", "--clear", "--older-than", "1h", "--json"))["replies"]
        == 0
    )
    assert json.loads(called("journal", "cache", "--clear", "--json"))["deleted"] is True
    assert json.loads(called("journal", "cache", "--json"))["replies"] == 0


async def test_the_page_says_what_was_saved(tmp_path: Path) -> None:
    """The facts of a run have the calls from the cache, and what their replies had cost."""
    loaded = load(document(tmp_path), Settings(replies=str(tmp_path / "replies.yaml")))
    async with SqliteJournal(tmp_path / "runs.db") as journal:
        for name in ("first", "second"):
            resources = dict(loaded.resources)
            await run(loaded.step, "cats", journal=journal, run_id=name, resources=resources)
        header = await journal.view(
            "second", lambda view: run_of(view, "", RunProgressCache().of(view))
        )
        facts = {one.label: (one.used, one.limit) for one in header.facts}
        assert facts["From the cache"] == ("1 of 3 calls", "")
        assert (await journal.find("second")).usage.cached == 1
    usage = Usage(28, 1000, 0, 0.2, cached=12, saved=0.08)
    assert (
        spent(usage)
        == "28 calls, 1000 tokens, $0.2000, 12 of 40 calls from the cache, $0.0800 saved"
    )
