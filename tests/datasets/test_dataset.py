"""Splits, samples, minibatches and digests of a data set."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from loopwright.datasets import Case, Dataset
from loopwright.errors import ConfigurationError

SHARES = {"train": 60, "validation": 20, "test": 20}


def cases(count: int, groups: int = 0) -> list[Case]:
    return [
        Case(f"question {n}", id=f"c{n}", group=f"g{n % groups}" if groups else "")
        for n in range(count)
    ]


def split_of(data: Dataset) -> dict[str, str]:
    return {case.id: name for name in data.splits for case in data.use(name)}


def test_new_cases_move_no_old_one() -> None:
    """A case stays in its split when others are added, removed or moved."""
    before = split_of(Dataset(cases(500), split=SHARES))
    more = [*reversed(cases(550)), Case("another")]
    after = split_of(Dataset(more, split=SHARES))
    assert {name: after[name] for name in before} == before
    assert len(after) == 551


def test_splits_have_about_their_shares_and_depend_on_the_salt() -> None:
    """Shares need no sum of 100, and another salt gives another split."""
    data = Dataset(cases(2000), split={"test": 2, "train": 8})
    counts = data.splits
    assert list(counts) == ["train", "test"]
    assert sum(counts.values()) == 2000
    assert abs(counts["test"] - 400) < 4 * 18  # four standard deviations
    other = split_of(Dataset(cases(2000), split={"test": 2, "train": 8}, salt="b"))
    assert other != split_of(data)


def test_groups_are_never_parted(tmp_path: Path) -> None:
    """All cases of a group are in one split, in a file and in a folder."""
    data = Dataset(cases(900, groups=60), split=SHARES)
    where: dict[str, set[str]] = {}
    for name in data.splits:
        for case in data.use(name):
            where.setdefault(case.group, set()).add(name)
    assert len(where) == 60
    assert all(len(names) == 1 for names in where.values())
    for name, customer in (("train", "ann"), ("test", "ann")):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"inputs": name, "customer": customer}))
    message = rf"^{tmp_path.name}/test.jsonl:1: the group 'ann' is also in train$"
    with pytest.raises(ConfigurationError, match=message):
        Dataset.load(tmp_path, group="customer")


def test_a_folder_has_a_file_for_each_split(tmp_path: Path) -> None:
    """The names of the files are the splits, in a fixed order, with unique IDs over all."""
    (tmp_path / "test.jsonl").write_text('{"id": "a", "inputs": 1}')
    (tmp_path / "train.csv").write_text("id,inputs\nb,2\nc,3\n")
    (tmp_path / "README.md").write_text("about")
    data = Dataset.load(tmp_path)
    assert (data.ids, data.splits) == (["b", "c", "a"], {"train": 2, "test": 1})
    assert data.use().ids == ["b", "c"]
    assert [case.place for case in data.use("test")] == [f"{tmp_path.name}/test.jsonl:1"]
    (tmp_path / "test.jsonl").write_text('{"id": "b", "inputs": 1}')
    with pytest.raises(
        ConfigurationError, match=r"test.jsonl:1: the ID 'b' is already used at .*/train.csv:2$"
    ):
        Dataset.load(tmp_path)
    with pytest.raises(ConfigurationError, match="a folder has its splits; remove `split`"):
        Dataset.load(tmp_path, split=SHARES)
    (tmp_path / "val.jsonl").write_text("")
    with pytest.raises(
        ConfigurationError,
        match="'val.jsonl' is not named after a split.* name the files train, validation, test",
    ):
        Dataset.load(tmp_path)


def test_what_is_held_out_is_used_only_by_name() -> None:
    """`use()` leaves out the split `test`; without splits it is everything."""
    data = Dataset(cases(300), split=SHARES)
    held_out = set(data.use("test").ids)
    assert held_out
    assert held_out.isdisjoint(data.use().ids)
    assert (
        set(data.use().ids) == set(data.use("train", "validation").ids) == set(data.ids) - held_out
    )
    assert data.use("test").digest == data.digest
    whole = Dataset(cases(3))
    assert whole.use() is whole
    with pytest.raises(
        ConfigurationError,
        match=r"^cases: there is no split 'test' with a case; its splits: none; write `split`",
    ):
        whole.use("test")
    with pytest.raises(
        ConfigurationError, match=r"no split 'tran' with a case; did you mean 'train'"
    ):
        data.use("tran")


def test_a_split_of_groups_by_a_field_of_the_file(tmp_path: Path) -> None:
    """`group` names a field or a member of metadata."""
    file = tmp_path / "cases.jsonl"
    rows = [{"inputs": n, "metadata": {"customer": n % 3}} for n in range(9)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = Dataset.load(file, group="customer", split={"train": 1, "test": 1})
    assert data.groups == ["0", "1", "2"] * 3
    assert {case.group for case in data.use("train")}.isdisjoint(
        case.group for case in data.use("test")
    )


def test_samples_come_from_the_seed() -> None:
    """Equal seeds draw equal samples, in the order of the file, without a case twice."""
    data = Dataset(cases(100))
    drawn = data.sample(30, Random(7))
    assert drawn.ids == data.sample(30, Random(7)).ids != data.sample(30, Random(8)).ids
    assert len(set(drawn.ids)) == 30
    assert drawn.ids == [name for name in data.ids if name in set(drawn.ids)]
    assert data.sample(100, Random(7)) is data


@pytest.mark.parametrize(("count", "size"), [(10, 5), (10, 4), (7, 3), (3, 8), (1, 1)])
def test_minibatches_are_epochs(count: int, size: int) -> None:
    """In each epoch every case comes once; a batch between two epochs has no case twice."""
    data = Dataset(cases(count))
    batches = [batch.ids for batch in islice(data.minibatches(size, Random(3)), 60)]
    assert all(len(set(batch)) == len(batch) == min(size, count) for batch in batches)
    times = dict.fromkeys(data.ids, 0)
    for batch in batches:
        for name in batch:
            times[name] += 1
        assert max(times.values()) - min(times.values()) <= 1 + (count % size > 0)
    again = [batch.ids for batch in islice(data.minibatches(size, Random(3)), 60)]
    assert again == batches


def test_slices_and_places() -> None:
    """A data set is a sequence; a slice is a data set, and a part of a part is one too."""
    data = Dataset(cases(10))
    assert (data[-1].id, data[2:5].ids, len(data[2:5][1:]), data[2:5][-1].id) == (
        "c9",
        ["c2", "c3", "c4"],
        2,
        "c4",
    )
    assert [case.id for case in data.sample(4, Random(1))[1:3]] == data.sample(4, Random(1)).ids[
        1:3
    ]
    with pytest.raises(IndexError):
        data[10]


def test_digests_are_of_the_content() -> None:
    """The digest of a case is that of its content, without its ID, group, place and the order of keys."""
    case = Case({"a": 1, "b": "ü"}, "4", id="x", group="g", place="p:1")
    assert case.digest == Case({"b": "ü", "a": 1}, "4").digest
    assert Case("q").id == Case("q").digest[:16]
    others = [
        Case({"a": 1, "b": "u"}, "4"), Case({"a": 1, "b": "ü"}, 4), Case({"a": 1, "b": "ü"}, "4", weight=2),
        Case({"a": 1, "b": "ü"}, "4", metadata={"k": 1}), Case({"a": 1, "b": "ü"}, "4", evaluators=[{"check": {}}]),
    ]  # fmt: skip
    assert len({case.digest, *(one.digest for one in others)}) == 6


def test_the_digest_is_that_of_the_file(tmp_path: Path) -> None:
    """The digest of a data set is the SHA-256 of its file, also of the parts."""
    file = tmp_path / "cases.jsonl"
    file.write_text('{"inputs": 1}\n')
    # printf '{"inputs": 1}\n' | sha256sum
    assert (
        Dataset.load(file).digest
        == "efda1187f40534fbd58bc4c5c57b02c26f5dc323059738ac7657ea16cb62e05e"
    )


@pytest.mark.parametrize(
    ("edit", "sentence"),
    [
        (lambda rows: rows, ""),
        (lambda rows: [rows[0], {**rows[1], "expected": 9}, rows[2]], "cases.jsonl:2: the case 'b' was changed"),
        (lambda rows: rows[:2], "cases.jsonl: the case 'c' is missing"),
        (lambda rows: [*rows, {"id": "d", "inputs": 4}], "cases.jsonl:4: the case 'd' is new"),
        (lambda rows: rows[1:], "cases.jsonl:1: the case 'b' stands where 'a' was"),
        (lambda rows: [dict(reversed(row.items())) for row in rows], ""),
    ],
)  # fmt: skip
def test_a_changed_file_names_its_first_changed_case(
    edit: object, sentence: str, tmp_path: Path
) -> None:
    """The first difference of content or order is named with its place; the order of keys is none."""
    rows = [{"id": name, "inputs": number} for number, name in enumerate("abc")]
    file = tmp_path / "cases.jsonl"

    def loaded(rows: list[dict[str, object]]) -> Dataset:
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return Dataset.load(file)

    data = loaded(rows)
    recorded = list(zip(data.ids, data.digests, strict=True))
    assert loaded(edit(rows)).first_change(recorded) == sentence  # type: ignore[operator]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Case({1: 2}), "case.inputs: the key 1 is not text; JSON objects have text keys"),
        (lambda: Case(object()), "case.inputs: object is not a JSON value; return text"),
        (lambda: Case("q", id="x" * 201), "is not a text of at most 200 characters in one line"),
        (lambda: Case("q", id=3), "id: 3 is not a text"),
        (lambda: Case("q", weight=-1), "weight: -1 is out of range; give a number above 0"),
        (lambda: Case("q", metadata=[1]), "metadata: [1] is not an object"),
        (lambda: Case("q", evaluators={"check": 1}), "evaluators: {'check': 1} is not a list"),
        (lambda: Dataset([]), "cases: there is no case"),
        (lambda: Dataset([Case("q"), Case("q")]), "cases:2: this is the case of cases:1 again; remove one, or give each an `id`"),
    ],
)  # fmt: skip
def test_wrong_cases(make: object, message: str) -> None:
    """A case that no file could hold is refused where it is made."""
    with pytest.raises(ConfigurationError) as caught:
        make()  # type: ignore[operator]
    assert message in str(caught.value)


def test_a_line_of_json_is_the_case() -> None:
    """`to_json` gives the line of a JSONL file that is read as the same case."""
    case = Case(
        {"q": 1},
        [2],
        id="x",
        metadata={"k": None},
        evaluators=[{"check": {"contains": "2"}}],
        weight=0.5,
    )
    data = case.to_json()
    assert Case(data.pop("inputs"), data.pop("expected"), **data) == case
    assert Case("q", id="x").to_json() == {"id": "x", "inputs": "q"}
