"""Resume parsing: three strategies in turn on a resume that stays (7.5 F2, F4), and a model."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from examples.programs import EXAMPLES, answer, loopwright, python

HERE = EXAMPLES / "resume_parsing"
README = (EXAMPLES / "README.md").read_text(encoding="utf-8")
FOLDER = HERE / "resumes"
RESUMES = sorted(FOLDER.glob("[0-9]*"))
EXPECTED = json.loads((FOLDER / "expected.json").read_text(encoding="utf-8"))
UNSEEN = json.loads((FOLDER / "unseen" / "expected.json").read_text(encoding="utf-8"))
STRATEGIES = ["detailed", "keyword-focused", "section-by-section"]

pytestmark = pytest.mark.slow

BOTH = """
import json
from pathlib import Path
from reading import read
from resume_parsing import RESUMES, parsing
from loopwright import run_sync
from loopwright.documents import load

document = load("resume_parsing.yaml")
told = {}
for file in sorted(RESUMES.rglob("[0-9]*")):
    ours = run_sync(parsing(), read({"file": str(file)}))
    theirs = run_sync(document.step, str(file), resources=document.resources).loops["parsing"]
    told[file.name] = [
        [[r.status, r.reason, r.output, [item.score for item in r.history]] for r in (ours, theirs)],
        [item.evaluation.votes[0]["strategy"] for item in ours.history],
        [item.input["strategy"] for item in theirs.history],
        [item.input["resume"]["text"] for item in theirs.history],
        read({"file": str(file)})["text"],
    ]
print(json.dumps(told))
"""
MODEL = """
import json
from pathlib import Path
from reading import read
from resume_parsing import chosen, parsing
from loopwright import run_sync
from loopwright.models import Models, ScriptedModel

resources = {"models": Models(ScriptedModel(Path("replies.yaml").read_text("utf-8"))),
             "model": "openai:gpt-4o-mini"}
told = []
for name in ("unseen/33-de-letter.txt", "01-en-classic.txt"):
    result = run_sync(parsing(with_model=True), read({"file": f"resumes/{name}"}), resources=resources)
    told.append([chosen(result), result.output, result.usage.calls, result.iterations])
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def both() -> dict[str, Any]:
    """What Python and YAML give for every resume."""
    found: dict[str, Any] = answer(BOTH, cwd=HERE, path=HERE)
    return found


def test_there_are_thirty_resumes_and_more_of_three_kinds_in_seven_languages() -> None:
    """What the parsers are tried on is varied, and each has its right answer."""
    assert {file.name for file in RESUMES} == set(EXPECTED)
    assert len(RESUMES) >= 30
    assert {file.suffix for file in RESUMES} == {".txt", ".html", ".pdf"}
    assert len({file.name.split("-")[1] for file in RESUMES}) >= 7
    assert len({file.stem.split("-", 2)[2] + file.suffix for file in RESUMES}) == 19  # layouts
    lacking = [name for name, right in EXPECTED.items() if not all(right.values())]
    assert len(lacking) >= 4


def test_python_and_yaml_read_every_resume_alike(both: dict[str, Any]) -> None:
    """Status, reason, output and scores of the two loops are equal for each resume."""
    assert set(both) == set(EXPECTED) | set(UNSEEN)
    for name, (results, *_) in both.items():
        assert results[0] == results[1], name


def test_strategies_begin_with_the_first_and_leave_none_out(both: dict[str, Any]) -> None:
    """The order is detailed, keyword-focused, section-by-section; all are tried where none will do."""
    for name, (_, ours, theirs, *_) in both.items():
        assert ours == theirs == STRATEGIES[: len(ours)], name
    assert {len(found[1]) for found in both.values()} == {1, 2, 3}


def test_the_resume_stays_the_input_of_every_round(both: dict[str, Any]) -> None:
    """Each strategy reads the text that was read from the file."""
    for name, (*_, texts, text) in both.items():
        assert text.strip()
        assert texts == [text] * len(texts), name


def test_the_output_is_the_reading_with_the_best_score(both: dict[str, Any]) -> None:
    """Where no reading is perfect the best is the output, and the run is exhausted, not satisfied."""
    exhausted = {name for name, (results, *_) in both.items() if results[0][0] == "exhausted"}
    assert "28-en-right-column.pdf" in exhausted
    scores = both["28-en-right-column.pdf"][0][0][3]
    assert len(scores) == 3
    assert max(scores) == scores[2] < 1
    assert both["28-en-right-column.pdf"][0][0][2]["name"] == "Mark Stevens"


def test_the_readme_states_how_right_the_readings_are(tmp_path: Path) -> None:
    """The figures of the README are those that the command prints."""
    told = python(HERE / "resume_parsing.py", cwd=tmp_path)
    figures = re.findall(
        r"^(\S.*?)  +right (\S+), wholly right (\d+) of (\d+)$", told, re.MULTILINE
    )
    assert [name for name, *_ in figures] == [*STRATEGIES, "the loop"] * 2
    for part in told.split("\n\n"):
        if part.startswith("detailed"):
            assert part.strip() in README
    known, unseen = (
        {n: float(mean) for n, mean, *_ in part} for part in (figures[:4], figures[4:])
    )
    assert known["the loop"] == max(known.values()) >= 0.95
    assert unseen["the loop"] == max(unseen.values()) < 0.95  # nobody tuned the parsers to these


def test_a_model_is_asked_only_for_what_the_parsers_cannot_read(tmp_path: Path) -> None:
    """As the fourth strategy it reads the letter; a resume that a parser reads costs no call."""
    letter, plain = answer(MODEL, cwd=HERE, path=HERE)
    assert letter == ["model", UNSEEN["33-de-letter.txt"], 1, 4]
    assert plain[0] == "detailed"
    assert plain[2:] == [0, 1]
    found = loopwright(
        "run", HERE / "resume_with_model.yaml", "--input", FOLDER / "unseen" / "33-de-letter.txt",
        "--replies", HERE / "replies.yaml", "--yes", cwd=tmp_path,
    )  # fmt: skip
    assert found["output"] == letter[1]
    assert (found["status"], found["usage"]["calls"]) == ("satisfied", 1)


def test_the_documents_and_the_program_ask_the_model_for_the_same() -> None:
    """The schema of the fields is written twice, and is the same."""
    document = yaml.safe_load((HERE / "resume_with_model.yaml").read_text(encoding="utf-8"))
    asked = document["steps"][1]["loop"]["execute"]["steps"][1]
    code = "import json, resume; print(json.dumps(resume.FIELDS))"
    assert answer(code, cwd=HERE, path=HERE) == asked["output"]["schema"]


def test_the_resumes_are_those_that_the_script_writes(tmp_path: Path) -> None:
    """`make_resumes.py` writes the same bytes again; those in unseen/ are by hand."""
    python(HERE / "make_resumes.py", tmp_path, cwd=tmp_path)
    made = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert set(made) == {*EXPECTED, "expected.json"}
    for name, content in made.items():
        assert (HERE / "resumes" / name).read_bytes() == content, name


@pytest.mark.parametrize("file", [f for f in RESUMES if f.suffix == ".pdf"], ids=lambda f: f.name)
def test_the_pdfs_are_valid(file: Path) -> None:
    """A strict reader reads each PDF without a warning, and its one page has text."""
    from pypdf import PdfReader

    (page,) = PdfReader(file, strict=True).pages
    assert EXPECTED[file.name]["name"] in page.extract_text()


@pytest.mark.parametrize("ending", ["docx", "rtf", ""])
def test_a_file_of_another_kind_is_refused_with_the_kinds_there_are(
    ending: str, tmp_path: Path
) -> None:
    """The run fails with a sentence; nothing is guessed from what the file may hold."""
    file = tmp_path / f"resume.{ending}".rstrip(".")
    file.write_text("?")
    command = ("run", HERE / "resume_parsing.yaml", "--input", file, "--yes", "--json")
    with pytest.raises(AssertionError, match="is neither text"):
        python("-m", "loopwright", *command, cwd=tmp_path)
