"""A data set: its cases in the order of the file, their digests, splits, samples and minibatches."""

from __future__ import annotations

import hashlib
import random as chances
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from ..errors import ConfigurationError
from ..records.codec import Json
from .case import Case

__all__ = ["HELD_OUT", "SPLITS", "Dataset"]

SPLITS = ("train", "validation", "test")
HELD_OUT = "test"


class Dataset:
    """Cases in a fixed order.

    A part of a data set (`use`, `sample`, a minibatch) is a data set too, with the cases in the order of
    the file. Cases of JSONL and CSV files are read again from the file whenever they are needed.

    Args:
        cases: the cases, each with its own ID.
        name: the name in messages. Default: "cases".
        split: the shares of the splits by name, such as `{"train": 60, "test": 40}`; a case belongs to
            one by the hash of its group or ID. Default: none, so there are no splits.
        salt: text that changes which case belongs to which split. Default: "".

    Raises:
        ConfigurationError: for two cases with one ID; names both places.

    Example:
        >>> data = Dataset([Case("2 + 2", "4"), Case("2 + 3", "5")])
        >>> len(data), [case.expected for case in data]
        (2, ['4', '5'])
    """

    def __init__(
        self,
        cases: Iterable[Case],
        *,
        name: str = "cases",
        split: Mapping[str, float] | None = None,
        salt: str = "",
    ) -> None:
        raise NotImplementedError

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
        """Return the data set of a file, or of a folder with a file per split.

        Args:
            path: JSONL, CSV, YAML, JSON or Parquet.
            split: the shares of the splits by name: train, validation, test. Default: none.
            group: the field whose equal values stay in one split, and which is the unit of intervals.
                Default: "", each case for itself.
            fields: which fields of the file are those of a case. Default: those of the same name.
            salt: text that changes which case belongs to which split. Default: "".

        Raises:
            ConfigurationError: for a file that cannot be read, with the place of each problem.
        """
        raise NotImplementedError

    name: str
    """The name of the file or folder."""

    digest: str
    """The SHA-256 of the file; a part has that of the whole."""

    @property
    def ids(self) -> Sequence[str]:
        """The IDs in order, without reading the cases."""
        raise NotImplementedError

    @property
    def digests(self) -> Sequence[str]:
        """The digests of the cases in order, without reading them."""
        raise NotImplementedError

    @property
    def splits(self) -> dict[str, int]:
        """The number of cases of each split of the whole data set; empty without splits."""
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError

    def __iter__(self) -> Iterator[Case]:
        raise NotImplementedError

    def __getitem__(self, place: int) -> Case:
        """Return the case at a place in the order, from 0."""
        raise NotImplementedError

    def use(self, *splits: str) -> Dataset:
        """Return the cases of these splits; without a name, all that is not held out (`test`).

        Raises:
            ConfigurationError: for a split that the data set does not have.
        """
        raise NotImplementedError

    def sample(self, size: int, random: chances.Random) -> Dataset:
        """Return this many different cases, drawn at random; all if there are not more."""
        raise NotImplementedError

    def minibatches(self, size: int, random: chances.Random) -> Iterator[Dataset]:
        """Return minibatches without end; no case comes again before all others have come."""
        raise NotImplementedError

    def first_change(self, recorded: Mapping[str, str]) -> str:
        """Return a sentence about the first case that differs from recorded digests by ID, or ""."""
        raise NotImplementedError
