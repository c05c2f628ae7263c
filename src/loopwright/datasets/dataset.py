"""A data set: its cases in the order of the file, their digests, splits, samples and minibatches."""

from __future__ import annotations

import hashlib
import sys
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, groupby, zip_longest
from pathlib import Path
from random import Random
from typing import overload

from ..errors import ConfigurationError, nearest
from ..records.codec import number
from .case import Case
from .files import SUFFIXES, Held, Layout, Source, open_source

__all__ = ["HELD_OUT", "SPLITS", "Dataset"]

SPLITS = ("train", "validation", "test")
HELD_OUT = "test"
_SHOWN = 20  # problems of one file; the others are counted


class Dataset:
    """Cases in a fixed order.

    A part of a data set (`use`, `sample`, a minibatch) is a data set too, with its cases in the order of
    the file. Cases of JSONL and CSV files are read again from the file whenever they are needed.

    Args:
        cases: the cases, each with its own ID.
        name: the name in messages. Default: "cases".
        split: the shares of the splits train, validation and test, such as `{"train": 60, "test": 40}`; a
            case belongs to one by the hash of its group or ID. Default: none, so there are no splits.
        salt: text that changes which case belongs to which split. Default: "".

    Raises:
        ConfigurationError: without a case, or for two cases with one ID; names both places.

    Example:
        >>> data = Dataset([Case("2 + 2", "4"), Case("2 + 3", "5")])
        >>> len(data), [case.expected for case in data]
        (2, ['4', '5'])
    """

    name: str
    """The name of the file or folder."""

    digest: str
    """The SHA-256 of the file; a part has that of the whole."""

    def __init__(
        self,
        cases: Iterable[Case],
        *,
        name: str = "cases",
        split: Mapping[str, float] | None = None,
        salt: str = "",
    ) -> None:
        source = Held(name, enumerate(cases, start=1), lambda case, _: case)
        self._index = _scanned(name, [("", source)], _splitter(split, salt))
        self._places: Sequence[int] = range(len(self._index.ids))
        self.name = name
        self.digest = hashlib.sha256("".join(self.digests).encode()).hexdigest()

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        split: Mapping[str, float] | None = None,
        group: str = "",
        fields: Mapping[str, str | Sequence[str]] | None = None,
        salt: str = "",
    ) -> Dataset:
        """Return the data set of a file, or of a folder with a file for each split.

        Args:
            path: JSONL, CSV, YAML, JSON or Parquet, by its suffix; or a folder with such files that are
                named train, validation and test.
            split: the shares of the splits train, validation and test. Default: none.
            group: the field whose equal values stay in one split and depend on each other in intervals.
                Default: "", each case for itself.
            fields: the field of the file, or a list of several that become an object, by field of a case:
                `{"inputs": "question", "expected": "answer"}`; the others become metadata. Default: the
                fields of a case.
            salt: text that changes which case belongs to which split. Default: "".

        Raises:
            ConfigurationError: for a file that cannot be read, or rows that are no cases, with the place
                of each.
            DocumentError: for YAML or JSON that cannot be read.

        Example:
            >>> import pathlib, tempfile
            >>> file = pathlib.Path(tempfile.mkdtemp(), "cases.jsonl")
            >>> _ = file.write_text('{"id": "sum", "inputs": "2 + 2", "expected": "4"}')
            >>> Dataset.load(file)[0].expected
            '4'
        """
        path, split_of, layout = Path(path), _splitter(split, salt), Layout(fields or {}, group)
        try:
            if path.is_dir():
                if split is not None:
                    raise ConfigurationError(
                        f"{path.name}: a folder has its splits; remove `split`"
                    )
                files = _files_of(path)
            else:
                files = {"": path}
            digests = [_digest_of(file) for file in files.values()]
            sources = [
                (name, open_source(file, f"{path.name}/{file.name}" if name else file.name, layout))
                for name, file in files.items()
            ]
            index = _scanned(path.name, sources, split_of)
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise ConfigurationError(f"{str(path)!r} cannot be read: {why}") from error
        if layout.missing:
            names = ", ".join(f"`{name}`" for name in layout.missing)
            raise ConfigurationError(f"{path.name}: no case has {names}, which `fields` names")
        whole = cls.__new__(cls)
        whole._index, whole._places = index, range(len(index.ids))
        whole.name = path.name
        whole.digest = digests[0]
        if len(digests) > 1:
            whole.digest = hashlib.sha256("".join(digests).encode()).hexdigest()
        return whole

    @property
    def ids(self) -> list[str]:
        """The IDs in order, without reading the cases again."""
        return [self._index.ids[place] for place in self._places]

    @property
    def digests(self) -> list[str]:
        """The digests of the cases in order, without reading them again."""
        return list(map(self._index.digest, self._places))

    @property
    def cases_digest(self) -> str:
        """A digest of the content of these cases, in any order."""
        return hashlib.sha256("".join(sorted(self.digests)).encode()).hexdigest()

    @property
    def whole(self) -> Dataset:
        """All cases of the file, of every split."""
        return self._part(range(len(self._index.ids)))

    @property
    def groups(self) -> list[str]:
        """The groups of the cases in order, "" for a case without one, without reading them again."""
        return [self._index.groups[place] for place in self._places]

    @property
    def weights(self) -> list[float]:
        """The weights of the cases in order, without reading them again."""
        return [self._index.weights[place] for place in self._places]

    @property
    def splits(self) -> dict[str, int]:
        """The number of cases in each split; empty without splits."""
        counts = Counter(map(self._index.splits.__getitem__, self._places))
        return {name: counts[name] for name in SPLITS if counts[name]}

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[Case]:
        return self._index.read(self._places)

    @overload
    def __getitem__(self, place: int) -> Case: ...
    @overload
    def __getitem__(self, place: slice) -> Dataset: ...
    def __getitem__(self, place: int | slice) -> Case | Dataset:
        """Return the case at a place, from 0, or the data set of a slice."""
        if isinstance(place, slice):
            return self._part(self._places[place])
        return next(self._index.read([self._places[place]]))

    def __repr__(self) -> str:
        return f"Dataset({self.name!r}, {len(self):,} cases)"

    def use(self, *splits: str) -> Dataset:
        """Return the cases of these splits; without a name, all that is not held out (`test`).

        Raises:
            ConfigurationError: for a split that the data set does not have.

        Example:
            >>> data = Dataset((Case(n) for n in range(200)), split={"train": 50, "test": 50})
            >>> len(data.use("train")) + len(data.use("test"))
            200
        """
        found = self.splits
        for name in splits:
            if name not in found:
                known = ", ".join(found) or "none; write `split`, or use a folder"
                raise ConfigurationError(
                    f"{self.name}: there is no split {name!r} with a case{nearest(name, found)}; its splits: {known}"
                )
        if not found:
            return self
        wanted = splits or found.keys() - {HELD_OUT}
        return self._part([place for place in self._places if self._index.splits[place] in wanted])

    def sample(self, size: int, random: Random) -> Dataset:
        """Return this many different cases, drawn at random; all if there are not more.

        Example:
            >>> data = Dataset(Case(n) for n in range(200))
            >>> len(data.sample(20, Random(1)))
            20
        """
        if size >= len(self):
            return self
        return self._part(sorted(random.sample(self._places, size)))

    def minibatches(self, size: int, random: Random) -> Iterator[Dataset]:
        """Yield minibatches of this size without end.

        No case is in one twice, and no case comes again before all others have come.

        Example:
            >>> batches = Dataset([Case(n) for n in range(4)]).minibatches(2, Random(1))
            >>> sorted(case.inputs for _ in range(2) for case in next(batches))
            [0, 1, 2, 3]
        """
        waiting: list[int] = []
        while True:
            batch, waiting = waiting[:size], waiting[size:]
            if len(batch) < size:
                # The rest of one epoch and the beginning of the next one.
                drawn = random.sample(self._places, len(self))
                taken = set([place for place in drawn if place not in batch][: size - len(batch)])
                waiting = [place for place in drawn if place not in taken]
                batch += taken
            yield self._part(sorted(batch))

    def first_change(self, recorded: Iterable[tuple[str, str]]) -> str:
        """Return a sentence about the first case that differs from what was recorded, or "".

        Args:
            recorded: IDs and digests of cases in their order.

        Example:
            >>> data = Dataset([Case("2 + 2", "4", id="sum")])
            >>> data.first_change([("sum", "0" * 32)])
            "cases:1: the case 'sum' was changed"
        """
        now = zip(self.ids, self.digests, strict=True)
        for at, (then, item) in enumerate(zip_longest(recorded, now)):
            if then == item:
                continue
            if item is None:
                return f"{self.name}: the case {then[0]!r} is missing"
            place = self._index.place(self._places[at])
            if then is None:
                return f"{place}: the case {item[0]!r} is new"
            if then[0] == item[0]:
                return f"{place}: the case {item[0]!r} was changed"
            return f"{place}: the case {item[0]!r} stands where {then[0]!r} was"
        return ""

    def _part(self, places: Sequence[int]) -> Dataset:
        part = Dataset.__new__(Dataset)
        part._index, part.name, part.digest = self._index, self.name, self.digest
        part._places = places if isinstance(places, range) else array("Q", places)
        return part


def _digest_of(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _files_of(folder: Path) -> dict[str, Path]:
    """Return the file of each split of a folder."""
    files: dict[str, Path] = {}
    for file in sorted(folder.iterdir()):
        if file.suffix.lower() not in SUFFIXES or not file.is_file():
            continue
        if file.stem not in SPLITS:
            raise ConfigurationError(
                f"{folder.name}: {file.name!r} is not named after a split{nearest(file.stem, SPLITS)}; "
                f"name the files {', '.join(SPLITS)}"
            )
        if file.stem in files:
            raise ConfigurationError(f"{folder.name}: there are two files of {file.stem}")
        files[file.stem] = file
    if not files:
        raise ConfigurationError(f"{folder.name}: there is no file train, validation or test")
    return {name: files[name] for name in SPLITS if name in files}


def _splitter(split: Mapping[str, float] | None, salt: str) -> Callable[[str], str]:
    """Return what gives the split of a case, by the hash of the salt and its group or ID; "" without splits."""
    shares = split or {}
    for name, share in shares.items():
        if name not in SPLITS:
            hint = nearest(name, SPLITS) or f"; there are {', '.join(SPLITS)}"
            raise ConfigurationError(f"split: there is no {name!r}{hint}")
        number(f"split: {name}", share, minimum=0, above=True)
    names = [name for name in SPLITS if name in shares]
    limits = [*accumulate(float(shares[name]) for name in names)]

    def split_of(key: str) -> str:
        if not names:
            return ""
        # Only the salt and the key, so that no other case has an effect.
        data = hashlib.sha256(f"{salt}\0{key}".encode("utf-8", "surrogatepass")).digest()
        # Without the last limit, so that rounding puts no case beyond it.
        return names[bisect_right(limits[:-1], limits[-1] * int.from_bytes(data[:8]) / 2**64)]

    return split_of


class _Index:
    """What is kept of every case, in columns, because an object for each of 100,000 cases needs twice the memory."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.groups: list[str] = []
        self.splits: list[str] = []
        self.sources: list[Source] = []
        self.weights = array("d")
        self.offsets = array("Q")
        self.lines = array("L")
        self._digests = bytearray()

    def add(self, case: Case, split: str, source: Source, offset: int, line: int) -> None:
        """Keep what is needed of a case and its row."""
        self.ids.append(case.id)
        self.groups.append(sys.intern(case.group))  # one text for equal groups
        self.splits.append(split)
        self.sources.append(source)
        self.weights.append(case.weight)
        self.offsets.append(offset)
        self.lines.append(line)
        self._digests += bytes.fromhex(case.digest)

    def digest(self, number: int) -> str:
        return self._digests[16 * number : 16 * number + 16].hex()

    def place(self, number: int) -> str:
        return f"{self.sources[number].name}:{self.lines[number]}"

    def read(self, numbers: Iterable[int]) -> Iterator[Case]:
        """Yield cases, read again from their files.

        Raises:
            ConfigurationError: for a case that is not what it was when it was loaded.
        """
        for source, run in groupby(numbers, self.sources.__getitem__):
            items = list(run)
            number = items[0]
            cases = source.read((self.offsets[item], self.lines[item]) for item in items)
            try:
                for number, case in zip(items, cases, strict=True):
                    if case.digest != self.digest(number):
                        raise ConfigurationError("it is another case now")
                    yield case
            except (OSError, ConfigurationError) as error:
                raise ConfigurationError(
                    f"{self.place(number)}: the file was changed after it was loaded; load it again ({error})"
                ) from error


def _scanned(
    name: str, sources: Iterable[tuple[str, Source]], split_of: Callable[[str], str]
) -> _Index:
    """Return what is kept of the cases of a data set; each source may be a split.

    Raises:
        ConfigurationError: with every problem.
    """
    index = _Index()
    numbers: dict[str, int] = {}  # by ID
    split_of_group: dict[str, str] = {}
    problems: list[str] = []
    for own, source in sources:
        for offset, line, case, problem in source.scan():
            if case is not None:
                split = own or split_of(case.group or case.id)
                first = numbers.setdefault(case.id, len(index.ids))
                if first < len(index.ids):
                    problem = f"the ID {case.id!r} is already used at {index.place(first)}"
                    if index.digest(first) == case.digest:
                        problem = f"this is the case of {index.place(first)} again; remove one, or give each an `id`"
                else:
                    index.add(case, split, source, offset, line)
                    if case.group and split_of_group.setdefault(case.group, split) != split:
                        problem = (
                            f"the group {case.group!r} is also in {split_of_group[case.group]}"
                        )
            if problem:
                problems.append(f"{source.name}:{line}: {problem}")
    if len(problems) > _SHOWN:
        problems[_SHOWN:] = [f"{name}: {len(problems) - _SHOWN:,} more problems"]
    if not problems and not index.ids:
        problems.append(f"{name}: there is no case")
    if problems:
        raise ConfigurationError("\n".join(problems))
    return index
