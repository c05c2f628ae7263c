"""Which runs a page of the list shows, as a statement that goes by an index."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...errors import ConfigurationError, nearest
from ...records import Reason

__all__ = ["FIRST", "WINDOW", "Wanted", "page_query"]

WINDOW = 10_000  # runs that one search for text looks at
FIRST = 1 << 62  # a key above all keys


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which runs a list shows: those before or after a key, and what they have in common.

    `before` is the key that they are older than, `after` the one that they are newer than; 0 is no
    bound. Empty words ask for nothing.

    Raises:
        ConfigurationError: for a reason that there is not.
    """

    name: str = ""
    status: str = ""
    reason: str = ""
    text: str = ""
    before: int = 0
    after: int = 0
    limit: int = 50

    def __post_init__(self) -> None:
        if self.reason and self.reason not in list(Reason):
            raise ConfigurationError(
                f"reason: {self.reason!r} is no reason"
                f"{nearest(self.reason, [reason.value for reason in Reason])}"
            )


def page_query(
    wanted: Wanted,
    end: tuple[str, str] | None,
    live: str,
    *,
    live_only: bool,
    columns: str = "*",
) -> tuple[str, list[Any]]:
    """Return the statement for a page of runs, and its values.

    `end` is a status and a reason as they are written: with both, the index has the runs in the
    order of the page. `live` is a JSON list of the keys of live owners: a running run's owner must be
    one of them, or with `live_only` false must not.
    """
    newer = bool(wanted.after)
    low, high = wanted.after, wanted.before or FIRST
    if wanted.text:
        low, high = (low, min(high, low + WINDOW)) if newer else (max(low, high - WINDOW), high)
    terms: list[str] = ["id<?", "id>?"]
    values: list[Any] = [high, low]
    if end:
        terms += ["status=?", "reason=?"]
        values += end
    if wanted.name:
        terms.append("name=?")
        values.append(wanted.name)
    if end and end[0] == "running":
        terms.append(_LIVE if live_only else _DEAD)
        values.append(live)
    if wanted.text:
        like = "%" + wanted.text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
        terms.append(f"({' OR '.join(f'{column} LIKE ? ESCAPE ?' for column in _TEXTS)})")
        values += [like, "\\"] * len(_TEXTS)
    order = "ASC" if newer else "DESC"
    select = ["SELECT ", columns, " FROM runs WHERE "]
    return "".join([*select, " AND ".join(terms), f" ORDER BY id {order} LIMIT ?"]), [
        *values,
        wanted.limit,
    ]


_LIVE = "owner IN (SELECT value FROM json_each(?))"
_DEAD = "owner IN (SELECT value FROM json_each(?)) IS NOT TRUE"
_INPUT = (  # long ones are contents
    "coalesce((SELECT body FROM contents WHERE id=coalesce(json_extract(runs.input,'$.\"$text\"'),"
    "json_extract(runs.input,'$.\"$json\"'))),runs.input)"
)
_TEXTS = ("run_id", "name", "detail", _INPUT)
