"""What `run` and `show` say of the exceptions of users' functions."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ...journal import Entry, RunInfo, surviving
from ...records import Failure, Result
from ...records.codec import Json
from ...records.tracebacks import last_frame
from .. import formatting as texts
from .output import DEBUG, Output

__all__ = ["place_of", "show_tracebacks", "tell_failure"]


def place_of(failure: Failure) -> str:
    """Return the file, the line and the function in which the user's code failed, or ""."""
    frame = last_frame(failure.traceback)
    if frame is None:
        return ""
    file, here = Path(frame.file), Path.cwd()
    shown = file.relative_to(here) if file.is_relative_to(here) else file
    return f"{shown}, line {frame.line}, in {frame.function}"


def tell_failure(result: Result, output: Output, command: str) -> None:
    """Tell where the user's code failed, and the command that shows all of it.

    All of it is told now if there is no such command, and under LOOPWRIGHT_DEBUG.
    """
    failure = result.error
    if failure is None or not failure.traceback:
        return
    if not command or os.environ.get(DEBUG):
        output.say(texts.clean(failure.traceback.rstrip()))
        return
    said = texts.one_line(failure.traceback.rstrip().rpartition("\n")[2])
    if place := place_of(failure):
        said = f"{texts.one_line(place)}: {said}"
    output.say(("failed at: ", "dim"), said, wrap=True)
    output.say(("traceback: ", "dim"), command)


def show_tracebacks(
    info: RunInfo, result: Result, entries: Sequence[Entry], output: Output
) -> None:
    """Write the traceback of each failure in a run, those that are the same once."""
    found = _failures(result, entries)
    if output.as_json:
        failures = [{**failure.to_json(), "paths": paths} for failure, paths in found]
        output.give({"run_id": info.run_id, "failures": failures})
        return
    if not found:
        output.say(f"{info.run_id}: no function of yours failed in it")
    for failure, paths in found:
        times = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        output.say((f"{texts.one_line(paths[0])}{times}:", "bold"))
        output.say(texts.clean(failure.traceback.rstrip()))


def _failures(result: Result, entries: Sequence[Entry]) -> list[tuple[Failure, list[str]]]:
    """Return the failures with a traceback and where each happened, in their order."""
    found: dict[str, tuple[Failure, list[str]]] = {}
    failures = [failure for entry in surviving(entries) for failure in _of(entry)]
    for failure in [*failures, *([result.error] if result.error is not None else [])]:
        if failure.traceback:
            _, paths = found.setdefault(failure.traceback, (failure, []))
            if failure.path not in paths:
                paths.append(failure.path)
    return list(found.values())


def _of(entry: Entry) -> list[Failure]:
    if entry.kind != "finished":
        return []
    if entry.error is not None:
        return [entry.error]
    error: Json = entry.value.get("error") if isinstance(entry.value, dict) else None
    if not isinstance(error, dict) or not isinstance(error.get("traceback"), str):
        return []
    told = (str(error.get("kind")), str(error.get("message")), entry.path)
    exception, traceback = str(error.get("exception", "")), error["traceback"]
    return [Failure("", *told, exception=exception, traceback=traceback)]  # of a tool's call
