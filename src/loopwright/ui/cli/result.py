"""How a run ended, and where the user's code failed, as lines for people."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...coding.workspace.store import GitStore
from ...coding.workspace.tree import WorkspaceSource
from ...conditions import CEILING, UNITS, amount, unit_of
from ...errors import LoopwrightError
from ...journal import Entry, RunInfo, surviving
from ...journal.protocol import shown_url
from ...journal.questions import Question
from ...records import Failure, Reason, Result, Status
from ...records.codec import Json, text_of
from ...records.redaction import last_frame
from .. import formatting as texts
from ..journals import command_line, resume_line, workspace_line
from ..run_summary import result_json
from ..submitted import is_for_workers
from .live import ending_text
from .output import DEBUG, Output

# The used amounts and the limits in the sentence of a stop, and what a refused call would take.
_FIGURE = re.compile(
    r"\b(\d[\d.e+-]*) (?:of|used|calls|tokens|usd|effects|iterations|phase iterations)\b"
)
TREES = "trees"  # the folder of copies
SHOWN_LINES = 60  # of an output on a terminal, so that the reason stays visible; a pipe gets all
_STYLES = {
    Status.SATISFIED: "bold green",
    Status.EXHAUSTED: "bold yellow",
    Status.SUSPENDED: "bold cyan",
}


def report_result(
    result: Result,
    output: Output,
    url: str,
    questions: Sequence[Question] = (),
    *,
    info: RunInfo | None = None,
) -> None:
    """Write why a run ended, its output, its journal, and the commands to continue with.

    `info` is the row of a submitted run, which workers continue.
    """
    output.write((ending_text(result), _STYLES.get(result.status, "bold red")), wrap=True)
    # No other command can open this journal, so none is suggested.
    in_memory = url.startswith("memory:")
    traceback_command = "" if in_memory else command_line("show", result.run_id, url, "--traceback")
    report_failure(result, output, traceback_command)
    for warning in result.warnings:
        output.note(f"warning: {texts.one_line(warning)}")
    # A suspension without a question waits for a pause or for quota.
    if result.request and not questions:
        request = {key: value for key, value in result.request.items() if key != "path"}
        detail = texts.one_line(text_of(request or ""))
        output.write(f"waiting at {result.request.get('path', '')}: {detail}")
    # As JSON: the declared type of a Python function has no text form.
    report_output(result.view(typed=False).output, output, questions)
    # A loop may have the workspace in place of its document.
    own = [loop.workspace for loop in result.loops.values() if loop.workspace]
    for workspace in [result.workspace] if result.workspace else own:
        _report_files(workspace, result, output)
    if in_memory:
        output.write(("not saved: a memory: journal ends with its process", "dim"))
        return
    output.write((f"journal: {shown_url(url)}", "dim"))
    output.write(("details: ", "dim"), command_line("show", result.run_id, url))
    if questions:
        report_questions(questions, output, result.detail)
        output.write(("answer: ", "dim"), command_line("approve", result.run_id, url))
    elif option := _raising(result):
        # Without a row the run was started here, so the command line knows its step.
        row = info or RunInfo(result.run_id, result.name, source={"python": ""})
        output.write(("continue: ", "dim"), resume_line(row, url, *option))
    elif result.status is Status.SUSPENDED:
        report_continuation(
            info or RunInfo(result.run_id, result.name, source={"python": ""}), output, url
        )


def _report_files(workspace: Mapping[str, Json], result: Result, output: Output) -> None:
    """Write where the files of a workspace are, and how to take them."""
    items = [item for one in (result, *result.loops.values()) for item in one.history]
    # The workspace of a document names no iteration.
    same = [item for item in items if (item.files or {}).get("tree") == workspace.get("tree")]
    failing = "; the check does not pass on it" if same and same[-1].passed is False else ""
    if branch := texts.one_line(text_of(workspace.get("branch", ""))):
        output.write(("branch: ", "dim"), f"{branch} (git merge {branch}){failing}")
    if patch := texts.one_line(text_of(workspace.get("patch", ""))):
        output.write(("patch: ", "dim"), f"{patch} (git apply {patch}){failing}")
    if "applied" in workspace:
        count = workspace["applied"]
        output.write(("applied: ", "dim"), f"{texts.plural(count, 'file')} of yours changed")
    folder = Path(text_of(workspace.get("folder", "")))
    # The files of `here` are in place already.
    if not (branch or patch or "applied" in workspace) and folder.parent.parent.name == TREES:
        output.write(("files: ", "dim"), texts.one_line(str(folder)), failing)
        # A person may have deleted the store.
        with contextlib.suppress(LoopwrightError):
            if GitStore(folder.parents[2]).tree_of(workspace["base"]) == workspace["tree"]:
                output.write("no file differs from the beginning")
                return
        words = ("diff", "apply", *(["branch"] if WorkspaceSource.of(Path.cwd()).git else []))
        commands = [workspace_line(word, result.run_id, folder) for word in words]
        output.write(("take them:", "dim"), *(f"\n  {command}" for command in commands))


def _raising(result: Result) -> tuple[str, ...]:
    """Return the option that raises the limit that ended a run, with twice its figure; () if none does."""
    figures = [float(figure) for figure in _FIGURE.findall(result.detail)]
    if result.reason is Reason.BUDGET and (unit := unit_of(result.detail)):
        name = next(name for name, raised in UNITS.items() if raised == unit)
        new = 2 * max(*figures, getattr(result.usage, unit, 0.0))
        return f"--{name.replace('_', '-')}", amount(new if unit == "usd" else int(new))
    # Of several loops at a limit, one that is not in the sentence may be raised.
    used = max(1, *figures, *(one.iterations for one in (result, *result.loops.values())))
    if result.reason in (Reason.MAX_ITERATIONS, Reason.PHASE_LIMIT) and used < CEILING:
        return "--max-iterations", str(min(2 * int(used), CEILING))
    return ()


def report_questions(questions: Sequence[Question], output: Output, shown: str = "") -> None:
    """Write a line per open question, with its path; `shown` is a detail that stands above."""
    for question in questions:
        detail = "" if question.detail == shown else f": {texts.one_line(question.detail)}"
        output.write((f"waiting at {texts.one_line(question.path)}", "bold"), detail, wrap=True)


def report_continuation(info: RunInfo, output: Output, url: str, *, lead: str = "") -> None:
    """Write how an interrupted run, or a suspended one without a question, continues."""
    if not is_for_workers(info, url):
        output.write((f"{lead}resume: ", "dim"), resume_line(info, url))
    elif lead or info.status == "interrupted" or info.wake_at:
        output.write(
            (f"{lead}a worker continues it; watch: ", "dim"),
            command_line("watch", info.run_id, url),
        )
    else:
        again = command_line("submit", "", url, "--again", info.run_id)
        output.write(("start it again: ", "dim"), again)


def report_interruption(
    result: Result | None, output: Output, url: str, *, cause: str, had_entries: bool = True
) -> None:
    """Write the recorded part of a run that `cause` ended, and how to resume it."""
    if result is None and had_entries:
        output.note(f"stopped by {cause}; {shown_url(url)} no longer holds the run")
    elif result is None:
        output.note(f"stopped by {cause} before anything was recorded")
    else:
        if output.as_json:
            output.write_json(result_json(result))
        output.write((ending_text(result, "interrupted"), "bold yellow"), wrap=True)
        output.note(
            f"recorded results are kept; resume: {command_line('resume', result.run_id, url)}"
        )


def report_output(value: Json, output: Output, questions: Sequence[Question] = ()) -> None:
    """Write the output of a run, or the one that a question is about.

    A terminal gets SHOWN_LINES lines, wrapped at words; a pipe gets the text unchanged. Empty text is omitted.
    """
    title = "output:"
    waiting = [question.request["output"] for question in questions if "output" in question.request]
    if waiting:
        value, title = waiting[0], "output to review:"
    if value is None:
        output.write(("output: null", "dim"))
        return
    text = text_of(value)
    if not text.strip():
        if waiting:
            output.write((f"{title} empty text", "dim"))
        return
    if not output.terminal:
        output.write(title)
        output.write(text)
        return
    # Tabs have no fixed width, so they cannot be wrapped.
    lines = output.wrapped(texts.clean(text).expandtabs(4), output.width - 2)
    output.write((title, "dim"))
    for line in lines[:SHOWN_LINES]:
        output.write("  " + line)
    if len(lines) > SHOWN_LINES:
        left = texts.plural(len(lines) - SHOWN_LINES, "more line")
        output.write((f"  {output.signs.more} {left}; show --output prints all", "dim"))


def place_of(failure: Failure) -> str:
    """Return the file, the line and the function in which the user's code failed, or ""."""
    frame = last_frame(failure.traceback)
    if frame is None:
        return ""
    file, here = Path(frame.file), Path.cwd()
    # Editors and terminals open a relative path by a click.
    shown = file.relative_to(here) if file.is_relative_to(here) else file
    return f"{shown}, line {frame.line}, in {frame.function}"


def report_failure(result: Result, output: Output, command: str) -> None:
    """Write where the user's code failed, and the command that shows the traceback.

    The traceback itself is written without such a command, and under LOOPWRIGHT_DEBUG.
    """
    failure = result.error
    if failure is None or not failure.traceback:
        return
    if not command or os.environ.get(DEBUG):
        output.write(texts.clean(failure.traceback.rstrip()))
        return
    error = texts.one_line(failure.traceback.rstrip().rpartition("\n")[2])
    if place := place_of(failure):
        error = f"{texts.one_line(place)}: {error}"
    output.write(("failed at: ", "dim"), error, wrap=True)
    output.write(("traceback: ", "dim"), command)


def show_tracebacks(
    info: RunInfo, result: Result, entries: Sequence[Entry], output: Output
) -> None:
    """Write the traceback of each failure in a run, equal ones once."""
    by_traceback: dict[str, tuple[Failure, list[str]]] = {}
    failures = [failure for entry in surviving(entries) for failure in _failures_of(entry)]
    for failure in [*failures, *([result.error] if result.error is not None else [])]:
        if failure.traceback:
            _, paths = by_traceback.setdefault(failure.traceback, (failure, []))
            if failure.path not in paths:
                paths.append(failure.path)
    if output.as_json:
        rows = [{**failure.to_json(), "paths": paths} for failure, paths in by_traceback.values()]
        output.write_json({"run_id": info.run_id, "failures": rows})
        return
    if not by_traceback:
        output.write(f"{info.run_id}: no function of yours failed in this run")
    for failure, paths in by_traceback.values():
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        output.write((f"{texts.one_line(paths[0])}{more}:", "bold"))
        output.write(texts.clean(failure.traceback.rstrip()))


def _failures_of(entry: Entry) -> list[Failure]:
    if entry.kind != "finished":
        return []
    if entry.error is not None:
        return [entry.error]
    error: Json = entry.value.get("error") if isinstance(entry.value, dict) else None
    if not isinstance(error, dict) or not isinstance(error.get("traceback"), str):
        return []
    return [  # of a tool call, which hands its error to the model as a value
        Failure(
            "",
            str(error.get("kind")),
            str(error.get("message")),
            entry.path,
            exception=str(error.get("exception", "")),
            traceback=error["traceback"],
        )
    ]
