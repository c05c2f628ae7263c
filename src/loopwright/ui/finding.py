"""The words by which runs are found, the same in options of the command line and in the address of the page."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from ..errors import ConfigurationError, nearest
from ..journal.protocol import checked_tags
from ..journal.views import Wanted
from ..records import Status

STATUSES = ("queued", "running", "interrupted", *(status.value for status in Status))
_AGE = re.compile(r"([0-9]{1,9})([hdw])")
_SECONDS = {"h": 3600, "d": 86400, "w": 7 * 86400}


def wanted_of(
    words: Mapping[str, str], tags: Sequence[str] = (), *, option: str = "", limit: int = 50
) -> Wanted:
    """Return the runs that words mean: `name`, `status`, `since`, `search`, `sort`, `queue`, `worker` and `reason`.

    `option` stands before each word in messages, `--` on the command line.

    Raises:
        ConfigurationError: for an unknown status or order, a wrong time or tag.
    """
    status, since = words.get("status", ""), words.get("since", "")
    for one in filter(None, status.split(",")):
        check_status(one, STATUSES, option)
    for tag in tags:
        name, _, value = tag.partition("=")
        _checked({name: value}, option)
    try:
        return Wanted(
            words.get("name", ""), status, words.get("reason", ""), words.get("search", ""), limit=limit,
            queue=words.get("queue", ""), worker=words.get("worker", ""), tags=tuple(tags),
            sort=words.get("sort", ""), since=moment("since", since) if since else 0.0,
        )  # fmt: skip
    except ConfigurationError as error:
        raise ConfigurationError(f"{option}{error}") from None


def check_status(status: str, statuses: Collection[str], option: str = "--") -> None:
    """Raise ConfigurationError for an unknown status."""
    if status and status not in statuses:
        hint = nearest(status, statuses) or f"; use one of {', '.join(statuses)}"
        raise ConfigurationError(f"{option}status: {status!r} is not a status{hint}")


def tags_of(words: Sequence[str] | None, *, removable: bool = False) -> dict[str, str]:
    """Return the tags in words such as `team=search`; with `removable`, `team=` stands for none.

    Raises:
        ConfigurationError: for a word that is no tag.
    """
    tags = {}
    for word in words or ():
        name, equals, value = word.partition("=")
        if not equals or not (value or removable):
            forms = "NAME=VALUE, or NAME= to remove it" if removable else "NAME=VALUE"
            raise ConfigurationError(f"--tag: {word!r} is not a tag; write {forms}")
        tags[name] = value
    return _checked(tags, "--")


def _checked(tags: Mapping[str, str], option: str) -> dict[str, str]:
    try:
        return checked_tags(tags)
    except ConfigurationError as error:
        raise ConfigurationError(f"{option}{error}") from None


def age(option: str, text: str) -> float:
    """Return the seconds of an age. Raises ConfigurationError."""
    if matched := _AGE.fullmatch(text):
        return int(matched[1]) * _SECONDS[matched[2]]
    raise ConfigurationError(f"{option}: {text!r} is not an age; use one such as 12h, 30d or 8w")


def moment(option: str, text: str) -> float:
    """Return the time of a date, or of an age before now, in seconds since the epoch. Raises ConfigurationError."""
    if _AGE.fullmatch(text):
        return time.time() - age(option, text)
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        raise ConfigurationError(
            f"{option}: {text!r} is not a time. Use an age such as 12h, 30d or 8w, or a date such as "
            "2026-01-31."
        ) from None
