"""The native document: data sets, and what an evaluation on one must reach."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from .fields import MAX_RETRIES, Part

__all__ = ["DatasetFile", "ErrorsSpec", "GateSpec", "MinibatchSpec", "SplitNames"]


def _share(value: float | str) -> float | str:
    """Refuse what is no share, but keep it as it is written."""
    try:
        share_of(value)
    except ValueError:
        raise PydanticCustomError(
            "share", "a share is a number from 0 to 1, or a percentage such as 5%"
        ) from None
    return value


def share_of(value: float | str) -> float:
    """Return a number from 0 to 1, or a percentage such as `5%`, as a number. Raises ValueError for another one."""
    text = str(value)
    share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    if not 0 <= share <= 1:
        raise ValueError(value)
    return share


Limit = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Share = Annotated[Limit | str, AfterValidator(_share)]
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
