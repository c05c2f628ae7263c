"""The logger `loopwright`: effects at DEBUG, iterations and ends at INFO, warnings of runs at WARNING.

Every record has `run_id` and `path`. Inputs, outputs, feedback and messages of errors are content: they are
left out unless LOOPWRIGHT_LOG_CONTENT=1. Without a handler of the program nothing is printed.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

from ..journal import Entry, RunInfo
from ..records import Iteration, Stop
from ..records.codec import text_of
from ..records.excerpts import cut, one_line
from ..records.figures import duration, score, verdict_word

__all__ = ["LOG", "OneLine", "log_listener"]

CONTENT = "LOOPWRIGHT_LOG_CONTENT"
_SHOWN = 500  # characters of a value
LOG = logging.getLogger("loopwright")
LOG.addHandler(logging.NullHandler())


class OneLine(str):
    """A text that a handler writes on one line."""

    __slots__ = ()

    def __str__(self) -> str:
        return one_line(str.__str__(self))


def log_listener(info: RunInfo) -> Callable[[Entry], None]:
    """Return the listener that logs the entries of a run."""
    # Read per run, so that a program may set it after the import.
    content = os.environ.get(CONTENT) == "1"

    def listen(entry: Entry) -> None:
        level = logging.DEBUG if entry.kind in ("finished", "cut") else logging.INFO
        if LOG.isEnabledFor(level) and (text := _text(entry, info.name, content=content)):
            LOG.log(level, "%s", text, extra={"run_id": info.run_id, "path": entry.path})

    return listen


def _text(entry: Entry, name: str, *, content: bool) -> str:
    """Return the message of an entry, or "" for one that is not logged."""
    if entry.kind == "cut":
        return f"{entry.path} was cut off after {duration(entry.seconds)}"
    if entry.kind == "finished":
        verb = "finished" if entry.error is None else f"failed ({entry.error.kind})"
        value = entry.value if entry.error is None else entry.error.message
        return f"{entry.path} {verb} in {duration(entry.seconds)}" + _content(value, content)
    if entry.kind == "iteration":
        return _iteration(entry.path, entry.value, content=content)
    if entry.kind in ("ended", "suspended"):
        stop = Stop.from_json(entry.value["stop"])
        end = f"{entry.path or name} ended: {stop.reason.status.value} ({stop.reason.value})"
        return end + _content(stop.detail, content)
    return ""


def _iteration(path: str, item: Iteration, *, content: bool) -> str:
    word = f"failed ({item.error.kind})" if item.error is not None else verdict_word(item)
    shown = f"score {score(item.score)}" if item.score is not None else ""
    facts = ", ".join(fact for fact in (shown, word) if fact)
    text = f"{path} iteration {item.number}{f': {facts}' if facts else ''}"
    return text + _content(item.feedback, content)


def _content(value: object, content: bool) -> str:
    if not content or value is None or value == "":
        return ""
    to_json = getattr(value, "to_json", None)
    return f": {cut(one_line(text_of(to_json() if to_json else value)), _SHOWN)}"
