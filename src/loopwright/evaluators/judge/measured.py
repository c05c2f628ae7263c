"""The voting rule of a judge from its measurement, the report of `loopwright bench judge`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ...errors import ConfigurationError
from ...records import codec
from ...records.codec import Json
from .votes import Votes, best_rule, unattainable

__all__ = ["MOST", "Measured", "measured_votes"]

MOST = 7  # votes that a measured judge may need
_SHARES = ("sensitivity", "specificity", "icc")


@dataclass(frozen=True, slots=True)
class Measured:
    """The voting rule that a measurement supports.

    `unattainable` says why no rule keeps the error, for a judge that is used nevertheless.
    """

    votes: Votes
    unattainable: str = ""


def measured_votes(
    report: str | Path | Mapping[str, Json],
    identity: str,
    *,
    alpha: float = 0.05,
    most: int = MOST,
    accept: bool = False,
    where: str = "",
) -> Measured:
    """Return the voting rule of a judge by the exact programme at its measured rates.

    Args:
        report: The report, or the path of its file.
        identity: The digest of the judge, `Judge.identity`.
        alpha: The accepted share of bad outputs that pass. Default: 0.05.
        most: The maximum number of votes. Default: 7.
        accept: Whether a judge that cannot keep `alpha` gets a rule nevertheless.
        where: The position of the report, for messages. Default: the file.

    Raises:
        ConfigurationError: For a file that is not a report, a report without a needed figure, a report of
            another judge, or a judge that cannot keep `alpha`.
    """
    if not where:
        where = "measured" if isinstance(report, Mapping) else f"measured: {report}"
    values = report if isinstance(report, Mapping) else _read(Path(report), where)
    of_judge = values.get("judge")
    # Reports of earlier versions do not name their judge.
    if isinstance(of_judge, Mapping) and of_judge.get("identity") not in (None, identity):
        raise ConfigurationError(
            f"{where}: it measures another judge ({_name(of_judge)}). Criterion, model and settings must be "
            "the same. Measure this judge with: loopwright bench judge"
        )
    shares = [_measured_share(values, name, where) for name in _SHARES]
    if not 0 < codec.number("judge: alpha", alpha, minimum=0) < 1:
        raise ConfigurationError(f"judge: alpha: {alpha} is not between 0 and 1")
    rule = best_rule(*shares, alpha=alpha, most=most)
    if rule is not None:
        return Measured(rule.votes)
    why = unattainable(*shares, alpha=alpha, most=most)
    if not accept:
        raise ConfigurationError(
            f"{where}: unattainable: {why}. accept_unattainable: true uses this judge with a warning."
        )
    # Unanimous votes accept the fewest bad outputs.
    return Measured(Votes(most, 1, most), why)


def _read(path: Path, where: str) -> Mapping[str, Json]:
    try:
        values = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{where}: it cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{where}: it is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise ConfigurationError(f"{where}: it is not a report of loopwright bench judge")
    return values


def _measured_share(values: Mapping[str, Json], name: str, where: str) -> float:
    row = values.get(name)
    if not isinstance(row, Mapping):
        raise ConfigurationError(
            f"{where}: it has no {name}. Use the file that loopwright bench judge --out writes."
        )
    if "value" not in row:
        raise ConfigurationError(f"{where}: {name} is unknown: {row.get('why', 'no value')}")
    return codec.number(f"{where}: {name}", row["value"], minimum=0, maximum=1)


def _name(of_judge: Mapping[str, Json]) -> str:
    criteria = of_judge.get("criteria")
    names = "; ".join(map(str, criteria)) if isinstance(criteria, list) else "no name"
    return repr(names[:80])
