"""`show`: what a run did and why it ended; one iteration of it, two compared, its timeline.

Which loop and which iteration of a recorded run is meant.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from ...errors import ConfigurationError, listed, nearest
from ...journal import Entry, RunInfo, surviving
from ...journal.questions import open_questions
from ...journal.replay import RecordedRun
from ...journal.views import step_outcomes
from ...records import Iteration, Reason
from ...records.codec import Json, text_of
from .. import formatting as texts
from ..journals import DEFAULT, again, reading, shown_url
from ..progress import Ending, IterationRow, Notice, Progress, depth_of, item_at
from ..run_summary import (
    ended,
    items_of_lists,
    on_record,
    recorded,
    recorded_json,
    rounds_of,
)  # fmt: skip
from .executions import tell_agents
from .failures import show_tracebacks, tell_failure
from .live import ColumnWidths, ending_line, ending_text, note_line, row_line, step_line
from .options import AsJson, JournalUrl, RunName
from .output import Output, Part
from .result import tell_output, tell_questions
from .runs import STYLES

__all__ = ["iteration_of", "loop_of", "other_loops", "show"]


def loop_of(info: RunInfo, rounds: Mapping[str, Sequence[Iteration]], wanted: str) -> str:
    """Return the path of the loop that `wanted` names by path or name; the outermost by default.

    Of several loops of that name the latest is meant.

    Raises:
        ConfigurationError: naming the nearest loop.
    """
    if not rounds:
        raise ConfigurationError(f"{info.run_id}: no iteration is recorded in it")
    if not wanted:
        return min(rounds, key=depth_of)
    found = [path for path in rounds if wanted == path or wanted == path.rsplit("/", 1)[-1]]
    if not found:
        names = {path.rsplit("/", 1)[-1] for path in rounds}
        hint = nearest(wanted, {*names, *rounds}) or listed(wanted, sorted(names), lead="there are")
        raise ConfigurationError(f"--loop: there is no loop {wanted!r} in {info.run_id}{hint}")
    return found[-1]


def other_loops(rounds: Mapping[str, Sequence[Iteration]], path: str, wanted: str) -> str:
    """Return how to ask for another loop than the one at `path`, where nobody named one and there are several."""
    names = sorted({one.rsplit("/", 1)[-1] for one in rounds if one != path})
    return f"--loop {' or '.join(names[:5])}" if names and not wanted else ""


def iteration_of(path: str, items: Sequence[Iteration], number: int, others: str = "") -> Iteration:
    """Return an iteration of a loop by its number, from 1; `others` is how to ask for another loop.

    Raises:
        ConfigurationError: saying how many there are.
    """
    if not 1 <= number <= len(items):
        hint = f"; for another loop give {others}" if others else ""
        raise ConfigurationError(f"{path} has iterations 1 to {len(items)}, not {number}{hint}")
    return items[number - 1]


Round = Annotated[
    int | None, typer.Option("--iteration", metavar="N", help="All of one iteration.")
]
ScoreIndex = Annotated[
    tuple[int, int] | None,
    typer.Option("--diff", metavar="I J", help="How the output changed between two iterations."),
]
LoopName = Annotated[
    str, typer.Option("--loop", metavar="NAME", help="Of this loop; the outermost by default.")
]
Timeline = Annotated[bool, typer.Option("--timeline", help="Every effect, in order.")]
Lifecycle = Annotated[bool, typer.Option("--lifecycle", help="The states that it went through.")]
Tracebacks = Annotated[
    bool, typer.Option("--traceback", help="The tracebacks of your functions that failed.")
]
OutputOnly = Annotated[bool, typer.Option("--output", help="The output alone, whole and as it is.")]


def show(
    name: RunName,
    journal: JournalUrl = DEFAULT,
    iteration: Round = None,
    diff: ScoreIndex = None,
    loop: LoopName = "",
    timeline: Timeline = False,
    lifecycle: Lifecycle = False,
    traceback: Tracebacks = False,
    only_output: OutputOnly = False,
    as_json: AsJson = False,
) -> int:
    """Show what a run is, why it ended, its scores and its iterations."""
    asked = [iteration is not None, diff is not None, timeline, lifecycle, traceback, only_output]
    if sum(asked) > 1:
        raise ConfigurationError(
            "give one of --iteration, --diff, --timeline, --lifecycle, --traceback and --output"
        )
    info, entries = reading(journal, lambda store: on_record(store, name))
    with Output(as_json=as_json) as output:
        if iteration is not None:
            _iteration(info, entries, loop, iteration, output)
        elif diff is not None:
            _diff(info, entries, loop, diff, output)
        elif timeline:
            _timeline(info, entries, output)
        elif lifecycle:
            _lifecycle(info, entries, output)
        elif traceback:
            show_tracebacks(info, recorded(info, entries), entries, output)
        elif as_json:
            output.give(recorded_json(info, entries))
        elif only_output:
            output.put(text_of(recorded(info, entries).output))
        else:
            _overview(info, entries, loop, journal, output)
    return 0


def _overview(info: RunInfo, entries: list[Entry], loop: str, url: str, output: Output) -> None:
    rounds = rounds_of(entries)
    path = loop_of(info, rounds, loop) if rounds or loop else ""
    result = recorded(info, entries)
    status = "" if ended(entries) or info.status == result.status.value else info.status
    output.say(
        (texts.one_line(info.name), "bold"),
        f"  run {info.run_id}, began {texts.when(info.created)}",
    )
    origin = info.source.get("file") or info.source.get("python")
    if origin:
        output.say((f"from {origin}", "dim"))
    output.say((ending_text(result, status), STYLES.get(info.status, "")), wrap=True)
    tell_failure(result, output, again("show", info.run_id, url, "--traceback"))
    given = texts.one_line(text_of(info.input))
    if given:
        output.say(("input: ", "dim"), texts.fit(given, output.width - 7, output.signs))
    if not loop:
        _steps(info, entries, output)
    if path:
        _scores(path, rounds[path], output)
        _rows(entries, path if loop else "", output)
    tell_agents(info, entries, output)
    questions = open_questions(surviving(entries))
    tell_output(result.output, output, questions)
    output.say((f"kept in {shown_url(url)}", "dim"))
    if path:
        last = str(len(rounds[path]))
        options = ["--loop", loop] if loop else []
        command = again("show", info.run_id, url, *options, "--iteration", last)
        output.say(("look closer: ", "dim"), command, ("; or --diff I J, --timeline", "dim"))
    if questions:
        tell_questions(questions, output, result.detail)
        output.say(("answer: ", "dim"), again("approve", info.run_id, url))
    elif info.status in ("interrupted", "suspended"):
        answered = info.status == "suspended" and result.reason is Reason.APPROVAL
        how = "answered, to be resumed: " if answered else "go on: "
        output.say((how, "dim"), again("resume", info.run_id, url))


def _steps(info: RunInfo, entries: list[Entry], output: Output) -> None:
    """Write a line per step of the workflow, unless the rows of its one loop tell all."""
    found = step_outcomes(info, entries)
    if len(found) == 1 and rounds_of(entries):
        return
    columns = ColumnWidths.within(output.width - 1)
    for one in found:
        output.say(*step_line(one, columns, output.signs))


def _scores(path: str, items: list[Iteration], output: Output) -> None:
    scores = [item.score for item in items if item.eligible and item.score is not None]
    if len(scores) > 1:
        name = path.rsplit("/", 1)[-1]
        line = texts.sparkline(scores, output.width - texts.width(name) - 24, output.signs)
        ends = f"{texts.score(scores[0])} {output.signs.to} {texts.score(scores[-1])}"
        output.say((f"{name} scores ", "dim"), (line, "cyan"), f" {ends}")


def _rows(entries: list[Entry], only: str, output: Output) -> None:
    columns = ColumnWidths.within(output.width - 1)
    for item in Progress().recall(entries):
        if only and item.path != only:
            continue
        if isinstance(item, IterationRow):
            output.say(*row_line(item, columns, output.signs))
        elif isinstance(item, Ending) and not only:
            output.say((ending_line(item), "dim"))
        elif isinstance(item, Notice) and not only:
            output.say((note_line(item, output.signs), "yellow"), wrap=True)


def _iteration(info: RunInfo, entries: list[Entry], loop: str, number: int, output: Output) -> None:
    rounds = rounds_of(entries)
    path = loop_of(info, rounds, loop)
    item = iteration_of(path, rounds[path], number, other_loops(rounds, path, loop))
    inside = [e for e in surviving(entries) if e.path.startswith(f"{path}/{number}/")]
    if output.as_json:
        output.give({"run_id": info.run_id, "loop": path, **item.to_json()})
        return
    named = item_at(f"{path}/{number}", items_of_lists(entries))
    output.say(
        *row_line(
            IterationRow(path, item, named), ColumnWidths.within(output.width - 1), output.signs
        )
    )
    _part("input", text_of(item.input), output)
    _part("output", text_of(item.output), output)
    _part("error" if item.error else "feedback", item.feedback, output)
    if item.error is not None:
        _part("traceback", item.error.traceback.rstrip(), output)
    for criterion in item.evaluation.criteria if item.evaluation else ():
        sign = output.signs.passed if criterion.passed else output.signs.not_yet
        output.say(f"  {sign} {texts.one_line(f'{criterion.name}: {criterion.gap}').rstrip(': ')}")
    for improvement in item.evaluation.improvements if item.evaluation else ():
        output.say(f"  to do: {texts.one_line(improvement)}")
    _effects(inside, output)


def _part(title: str, text: str, output: Output) -> None:
    if text:
        output.say((f"{title}:", "bold"))
        output.say(text)


def _diff(
    info: RunInfo, entries: list[Entry], loop: str, numbers: tuple[int, int], output: Output
) -> None:
    rounds = rounds_of(entries)
    path = loop_of(info, rounds, loop)
    others = other_loops(rounds, path, loop)
    one, two = (iteration_of(path, rounds[path], number, others) for number in numbers)
    names = [f"iteration {i.number} ({texts.score(i.score) or 'no score'})" for i in (one, two)]
    before, after = (_lines(item.output) for item in (one, two))
    lines = list(difflib.unified_diff(before, after, names[0], names[1], lineterm=""))
    if output.as_json:
        text = "\n".join(lines)
        output.give({"run_id": info.run_id, "loop": path, "iterations": [*numbers], "diff": text})
        return
    if not lines:
        output.say(f"the outputs of iterations {numbers[0]} and {numbers[1]} are the same")
    styles = {"+": "green", "-": "red", "@": "cyan"}
    for line in lines:
        output.say((line, styles.get(line[:1], "")))
    if others:
        output.say((f"these are of {path}; for another loop give {others}", "dim"))


def _lines(output: Json) -> list[str]:
    """Return an output as lines to compare: an object or a list with a line for each of its parts."""
    if isinstance(output, dict | list):
        return json.dumps(output, indent=2, ensure_ascii=False, sort_keys=True).splitlines()
    return text_of(output).splitlines()


def _timeline(info: RunInfo, entries: list[Entry], output: Output) -> None:
    if output.as_json:
        kept = [entry.to_json() for entry in surviving(entries)]
        output.give({"run_id": info.run_id, "timeline": kept})
        return
    _effects(surviving(entries), output)


def _lifecycle(info: RunInfo, entries: list[Entry], output: Output) -> None:
    from ...agents.lifecycle import lifecycle_of

    found = lifecycle_of(entries)
    if output.as_json:
        moments = [moment.to_json() for moment in found.moments]
        output.give({"run_id": info.run_id, "state": found.state.value, "moments": moments})
        return
    for moment in found.moments:
        output.say(
            (f"{moment.at:9.2f} s  ", "dim"), f"{moment.move.event:19} ",
            (f"{moment.move.after:13} ", "bold"),
            texts.one_line(moment.path), ("  " + texts.one_line(moment.detail), "dim"),
        )  # fmt: skip


def _effects(entries: list[Entry], output: Output) -> None:
    """Write a line per effect: when it began, how long it took, what it cost, where it is."""
    doubts = RecordedRun(entries).doubts
    for entry in entries:
        doubt = entry.kind == "started" and doubts.get(entry.path) is entry
        if entry.kind not in ("finished", "cut") and not doubt:
            continue
        told, style = _outcome(entry)
        line: list[Part] = [
            (f"{entry.at:9.2f} s ", "dim"),
            f"{texts.duration(entry.seconds) if not doubt else 'no end':>9} ",
            (f"{texts.cost(entry.usage or entry.reserved):>9}  ", "dim"),
            (path := texts.one_line(entry.path)),
        ]
        room = output.width - 35 - texts.width(path)
        if told and room > 10:
            line += ["  ", (texts.fit(texts.one_line(told), room, output.signs), style)]
        output.say(*line)


def _outcome(entry: Entry) -> tuple[str, str]:
    if entry.error is not None:
        return f"failed: {entry.error.message}", "red"
    if entry.kind == "cut":
        return "cut short", "yellow"
    if entry.kind == "started":
        return "in flight when its process ended, or now", "yellow"
    value: Json = entry.value
    if isinstance(value, dict) and {"score", "passed"} <= value.keys():  # an evaluation
        return f"{texts.score(value['score'])} {value.get('feedback', '')}", "dim"
    return text_of(value), "dim"
