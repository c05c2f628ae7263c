"""A data set: its cases in the order of the file, their digests, splits, samples and minibatches."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, groupby, zip_longest
from operator import attrgetter
from pathlib import Path
from random import Random
from typing import NamedTuple, overload

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
        self._kept = self._all = _scanned(name, [("", source)], _splitter(split, salt))
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
            kept = _scanned(path.name, sources, split_of)
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise ConfigurationError(f"{str(path)!r} cannot be read: {why}") from error
        if layout.missing:
            names = ", ".join(f"`{name}`" for name in layout.missing)
            raise ConfigurationError(f"{path.name}: no case has {names}, which `fields` names")
        whole = cls.__new__(cls)
        whole._kept = whole._all = kept
        whole.name = path.name
        whole.digest = digests[0]
        if len(digests) > 1:
            whole.digest = hashlib.sha256("".join(digests).encode()).hexdigest()
        return whole

    @property
    def ids(self) -> list[str]:
        """The IDs in order, without reading the cases again."""
        return [one.id for one in self._kept]

    @property
    def digests(self) -> list[str]:
        """The digests of the cases in order, without reading them again."""
        return [one.digest for one in self._kept]

    @property
    def cases_digest(self) -> str:
        """A digest of the content of these cases, in any order."""
        return hashlib.sha256("".join(sorted(self.digests)).encode()).hexdigest()

    @property
    def whole(self) -> Dataset:
        """All cases of the file, of every split."""
        return self._part(self._all)

    @property
    def groups(self) -> list[str]:
        """The groups of the cases in order, "" for a case without one, without reading them again."""
        return [one.group for one in self._kept]

    @property
    def weights(self) -> list[float]:
        """The weights of the cases in order, without reading them again."""
        return [one.weight for one in self._kept]

    @property
    def splits(self) -> dict[str, int]:
        """The number of cases in each split; empty without splits."""
        counts = Counter(one.split for one in self._kept)
        return {name: counts[name] for name in SPLITS if counts[name]}

    def __len__(self) -> int:
        return len(self._kept)

    def __iter__(self) -> Iterator[Case]:
        return _read(self._kept)

    @overload
    def __getitem__(self, place: int) -> Case: ...
    @overload
    def __getitem__(self, place: slice) -> Dataset: ...
    def __getitem__(self, place: int | slice) -> Case | Dataset:
        """Return the case at a place, from 0, or the data set of a slice."""
        if isinstance(place, slice):
            return self._part(self._kept[place])
        return next(_read([self._kept[place]]))

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
        return self._part([one for one in self._kept if one.split in wanted])

    def sample(self, size: int, random: Random) -> Dataset:
        """Return this many different cases, drawn at random; all if there are not more.

        Example:
            >>> data = Dataset(Case(n) for n in range(200))
            >>> len(data.sample(20, Random(1)))
            20
        """
        if size >= len(self):
            return self
        return self._at(random.sample(range(len(self)), size))

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
                drawn = random.sample(range(len(self)), len(self))
                taken = set([place for place in drawn if place not in batch][: size - len(batch)])
                waiting = [place for place in drawn if place not in taken]
                batch += taken
            yield self._at(batch)

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
            place = self._kept[at].place
            if then is None:
                return f"{place}: the case {item[0]!r} is new"
            if then[0] == item[0]:
                return f"{place}: the case {item[0]!r} was changed"
            return f"{place}: the case {item[0]!r} stands where {then[0]!r} was"
        return ""

    def _at(self, places: Iterable[int]) -> Dataset:
        return self._part([self._kept[place] for place in sorted(places)])

    def _part(self, kept: list[_Kept]) -> Dataset:
        part = Dataset.__new__(Dataset)
        part._kept, part._all = kept, self._all
        part.name, part.digest = self.name, self.digest
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
                f"{folder.name}: {file.name!r} has not the name of a split{nearest(file.stem, SPLITS)}; "
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


class _Kept(NamedTuple):
    """What is kept of a case in memory."""

    id: str
    digest: str
    group: str
    weight: float
    split: str
    source: Source
    offset: int
    line: int

    @property
    def place(self) -> str:
        return f"{self.source.name}:{self.line}"


def _scanned(
    name: str, sources: Iterable[tuple[str, Source]], split_of: Callable[[str], str]
) -> list[_Kept]:
    """Return what is kept of the cases of a data set; each source may be a split.

    Raises:
        ConfigurationError: with every problem.
    """
    kept: dict[str, _Kept] = {}  # by ID
    split_of_group: dict[str, str] = {}
    problems: list[str] = []
    for own, source in sources:
        for offset, line, case, problem in source.scan():
            if case is not None:
                key = case.group or case.id
                split = own or split_of(key)
                item = _Kept(
                    case.id, case.digest, case.group, case.weight, split, source, offset, line
                )
                first = kept.setdefault(case.id, item)
                if first is not item:
                    problem = _repeated(first, item)
                elif case.group and split_of_group.setdefault(case.group, split) != split:
                    problem = f"the group {case.group!r} is also in {split_of_group[case.group]}"
            if problem:
                problems.append(f"{source.name}:{line}: {problem}")
    if len(problems) > _SHOWN:
        problems[_SHOWN:] = [f"{name}: {len(problems) - _SHOWN:,} more problems"]
    if not problems and not kept:
        problems.append(f"{name}: there is no case")
    if problems:
        raise ConfigurationError("\n".join(problems))
    return list(kept.values())


def _repeated(first: _Kept, again: _Kept) -> str:
    if first.digest == again.digest:
        return f"this is the case of {first.place} again; remove one, or give each an `id`"
    return f"the ID {again.id!r} is already used at {first.place}"


def _read(kept: Iterable[_Kept]) -> Iterator[Case]:
    """Yield cases, read again from their files.

    Raises:
        ConfigurationError: for a case that is not what it was when it was loaded.
    """
    for source, run in groupby(kept, attrgetter("source")):
        items = list(run)
        one = items[0]
        cases = source.read((item.offset, item.line) for item in items)
        try:
            for one, case in zip(items, cases, strict=True):
                if case.digest != one.digest:
                    raise ConfigurationError("it is another case now")
                yield case
        except (OSError, ConfigurationError) as error:
            raise ConfigurationError(
                f"{one.place}: the file was changed after it was loaded; load it again ({error})"
            ) from error
