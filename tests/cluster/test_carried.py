"""Documents travel with submitted runs; a worker never reads the submitter's path, and trusts contents."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from loopwright import run
from loopwright.cluster import InMemoryDeliverer, Submission, Worker, submit
from loopwright.cluster.carried import carry, unpacked
from loopwright.documents import Loaded, Settings, load
from loopwright.errors import ConfigurationError
from loopwright.journal import MemoryJournal
from loopwright.records.codec import Json

from .waiting import serving, until, until_status

MAIN = """
schema: loopwright/1
name: greet
steps:
  - {name: inner, workflow: inner}
  - {name: shout, python: "helper:shout"}
  - {name: read, shell: "cat words.txt"}
"""
INNER = "schema: loopwright/1\nname: inner\nsteps: [{name: say, set: Hello}]\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project, and a folder of temporary files for this test."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    place = tmp_path / "project"
    place.mkdir()
    (place / "main.yaml").write_text(MAIN)
    (place / "inner.yaml").write_text(INNER)
    (place / "helper.py").write_text("def shout(value):\n    return str(value).upper()\n")
    (place / "words.txt").write_text("words of the file")
    return place


def carried(folder: Path) -> tuple[Loaded, dict[str, Json]]:
    loaded = load(folder / "main.yaml")
    return loaded, carry(loaded, loaded.local_actions().contents, acts=True)


def unpack(source: Mapping[str, Json]) -> Loaded:
    return unpacked(source, trust=lambda _: True, environ={})


def test_a_run_carries_every_file_that_the_document_uses(folder: Path) -> None:
    """The called document, the module and the file of a command are there without the project."""
    loaded, source = carried(folder)
    shutil.rmtree(folder)
    again = unpack(source)
    assert again.step.fingerprint == loaded.step.fingerprint
    assert str(folder) not in str(source)


MEASURED = """
schema: loopwright/1
name: note
model: openai:any
steps:
- name: write
  loop:
    execute: {shell: "cat words.txt"}
    evaluate: {judge: {criterion: It is short., measured: reports/short.json, alpha: 0.05}}
    until: [passed, {max_iterations: 3}]
"""


def test_the_measurement_of_a_judge_travels_and_is_approved(folder: Path) -> None:
    """A worker has the votes of the submitter's report, and another report needs another approval."""
    rates = {"sensitivity": {"value": 0.95}, "specificity": {"value": 0.9}, "icc": {"value": 0.0}}
    (folder / "reports").mkdir()
    (folder / "reports" / "short.json").write_text(json.dumps(rates))
    (folder / "main.yaml").write_text(MEASURED)
    loaded, source = carried(folder)
    actions = loaded.local_actions()
    approved = load(folder / "main.yaml", Settings(agreed=actions.contents))
    (folder / "reports" / "short.json").write_text(
        json.dumps({**rates, "specificity": {"value": 0.85}})
    )
    changed = load(folder / "main.yaml")
    assert changed.local_actions().digest != actions.digest
    assert approved.local_actions().digest == actions.digest
    shutil.rmtree(folder)
    again = unpack(source)
    assert again.step.fingerprint == loaded.step.fingerprint == approved.step.fingerprint


LISTED = """
schema: loopwright/1
name: each_name
steps:
- name: greet
  each: {items: "file://names.txt", execute: {set: "Hello {{ loop.input }}"}}
"""


async def test_the_file_of_a_list_travels(folder: Path) -> None:
    """A worker has the items of a file, and a name that is known only later is refused when it is submitted."""
    (folder / "main.yaml").write_text(LISTED)
    (folder / "names.txt").write_text("Ada\nGrace\n")
    _, source = carried(folder)
    (folder / "main.yaml").write_text(LISTED.replace("names.txt", "{{ input }}.txt"))
    with pytest.raises(ConfigurationError, match=r"file://\{\{ input \}\}.txt is known only"):
        carried(folder)
    shutil.rmtree(folder)
    result = await run(unpack(source).step, None)
    assert result.output == ["Hello Ada", "Hello Grace"]


EVALUATED = """
schema: loopwright/1
name: sums
eval:
  dataset: {file: cases}
  use: validation
  task: {set: "{{ case.inputs }}"}
  evaluate: {check: equals_expected}
"""


async def test_the_files_of_a_data_set_travel(folder: Path) -> None:
    """A worker evaluates on the cases that were submitted, also those of a folder with a file for each split."""
    (folder / "main.yaml").write_text(EVALUATED)
    (folder / "cases").mkdir()
    (folder / "cases" / "train.jsonl").write_text('{"inputs": 1, "expected": 1}\n')
    (folder / "cases" / "validation.jsonl").write_text(
        '{"inputs": 2, "expected": 2}\n{"inputs": 3, "expected": 4}\n'
    )
    _, source = carried(folder)
    shutil.rmtree(folder)
    counts = (await run(unpack(source).step, None)).output["counts"]
    assert (counts["passed"], counts["failed"]) == (1, 1)


def test_the_digest_is_the_same_in_another_folder(folder: Path, tmp_path: Path) -> None:
    """The digest covers relative names, so one approval is for all machines."""
    other = tmp_path / "elsewhere"
    shutil.copytree(folder, other)
    assert carried(folder)[1]["carried"] == carried(other)[1]["carried"]


def test_changed_contents_are_refused(folder: Path) -> None:
    """A worker compares the contents with the digest that it trusts."""
    _, source = carried(folder)
    files = source["carried"]["files"]
    source["carried"] = {**source["carried"], "files": {**files, "words.txt": "other words"}}
    with pytest.raises(ConfigurationError, match="digest"):
        unpack(source)


def test_files_outside_the_folder_are_refused(folder: Path) -> None:
    """A name that leaves the folder of the run is refused, even with a digest that matches."""
    from loopwright.cluster.carried import _digest

    files = {"../evil.py": "raise SystemExit", "main.yaml": INNER}
    digest = _digest("main.yaml", files, {})
    data = {"main": "main.yaml", "files": files, "acts": False, "digest": digest}
    with pytest.raises(ConfigurationError, match="outside"):
        unpack({"carried": data})


@pytest.mark.parametrize("digest", ["zz", "0" * 15, "All", "0123456789abcdefz", "a" * 65])
def test_a_text_that_is_not_a_digest_is_refused(digest: str) -> None:
    """A worker that trusts less than its caller wrote is not started, because its runs would wait."""
    with pytest.raises(ConfigurationError, match="is not a digest; use 16 or more"):
        Worker(journal=MemoryJournal(), deliverer=InMemoryDeliverer(), trust=[digest])


async def test_an_untrusted_document_goes_back_and_a_trusted_one_runs(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker that does not trust the digest runs no command, whatever the submitter writes.

    Its log names the digest, and the nearest one that it trusts, which may be mistyped.
    """
    journal, deliverer = MemoryJournal(), InMemoryDeliverer()
    loaded, source = carried(folder)
    source["carried"] = {**source["carried"], "acts": False}
    submission = Submission(loaded.step, source=source, pinned=False)
    run_id = await submit(submission, journal=journal, deliverer=deliverer)
    shutil.rmtree(folder)

    async def returned() -> bool:
        assert worker.runs is not None
        return run_id in await worker.runs.returns([run_id])

    digest = str(source["carried"]["digest"])
    mistyped = digest[:13] + ("0" if digest[13] != "0" else "1") + digest[14:16]
    strict = Worker(journal=journal, deliverer=deliverer, trust=["0" * 16, mistyped, "f" * 64])
    async with serving(strict) as worker:
        await until(returned)
        assert (await journal.find(run_id)).status == "queued"
    [text] = [text for text in caplog.messages if "goes back" in text]
    assert f"--trust {digest[:16]}; of the digests that it trusts, {mistyped} is the" in text
    trusting = Worker(journal=journal, deliverer=deliverer, trust=[digest[:16]])
    async with serving(trusting) as worker:
        assert worker.runs is not None
        await worker.runs.wake(run_id)
        await until_status(journal, run_id, "satisfied")
    entries = await journal.entries(run_id)
    assert entries[-1].value["output"] == "words of the file"
