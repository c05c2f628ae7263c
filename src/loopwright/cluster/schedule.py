"""Schedules: a run whose time has come creates the run of the next time.

There is no scheduler to operate: a schedule is the queued run of its next time. The ID of a run follows from the name of
the schedule and its time, so two schedulers create one run. Times that pass while no worker serves are skipped, except
the one that was queued.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import re
from collections.abc import Mapping
from dataclasses import replace

from .._extras import needs
from ..errors import ConfigurationError
from ..journal import RunInfo
from ..journal.questions import SCHEDULE
from ..records.codec import Json

__all__ = ["again_at_tick", "at_tick", "id_of_key", "next_tick", "scheduled"]

_OUTSIDE = re.compile(r"[^A-Za-z0-9_-]+")


def id_of_key(key: str) -> str:
    """Return the run ID that belongs to a key.

    Example:
        >>> id_of_key("order 17")
        'order-17-0bcc920e3938'
    """
    digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    name = _OUTSIDE.sub("-", key).strip("-")[:48]
    return f"{name}-{digest}" if name else digest


def scheduled(row: RunInfo) -> bool:
    """Return whether a run belongs to a schedule."""
    return SCHEDULE in row.source


def at_tick(row: RunInfo, expression: str, name: str, now: float) -> RunInfo:
    """Return the run of a schedule at its next time.

    Args:
        row: the run to repeat.
        expression: the times, as five fields of cron in UTC.
        name: the name of the schedule.
        now: seconds since the epoch.

    Raises:
        ConfigurationError: for an expression that is not valid.
    """
    tick = _after(expression, now)
    rule: Mapping[str, Json] = {"expression": expression, "name": name}
    return replace(
        row,
        run_id=id_of_key(_at(name, tick)),
        wake_at=tick,
        created=now,
        updated=now,
        source={**row.source, SCHEDULE: dict(rule)},
    )


def again_at_tick(row: RunInfo, number: int) -> RunInfo:
    """Return the run of a schedule with another ID for the same time: a cancelled run keeps its own."""
    return replace(
        row, run_id=id_of_key(f"{_at(row.source[SCHEDULE]['name'], row.wake_at)}#{number}")
    )


def _at(name: str, tick: float) -> str:
    return f"{name}@{dt.datetime.fromtimestamp(tick, dt.UTC):%Y-%m-%dT%H:%MZ}"


def next_tick(row: RunInfo, now: float) -> RunInfo:
    """Return the run that follows a run of a schedule."""
    rule = row.source[SCHEDULE]
    fresh = RunInfo(
        "", row.name, row.input, row.fingerprint, dict(row.source), queue=row.queue, priority=row.priority
    )  # fmt: skip
    return at_tick(fresh, rule["expression"], rule["name"], max(now, row.wake_at))


def _after(expression: str, now: float) -> float:
    with needs("a schedule", "pgqueuer"):
        from croniter import CroniterBadCronError, croniter
    try:
        if len(expression.split()) != 5:
            raise CroniterBadCronError(f"{len(expression.split())} fields, not 5")
        return float(croniter(expression, now).get_next(float))
    except (CroniterBadCronError, ValueError) as error:
        raise ConfigurationError(
            f"cron: {expression!r} is not a schedule: {error}. Use five fields, such as '0 6 * * *'."
        ) from None
