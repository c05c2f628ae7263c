"""The files of data sets: their formats, and how their rows become cases.

1. JSONL and CSV are streamed: only the position of each row is kept, and a row is read again when its case is needed.
   The other formats are held in memory.
2. Nothing in a row is dropped: what is no field of a case becomes metadata, or is refused.
3. Every problem has its place, `cases.jsonl:17`, and one bad row does not hide the next one.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from ..errors import ConfigurationError, nearest
from ..records.codec import Json, strict_json, text_of
from .case import Case
from .foreign import Foreign

__all__ = [
    "SUFFIXES",
    "Found",
    "Held",
    "Layout",
    "Source",
    "open_source",
    "read_foreign",
    "read_source",
]

_FIELDS = ("id", "inputs", "expected", "metadata", "evaluators", "weight")
_KNOWN = frozenset(_FIELDS)
_INSPECT: Mapping[str, str | Sequence[str]] = {"inputs": "input", "expected": "target"}
_JSON_CELLS = ("metadata", "evaluators", "weight")  # of a CSV file; its other cells are text
_MAX_LINE = 16 << 20  # bytes
_MAX_HELD = 10_000  # cases of a YAML or JSON file
_LARGER = 32  # a file of cases may be so much larger than a document: 32 MiB, 3,200,000 values
_BOM = b"\xef\xbb\xbf"


class Found(NamedTuple):
    """A row of a file: its position for `Source.read`, its line, and its case or the problem with it."""

    offset: int
    line: int
    case: Case | None
    problem: str = ""


class Layout:
    """How the values of a row become a case.

    Args:
        fields: the field of the row, or several that become one object, by field of a case.
        group: the field with the group, or "".

    Raises:
        ConfigurationError: for a field that a case does not have.
    """

    def __init__(self, fields: Mapping[str, str | Sequence[str]], group: str) -> None:
        self.fields, self.group = fields, group
        self.missing: dict[str, None] = {}  # fields that no row has had so far
        for name, source in fields.items():
            if name not in _FIELDS:
                hint = nearest(name, _FIELDS) or f"; it has {', '.join(_FIELDS)}"
                raise ConfigurationError(f"fields: a case has no {name!r}{hint}")
            self.missing |= dict.fromkeys([source] if isinstance(source, str) else source)

    def case(self, data: Json, place: str, *, lax: bool = False) -> Case:
        """Return the case of a row.

        Args:
            data: the values of the row.
            place: where it stands.
            lax: whether fields that a case does not have become metadata.

        Raises:
            ConfigurationError: for a row that is no case; without its place.
        """
        if not isinstance(data, dict):
            raise ConfigurationError("a case must be an object with `inputs`")
        if self.missing:
            for seen in self.missing.keys() & data.keys():
                del self.missing[seen]
        names = self.fields
        if not names and "input" in data and "inputs" not in data:  # a sample of Inspect
            names = _INSPECT
        lax = lax or bool(names)
        rest = dict(data)
        values: dict[str, Json] = {}
        if not names and _KNOWN.issuperset(rest):  # most rows; the loop takes a third of their time
            values, rest = rest, values
        # Those that are named first: `fields` may give the field `id` another meaning.
        for name in (*names, *(name for name in _FIELDS if name not in names)) if rest else ():
            source = names.get(name, name)
            if not isinstance(source, str):
                values[name] = {key: rest.pop(key) for key in source if key in rest}
            elif source in rest:
                values[name] = rest.pop(source)
        if "inputs" not in values:
            found = ", ".join(list(data)[:8])
            raise ConfigurationError(
                f"there is no `{names.get('inputs', 'inputs')}` among {found}; name it with `fields`"
            )
        metadata = values.pop("metadata", None) or {}
        if not isinstance(metadata, dict):
            raise ConfigurationError(f"metadata: {metadata!r:.60} is not an object")
        for key in rest:
            if not (lax or key == self.group):
                hint = nearest(key, _FIELDS) or "; put it into metadata, or use `fields`"
                raise ConfigurationError(f"a case has no `{key}`{hint}")
            if key in metadata:
                raise ConfigurationError(f"`{key}` is a field and also in metadata; remove one")
        group = text_of(data.get(self.group, metadata.get(self.group))) if self.group else ""
        if self.group and not group:
            raise ConfigurationError(f"there is no `{self.group}`, which `group` names")
        # A number as an ID is common, and null is no ID.
        identity = values.pop("id", None)
        weight = values.get("weight")
        return Case(
            values["inputs"],
            values.get("expected"),
            id=str(identity) if type(identity) is int else "" if identity is None else identity,
            metadata=rest | metadata,
            evaluators=values.get("evaluators") or [],
            weight=1.0 if weight is None else weight,
            group=group,
            place=place,
        )


def open_source(path: Path, name: str, layout: Layout) -> Source:
    """Return a file of cases by its suffix, without reading all of it.

    Raises:
        ConfigurationError: for another suffix, or a file that cannot be read.
        DocumentError: for YAML or JSON that cannot be read.
    """
    opener = SUFFIXES.get(path.suffix.lower())
    if opener is None:
        raise ConfigurationError(
            f"{name}: files of cases end with {', '.join(SUFFIXES)}; "
            "write one JSON object per line into a .jsonl file"
        )
    return opener(path, name, layout)


class Source:
    """One file of cases.

    Args:
        name: its name in messages.
        make: returns the case of a row and its place; raises ConfigurationError without the place.
    """

    def __init__(self, name: str, make: Callable[[Any, str], Case]) -> None:
        self.name, self.make = name, make

    def rows(self) -> Iterator[tuple[int, int, Any]]:
        """Yield position, line and row of each; a ConfigurationError takes the place of a row that cannot be read."""
        raise NotImplementedError

    def read(self, rows: Iterable[tuple[int, int]]) -> Iterator[Case]:
        """Yield the cases at these positions and lines, as `scan` found them."""
        raise NotImplementedError

    def scan(self) -> Iterator[Found]:
        """Read all rows."""
        for offset, line, row in self.rows():
            try:
                found = Found(offset, line, self.case(row, line))
            except ConfigurationError as error:
                found = Found(offset, line, None, str(error))
            yield found

    def case(self, row: Any, line: int) -> Case:
        """Return the case of a row. Raises ConfigurationError without the place."""
        if isinstance(row, ConfigurationError):
            raise row
        return self.make(row, f"{self.name}:{line}")


class _Streamed(Source):
    """A file with one case after the other, which is never in memory as a whole."""

    def __init__(self, path: Path, name: str, layout: Layout) -> None:
        super().__init__(name, self.made)
        self.path, self.layout = path, layout

    def made(self, row: Any, place: str) -> Case:
        """Return the case of a row."""
        raise NotImplementedError

    def rows_from(self, file: BinaryIO, line: int) -> Iterator[tuple[int, int, Any]]:
        """Yield offset, line and row of each row from the position of the file on."""
        raise NotImplementedError

    def rows(self) -> Iterator[tuple[int, int, Any]]:
        with self.path.open("rb") as file:
            yield from self.rows_from(file, 1)

    def read(self, rows: Iterable[tuple[int, int]]) -> Iterator[Case]:
        with self.path.open("rb") as file:
            for offset, line in rows:
                file.seek(offset)
                _, line, row = next(self.rows_from(file, line), (0, 0, _GONE))
                yield self.case(row, line)


_GONE = ConfigurationError("it ends before this line")


def _raw_lines(file: BinaryIO) -> Iterator[bytes]:
    for raw in iter(partial(file.readline, _MAX_LINE + 1), b""):
        if len(raw) > _MAX_LINE:
            raise ConfigurationError(f"this line is longer than {_MAX_LINE >> 20} MiB")
        yield raw


class _JsonLines(_Streamed):
    """A JSON object per line; empty lines are skipped."""

    def rows_from(self, file: BinaryIO, line: int) -> Iterator[tuple[int, int, Any]]:
        offset = file.tell()
        try:
            for raw in _raw_lines(file):
                text = raw.removeprefix(_BOM) if offset == 0 else raw
                if text.strip():
                    yield offset, line, text
                offset, line = offset + len(raw), line + 1
        except ConfigurationError as error:
            yield offset, line, error

    def made(self, row: bytes, place: str) -> Case:
        return self.layout.case(_parsed(row), place)


def _parsed(raw: bytes) -> Json:
    try:
        return strict_json(raw.decode())
    except json.JSONDecodeError as error:
        why = f"column {error.colno}: not valid JSON: {error.msg}"
    except UnicodeDecodeError as error:
        why = f"byte {error.start + 1} is not UTF-8; save the file as UTF-8"
    except RecursionError:
        why = "the JSON is nested too deeply"
    except ValueError as error:
        why = f"not valid JSON: {error}"
    raise ConfigurationError(why)


class _Table(_Streamed):
    """CSV with a header; a cell may have several lines."""

    header: Sequence[str] = ()

    def rows_from(self, file: BinaryIO, line: int) -> Iterator[tuple[int, int, Any]]:
        offset = start = file.tell()
        number = line - 1

        def lines() -> Iterator[str]:
            nonlocal offset, number
            for raw in _raw_lines(file):
                text = (raw.removeprefix(_BOM) if offset == 0 else raw).decode()
                number, offset = number + 1, offset + len(raw)
                yield text

        try:
            for cells in csv.reader(lines(), strict=True):
                if not self.header:
                    self.header = cells
                    if "" in cells or len(set(cells)) < len(cells):
                        raise ConfigurationError("a name in the header is empty, or is there twice")
                elif cells:
                    yield start, line, cells
                start, line = offset, number + 1
        except UnicodeDecodeError as error:
            why = f"not UTF-8: {error.reason}; save the file as UTF-8"
            yield start, number + 1, ConfigurationError(why)
        except (csv.Error, ConfigurationError) as error:
            yield start, line, ConfigurationError(f"{error}; the rest of the file is not read")

    def made(self, row: Sequence[str], place: str) -> Case:
        if len(row) != len(self.header):
            raise ConfigurationError(f"{len(row)} cells, but the header has {len(self.header)}")
        # An empty cell has no value.
        data: dict[str, Json] = {n: cell for n, cell in zip(self.header, row, strict=True) if cell}
        for name in _JSON_CELLS:
            source = self.layout.fields.get(name, name)
            if isinstance(source, str) and source in data:
                try:
                    data[source] = _parsed(data[source].encode())
                except ConfigurationError as error:
                    raise ConfigurationError(f"{source}: {error}") from error
        return self.layout.case(data, place, lax=True)


class Held(Source):
    """Rows that are in memory, each with its line."""

    def __init__(
        self, name: str, given: Iterable[tuple[int, Any]], make: Callable[[Any, str], Case]
    ) -> None:
        super().__init__(name, make)
        self.given = list(given)

    def rows(self) -> Iterator[tuple[int, int, Any]]:
        return ((offset, line, row) for offset, (line, row) in enumerate(self.given))

    def read(self, rows: Iterable[tuple[int, int]]) -> Iterator[Case]:
        return (self.case(self.given[offset][1], line) for offset, line in rows)


def _structured(path: Path, name: str, layout: Layout) -> Held:
    source = read_source(path, name)
    rows = source.value
    if isinstance(rows, dict):
        return Held(name, read_foreign(source).rows(), layout.case)
    if not isinstance(rows, list):
        raise ConfigurationError(f"{name}:1: expected a list of cases")
    if len(rows) > _MAX_HELD:
        raise ConfigurationError(
            f"{name}: {len(rows):,} cases are more than {_MAX_HELD:,}; write one JSON object per "
            "line into a .jsonl file, which is streamed"
        )
    placed = ((source.position((i,))[0], row) for i, row in enumerate(rows))
    return Held(name, placed, layout.case)


def read_source(path: Path, name: str) -> Any:
    """Return the values of a YAML or JSON file with their positions.

    Raises:
        DocumentError: with every problem of the text.
        ConfigurationError: for YAML that pydantic-evals cannot read.
    """
    # By name, because the reader of documents belongs to a layer above; it needs nothing from there.
    reader = import_module("loopwright.documents.yaml.reader")
    raw = path.read_bytes()
    source = reader.read(raw, name, larger=_LARGER)
    if isinstance(source.value, dict) and "cases" in source.value and path.suffix != ".json":
        # pydantic-evals writes YAML 1.1, in which 1e3 is text. The reader has checked what could harm.
        import yaml

        try:
            source = replace(source, value=yaml.safe_load(raw))
        except (yaml.YAMLError, ValueError) as error:
            why = " ".join(str(error).split())
            raise ConfigurationError(f"{name}: pydantic-evals cannot read it: {why}") from error
    return source


def read_foreign(source: Any) -> Foreign:
    """Return the cases and evaluators of another tool's file; its problems are collected.

    Raises:
        ConfigurationError: for a file of no known tool.
    """
    data = source.value
    if "cases" in data:
        from .pydantic_evals import read_pydantic_evals

        return read_pydantic_evals(source)
    if "tests" in data or {"prompts", "providers"} <= data.keys():
        from .promptfoo import read_promptfoo

        return read_promptfoo(source)
    raise ConfigurationError(
        f"{source.file}:1: expected a list of cases, or a file of pydantic-evals or promptfoo"
    )


def _parquet(path: Path, name: str, layout: Layout) -> Held:
    try:
        parquet = import_module("pyarrow.parquet")
    except ImportError as error:
        raise ConfigurationError(f"{name}: Parquet needs pyarrow: pip install pyarrow") from error
    try:
        rows = parquet.read_table(path).to_pylist()
    except ValueError as error:  # pyarrow's ArrowInvalid
        raise ConfigurationError(f"{name}: {error}") from error
    return Held(name, enumerate(rows, start=1), partial(layout.case, lax=True))


SUFFIXES: dict[str, Callable[[Path, str, Layout], Source]] = {
    ".jsonl": _JsonLines, ".csv": _Table, ".yaml": _structured, ".yml": _structured, ".json": _structured,
    ".parquet": _parquet,
}  # fmt: skip
