"""Files of cases: every format gives the same cases, and every problem has its place."""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import sys
import types
from collections.abc import Sequence
from pathlib import Path

import pytest

from loopwright.datasets import Case, Dataset
from loopwright.errors import ConfigurationError, DocumentError

SUM = {
    "id": "sum",
    "inputs": {"a": 2, "b": 2},
    "expected": "4",
    "metadata": {"kind": "easy"},
    "weight": 2.0,
}
LONG = {"id": "long", "inputs": "Zeile\nzwei “ü” 🙂", "expected": None}


def lines(*rows: object) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


FORMS = {
    "cases.jsonl": lines(SUM, LONG),
    "bom.jsonl": "\ufeff" + lines(SUM) + "\n   \r\n" + lines(LONG).strip(),
    "cases.json": json.dumps([SUM, LONG], indent=2),
    "cases.yaml": """
- id: sum
  inputs: {a: 2, b: 2}
  expected: "4"
  metadata: {kind: easy}
  weight: 2.0
- id: long
  inputs: |-
    Zeile
    zwei “ü” 🙂
""",
    "cases.csv": (
        "\ufeffid,inputs,expected,metadata,weight\r\n"
        'sum,"{""a"": 2, ""b"": 2}",4,"{""kind"": ""easy""}",2.0\r\n'
        'long,"Zeile\nzwei “ü” 🙂",,,\r\n'
    ),
    "evals.yaml": """
# yaml-language-server: $schema=./evals_schema.json
name: sums
cases:
- name: sum
  inputs: {a: 2, b: 2}
  expected_output: "4"
  metadata: {kind: easy}
  evaluators: []
- name: long
  inputs: "Zeile\\nzwei “ü” 🙂"
evaluators: []
""",
    "inspect.jsonl": lines(
        {"id": "sum", "input": {"a": 2, "b": 2}, "target": "4", "metadata": {"kind": "easy"}},
        {"id": "long", "input": "Zeile\nzwei “ü” 🙂"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_the_formats_give_the_same_cases(name: str, tmp_path: Path) -> None:
    """A case does not depend on the format of its file, but for what the format cannot say."""
    file = tmp_path / name
    file.write_bytes(FORMS[name].encode())
    first, second = Dataset.load(file)
    # Cells of CSV are text; the other two formats have no weight.
    inputs = json.dumps(SUM["inputs"]) if name.endswith(".csv") else SUM["inputs"]
    weight = 2.0 if name.startswith(("cases", "bom")) else 1.0
    assert first == Case(inputs, "4", id="sum", metadata={"kind": "easy"}, weight=weight)
    assert second == Case(LONG["inputs"], id="long")
    assert first.place.startswith(f"{name}:")


def test_samples_of_inspect_lose_nothing(tmp_path: Path) -> None:
    """What Inspect has and a case does not have becomes metadata."""
    file = tmp_path / "samples.jsonl"
    file.write_text(
        lines(
            {"input": "Which?", "target": ["A", "B"], "choices": ["x", "y"], "id": 7, "setup": "ls"}
        )
    )
    (case,) = Dataset.load(file)
    assert (case.id, case.inputs, case.expected) == ("7", "Which?", ["A", "B"])
    assert case.metadata == {"choices": ["x", "y"], "setup": "ls"}


def test_fields_name_those_of_the_file(tmp_path: Path) -> None:
    """`fields` maps one field, or several to an object; all others become metadata."""
    file = tmp_path / "cases.csv"
    file.write_text("city,country,answer,customer\nBonn,DE,Rhein,a\nGraz,AT,Mur,b\n")
    data = Dataset.load(
        file, fields={"inputs": ["city", "country"], "expected": "answer"}, group="customer"
    )
    assert [case.inputs for case in data] == [
        {"city": "Bonn", "country": "DE"},
        {"city": "Graz", "country": "AT"},
    ]
    assert (data[1].expected, data[1].metadata, data.groups) == (
        "Mur",
        {"customer": "b"},
        ["a", "b"],
    )


def test_parquet_needs_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parquet is read where pyarrow is installed; elsewhere one sentence says what to install."""
    file = tmp_path / "cases.parquet"
    file.write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(
        ConfigurationError, match=r"^cases.parquet: Parquet needs pyarrow: pip install pyarrow$"
    ):
        Dataset.load(file)
    rows = [{"id": "sum", "inputs": "2 + 2", "expected": "4", "kind": "easy"}]
    table = types.SimpleNamespace(to_pylist=lambda: rows)
    reader = types.SimpleNamespace(read_table=lambda _: table)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", reader)
    assert list(Dataset.load(file)) == [Case("2 + 2", "4", id="sum", metadata={"kind": "easy"})]


@pytest.mark.parametrize("value", [dt.date(2026, 11, 28), float("nan"), b"x"])
def test_values_that_json_cannot_hold_have_their_place(
    value: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parquet has dates, bytes and NaN, and a case has none of them."""
    file = tmp_path / "cases.parquet"
    file.write_bytes(b"PAR1")
    table = types.SimpleNamespace(to_pylist=lambda: [{"inputs": 1}, {"inputs": value}])
    monkeypatch.setitem(
        sys.modules, "pyarrow.parquet", types.SimpleNamespace(read_table=lambda _: table)
    )
    with pytest.raises(
        ConfigurationError,
        match=r"^cases.parquet:2: case.inputs: .* not a (JSON value|finite number)",
    ):
        Dataset.load(file)


WRONG: dict[str, tuple[str, str, Sequence[str]]] = {
    "all problems of a file": (
        "cases.jsonl",
        lines(SUM) + "{'id': 1}\n" + lines({"id": "x"}, {"inputs": 1, "expcted": 2}, {"inputs": 1, "weight": 0}, [1]),
        [
            "cases.jsonl:2: column 2: not valid JSON: Expecting property name enclosed in double quotes",
            "cases.jsonl:3: there is no `inputs` among id; name it with `fields`",
            "cases.jsonl:4: a case has no `expcted`; did you mean 'expected'?",
            "cases.jsonl:5: weight: 0 is out of range; give a number above 0",
            "cases.jsonl:6: a case must be an object with `inputs`",
        ],
    ),
    "an ID twice": (
        "cases.jsonl",
        lines(SUM, {"inputs": 1}, {"id": "sum", "inputs": 3}, {"inputs": 1}),
        [
            "cases.jsonl:3: the ID 'sum' is already used at cases.jsonl:1",
            "cases.jsonl:4: this is the case of cases.jsonl:2 again; remove one, or give each an `id`",
        ],
    ),
    "an ID twice in CSV": ("c.csv", "id,inputs\na,x\n\nb,y\na,z\n", ["c.csv:5: the ID 'a' is already used at c.csv:2"]),
    "an ID of two lines": ("c.jsonl", lines({"id": "a\nb", "inputs": 1}), ["c.jsonl:1: id: 'a\\nb' is not a text of at most 200 characters in one line"]),
    "NaN": ("c.jsonl", '{"inputs": NaN}\n', ["c.jsonl:1: not valid JSON: NaN is not a number of JSON"]),
    "a key twice": ("c.jsonl", '{"inputs": 1, "inputs": 2}\n', ["c.jsonl:1: not valid JSON: duplicate key"]),
    "too deep": ("c.jsonl", '{"inputs": ' + "[" * 200 + "]" * 200 + "}\n", ["c.jsonl:1: case.inputs" + "[0]" * 100 + ": nested deeper than 100 levels; flatten it or store it in a file"]),
    "far too deep": ("c.jsonl", "[" * 99_999 + "\n", ["c.jsonl:1: the JSON is nested too deeply"]),
    "no case": ("c.jsonl", "\n\n", ["c.jsonl: there is no case"]),
    "no file of cases": ("c.txt", "a", ["c.txt: files of cases end with .jsonl, .csv, .yaml, .yml, .json, .parquet; write one JSON object per line into a .jsonl file"]),
    "a short row": ("c.csv", "id,inputs\na,x\nb\nc,z,9\n", ["c.csv:3: 1 cells, but the header has 2", "c.csv:4: 3 cells, but the header has 2"]),
    "a quote that is not closed": ("c.csv", 'id,inputs\na,x\nb,"y\nz\n', ["c.csv:3: unexpected end of data; the rest of the file is not read"]),
    "a name twice": ("c.csv", "id,id\na,x\n", ["c.csv:1: a name in the header is empty, or is there twice; the rest of the file is not read"]),
    "a cell that is no JSON": ("c.csv", "inputs,weight\na,x\n", ["c.csv:2: weight: column 1: not valid JSON: Expecting value"]),
    "a field and its metadata": ("c.csv", 'inputs,kind,metadata\na,x,"{""kind"": 1}"\n', ["c.csv:2: `kind` is a field and also in metadata; remove one"]),
    "no list": ("c.yaml", "a: 1\n", ["c.yaml:1: expected a list of cases, or a file of pydantic-evals or promptfoo"]),
    "a wrong item of a list": ("c.yaml", "- inputs: 1\n- 3\n", ["c.yaml:2: a case must be an object with `inputs`"]),
    "too many to hold": ("c.json", json.dumps(["x"] * 10_001), ["c.json: 10,001 cases are more than 10,000; write one JSON object per line into a .jsonl file, which is streamed"]),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_problem_has_its_place(name: str, tmp_path: Path) -> None:
    """Each bad row is reported with file and line, and hides no other one."""
    file, text, problems = WRONG[name]
    (tmp_path / file).write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        Dataset.load(tmp_path / file)
    assert str(caught.value).splitlines() == list(problems)


def test_other_encodings_and_long_lines_are_refused(tmp_path: Path) -> None:
    """Bytes that are not UTF-8, and a line that would fill the memory, are problems of their line."""
    file = tmp_path / "cases.jsonl"
    file.write_bytes(
        lines(SUM).encode() + '{"inputs": "ü"}\n'.encode("latin-1") + b'"' + b"x" * (17 << 20)
    )
    with pytest.raises(ConfigurationError) as caught:
        Dataset.load(file)
    assert str(caught.value).splitlines() == [
        "cases.jsonl:2: byte 13 is not UTF-8; save the file as UTF-8",
        "cases.jsonl:3: this line is longer than 16 MiB",
    ]
    table = tmp_path / "cases.csv"
    table.write_bytes("inputs\na\nü\n".encode("latin-1"))
    with pytest.raises(
        ConfigurationError, match=r"^cases.csv:3: not UTF-8: .*; save the file as UTF-8$"
    ):
        Dataset.load(table)


def test_many_problems_are_counted(tmp_path: Path) -> None:
    """Twenty problems are shown, and the number of the others."""
    file = tmp_path / "cases.jsonl"
    file.write_text("{}\n" * 25)
    with pytest.raises(ConfigurationError) as caught:
        Dataset.load(file)
    assert str(caught.value).splitlines()[20:] == ["cases.jsonl: 5 more problems"]


def test_yaml_problems_are_those_of_the_reader(tmp_path: Path) -> None:
    """YAML that cannot be read is refused with line and column, as in a document."""
    file = tmp_path / "cases.yaml"
    file.write_text("- inputs: 1\n  inputs: 2\n")
    with pytest.raises(
        DocumentError,
        match=r"^cases.yaml:2:3: \[0\].inputs: key 'inputs' on line 2 is already set on line 1",
    ):
        Dataset.load(file)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fields": {"input": "q"}}, "fields: a case has no 'input'; did you mean 'inputs'?"),
        ({"fields": {"inputs": "id", "expected": "answr"}}, "cases.jsonl: no case has `answr`, which `fields` names"),
        ({"group": "customer"}, "cases.jsonl:1: there is no `customer`, which `group` names"),
        ({"split": {"tset": 1}}, "split: there is no 'tset'; did you mean 'test'?"),
        ({"split": {"test": 0}}, "split: test: 0 is out of range; give a number above 0"),
    ],
)  # fmt: skip
def test_wrong_options(options: dict[str, object], message: str, tmp_path: Path) -> None:
    """A wrong option is named with the valid ones."""
    file = tmp_path / "cases.jsonl"
    file.write_text(lines({"id": "sum", "inputs": 1}))
    with pytest.raises(ConfigurationError) as caught:
        Dataset.load(file, **options)  # type: ignore[arg-type]
    assert str(caught.value) == message


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """A missing file is a sentence with its path."""
    with pytest.raises(
        ConfigurationError, match=r"nothing.jsonl' cannot be read: No such file or directory$"
    ):
        Dataset.load(tmp_path / "nothing.jsonl")


def test_a_changed_file_is_noticed_when_a_case_is_read_again(tmp_path: Path) -> None:
    """Streamed cases are those that were loaded, or an error with the place."""
    file = tmp_path / "cases.jsonl"
    file.write_text(lines(SUM, LONG))
    data = Dataset.load(file)
    cases = iter(data)
    assert next(cases).id == "sum"
    file.write_text(lines(SUM, LONG).replace("zwei", "drei"))
    message = r"^cases.jsonl:2: the file was changed after it was loaded; load it again \(it is another case now\)$"
    with pytest.raises(ConfigurationError, match=message):
        data[1]
    file.unlink()
    with pytest.raises(
        ConfigurationError, match=r"^cases.jsonl:1: the file was changed after it was loaded"
    ):
        data[0]


@pytest.mark.slow
def test_large_files_are_not_in_memory(tmp_path: Path) -> None:
    """Of 20,000 cases with 40 MB of text, a process keeps less than 20 MB."""
    file = tmp_path / "cases.jsonl"
    with file.open("w") as out:
        for number in range(20_000):
            out.write(json.dumps({"id": f"c{number}", "inputs": f"{number} " + "x" * 2000}) + "\n")
    code = (
        "import resource, sys\nfrom loopwright.datasets import Dataset\n"
        "from loopwright.documents.yaml import reader\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "data = Dataset.load(sys.argv[1], split={'train': 1, 'test': 1})\n"
        "print(len(data), len(data.use('train')) + sum(1 for _ in data.use('test')))\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(file)], capture_output=True, text=True, check=True, timeout=60,
        env=os.environ,
    )  # fmt: skip
    counts, kib = done.stdout.splitlines()
    assert counts == "20000 20000"
    assert int(kib) < 20_000
