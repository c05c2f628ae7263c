"""The native document: data sets, and what an evaluation on one must reach."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from .fields import MAX_RETRIES, Part

__all__ = ["DatasetFile", "ErrorsSpec", "GateSpec", "MinibatchSpec", "SplitNames"]


def _share(value: float | str) -> float | str:
    """Refuse a text that is no percentage."""
    if isinstance(value, str):
        number = value.removesuffix("%").strip()
        if not value.endswith("%") or not number.replace(".", "", 1).isdecimal():
            raise PydanticCustomError("share", "a share is a number from 0 to 1, or such as 5%")
    if share_of(value) > 1:
        raise PydanticCustomError("share", "a share is at most 1, or 100%")
    return value


def share_of(value: float | str) -> float:
    """Return a share of a document as a number from 0 to 1."""
    return float(value.removesuffix("%")) / 100 if isinstance(value, str) else value


Share = Annotated[Annotated[float, Field(ge=0, allow_inf_nan=False)] | str, AfterValidator(_share)]
Limit = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
SplitName = Literal["train", "validation", "test"]
SplitNames = SplitName | list[SplitName]


class DatasetFile(Part):
    """A data set: the file of its cases, and how they are split."""

    file: str = Field(
        description="The file, relative to the document: JSONL, CSV, YAML, JSON or Parquet; or a folder with a file for "
        "each split."
    )
    split: dict[SplitName, float] | None = Field(
        None,
        description="The shares of the splits train, validation and test. A case belongs to one by the hash of its group or ID.",
    )
    group: str = Field(
        "", description="The field whose equal values stay in one split, and depend on each other."
    )
    fields: dict[str, str | list[str]] | None = Field(
        None,
        description="The field of the file for each field of a case, such as `{inputs: question, expected: answer}`.",
    )
    salt: str = Field("", description="Text that changes which case belongs to which split.")


class ErrorsSpec(Part):
    """What happens after errors of cases."""

    retry: int = Field(0, ge=0, le=100, description=MAX_RETRIES)
    most: Share = Field(
        0.05,
        description="The share of cases that may error, such as `5%`. With more, the evaluation is an error and has no score.",
    )


class GateSpec(Part):
    """What the result of an evaluation must reach."""

    mean_at_least: Limit | None = Field(None, description="The least mean score.")
    lower_at_least: Limit | None = Field(
        None, description="The least lower limit of the interval of the mean."
    )
    max_drop: Limit | None = Field(
        None, description="How far the paired difference to the baseline may fall below 0."
    )


class MinibatchSpec(Part):
    """Cases on which an output is compared with its parent before it is scored on others."""

    size: int = Field(ge=1, description="The number of cases; fewer than 8 say little.")
    of: SplitName = Field("train", description="The split from which they are drawn, in epochs.")
    then: SplitName = Field(
        "validation", description="The split on which an output is scored if its mean is not lower."
    )
