"""Selectors of recorded runs: a run ID, `name:DOC`, `since:7d` or `fp:FINGERPRINT`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from ..errors import ConfigurationError, nearest
from ..journal import Journal, RunInfo
from ..records.display import plural

__all__ = ["selected"]

KINDS = ("name", "since", "fp")
_SECONDS = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_AGE = re.compile(r"(\d+)([mhdw])")
_ALL = 1_000_000
_SHOWN = 8  # fingerprints in a message


async def selected(
    store: Journal, selectors: Sequence[str], *, now: float, mix: bool = False
) -> list[RunInfo]:
    """Return the runs that selectors name, oldest first.

    Filters (`name:`, `since:`, `fp:`) apply together; runs named by their ID are added.

    Args:
        store: the journal.
        selectors: at least one.
        now: the wall clock, in seconds since the epoch.
        mix: whether runs of several fingerprints may be mixed. Default: false.

    Raises:
        ConfigurationError: for an unknown selector, no run, several documents, or several fingerprints
            without `mix`.
        RunNotFound: for a run ID that does not exist.
    """
    filters: dict[str, str] = {}
    runs: dict[str, RunInfo] = {}
    for position, text in enumerate(selectors, start=1):
        kind, colon, value = text.partition(":")
        if not colon:
            info = await store.find(text)
            runs[info.run_id] = info
        elif kind not in KINDS or not value:
            hint = nearest(kind, KINDS) or "; use a run ID, name:DOC, since:7d or fp:FINGERPRINT"
            raise ConfigurationError(f"selector {position}: {text!r} is not a selector{hint}")
        elif kind in filters:
            raise ConfigurationError(
                f"selector {position}: {text!r}: filters apply together, so use {kind}: once"
            )
        else:
            filters[kind] = value
    if filters:
        age = _age(filters["since"]) if "since" in filters else None
        for info in await store.runs(limit=_ALL, name=filters.get("name", "")):
            fits = info.fingerprint.startswith(filters.get("fp", ""))
            if fits and (age is None or info.created >= now - age):
                runs[info.run_id] = info
    return _of_one_document(list(runs.values()), selectors, mix=mix)


def _of_one_document(runs: list[RunInfo], selectors: Sequence[str], *, mix: bool) -> list[RunInfo]:
    shown = " ".join(selectors)
    if not runs:
        raise ConfigurationError(f"{shown}: no run is selected", advice="list_runs")
    if len(names := sorted({info.name for info in runs})) > 1:
        raise ConfigurationError(
            f"{shown}: these are runs of {len(names)} documents: {', '.join(names[:5])}. "
            f"Select one with name:{names[0]}."
        )
    prints = Counter(info.fingerprint for info in runs)
    if len(prints) > 1 and not mix:
        listed = [
            f"fp:{value[:8]} ({plural(count, 'run')})"
            for value, count in prints.most_common(_SHOWN)
        ]
        more = f" and {len(prints) - _SHOWN} more" if len(prints) > _SHOWN else ""
        raise ConfigurationError(
            f"{shown}: these runs have {len(prints)} fingerprints: {', '.join(listed)}{more}. "
            "Select one, or mix them",
            advice="mix_versions",
        )
    return sorted(runs, key=lambda info: (info.created, info.run_id))


def _age(text: str) -> float:
    match = _AGE.fullmatch(text)
    if match is None:
        raise ConfigurationError(
            f"since:{text}: not an age. Write a number with m, h, d or w, such as since:7d."
        )
    return int(match[1]) * _SECONDS[match[2]]
