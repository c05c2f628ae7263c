"""`show`: one recorded run.

It has the status, scores and iterations of a run on one screen; one iteration; a diff of two; the trace.
"""

from __future__ import annotations

import difflib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ... import agents
from ...errors import ConfigurationError, listed, nearest
from ...journal import Entry, Journal, RunInfo, surviving
from ...journal.protocol import shown_url
from ...journal.questions import open_questions
from ...journal.replay import RecordedRun, recorded_result, state_of
from ...journal.views import directly, step_outcomes
from ...progress import depth_of
from ...records import Iteration, Reason, Result, Status
from ...records.codec import Json, text_of
from .. import formatting as texts
from ..journals import (
    DEFAULT,
    command_line,
    files_line,
    folder_of,
    reading,
    resume_line,
)
from ..rows import (
    PAGE,
    Ending,
    Progress,
    Row,
    Shown,
    counts_of,
    counts_text,
    item_at,
    scores_of,
    status_of,
    verdicts_of,
)
from ..run_files import (
    UNRECORDED,
    files_text,
    run_files,
    turned_tests,
    unrecorded_files,
    unused_files,
)
from ..run_summary import (
    Returns,
    coding_of,
    ended,
    executions_in,
    in_doubt,
    is_evaluation,
    items_of_lists,
    iterations_of,
    on_record,
    origin_of,
    recorded_json,
    returns_of,
    sessions_in,
    submitted_json,
    waiting_text,
    workspaces_of,
)
from ..trace import TraceNode, answer_of, duel_of, trace_of, walk
from .live import (
    ColumnWidths,
    continuation_line,
    ending_line,
    ending_text,
    indented,
    note_line,
    report_coding,
    report_continuation,
    report_failure,
    report_handed_over,
    report_output,
    report_questions,
    report_wait,
    row_line,
    show_tracebacks,
    step_line,
)
from .options import AsJson, JournalUrl, LoopName, RunName
from .output import STYLES, Line, Output, Part
from .screen import Block, beginning, chosen, write_screen

if TYPE_CHECKING:
    from ...agents.lifecycle import LifecycleListener
    from ...datasets.results import EvalResult

IterationsByLoop = Mapping[str, Sequence[Iteration]]


def loop_of(info: RunInfo, loops: IterationsByLoop, wanted: str) -> str:
    """Return the path of a loop by its path or name; by default, the outermost loop.

    Of several loops with the same name, the latest is returned.

    Raises:
        ConfigurationError: naming the nearest loop.
    """
    if not loops:
        raise ConfigurationError(f"{info.run_id} has no recorded iteration")
    if not wanted:
        # The first of several outermost loops, in the order of their first iterations.
        return min(loops, key=depth_of)
    paths = [path for path in loops if wanted in (path, path.rsplit("/", 1)[-1])]
    if not paths:
        names = {path.rsplit("/", 1)[-1] for path in loops}
        hint = nearest(wanted, {*names, *loops}) or listed(wanted, sorted(names), lead="there are")
        raise ConfigurationError(f"--loop: there is no loop {wanted!r} in {info.run_id}{hint}")
    return paths[-1]


def other_loops(loops: IterationsByLoop, path: str, wanted: str) -> str:
    """Return the options for other loops than the default one at `path`, or ""."""
    names = sorted({one.rsplit("/", 1)[-1] for one in loops if one != path})
    return f"--loop {' or '.join(names[:5])}" if names and not wanted else ""


def iteration_of(path: str, items: Sequence[Iteration], number: int, others: str = "") -> Iteration:
    """Return an iteration of a loop by its number, from 1; `others` are the options for other loops.

    Raises:
        ConfigurationError: with the number of iterations.
    """
    # An item of a list that did not run has no iteration.
    found = next((item for item in items if item.number == number), None)
    if found is None:
        hint = f"; for another loop, use {others}" if others else ""
        raise ConfigurationError(
            f"{path} has iterations 1 to {items[-1].number}, not {number}{hint}"
        )
    return found


def show(
    name: RunName,
    journal: JournalUrl = DEFAULT,
    iteration: Annotated[
        int | None, typer.Option("--iteration", metavar="N", help="Show one iteration in full.")
    ] = None,
    diff: Annotated[
        tuple[int, int] | None,
        typer.Option(
            "--diff",
            metavar="I J",
            help="Compare outputs and files of two iterations; 0 is the start.",
        ),
    ] = None,
    loop: LoopName = "",
    trace: Annotated[
        bool,
        typer.Option(
            "--trace", help="Show what the run did, as a tree: calls, tools, commands, judges."
        ),
    ] = False,
    failed: Annotated[
        bool, typer.Option("--failed", help="What failed: show it, with the reason.")
    ] = False,
    item: Annotated[
        int | None,
        typer.Option("--item", metavar="N", min=1, help="One item of a list: show it in full."),
    ] = None,
    first: Annotated[
        int | None,
        typer.Option("--first", metavar="N", min=1, help=f"Show {PAGE} rows, from this one on."),
    ] = None,
    lifecycle: Annotated[
        bool, typer.Option("--lifecycle", help="Show the states of the run in order.")
    ] = False,
    traceback: Annotated[
        bool, typer.Option("--traceback", help="Show the tracebacks of failed functions.")
    ] = False,
    only_output: Annotated[
        bool, typer.Option("--output", help="Print only the output, complete and unchanged.")
    ] = False,
    files: Annotated[
        bool, typer.Option("--files", help="List the files that each iteration changed.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Show a run on one screen: its status, the reason for its end, its scores and its iterations.

    What does not fit is counted, with the command that shows it.

    Examples:
        loopwright show last
        loopwright show last --iteration 2
        loopwright show last --diff 1 2
    """
    views = [
        iteration is not None,
        item is not None,
        diff is not None,
        trace,
        failed or first is not None,
        lifecycle,
        traceback,
        only_output,
        files,
    ]
    if sum(views) > 1:
        raise ConfigurationError(
            "give only one of --iteration, --item, --diff, --trace, --failed, --lifecycle, --traceback, "
            "--output and --files"
        )

    async def read(store: Journal) -> tuple[RunInfo, list[Entry], Returns, Path | None]:
        info, entries = await on_record(store, name)
        return info, entries, await returns_of(store, [info]), folder_of(store)

    info, entries, returns, folder = reading(journal, read)
    scored = None
    if is_evaluation(entries):
        from . import evaluation  # loads data sets, which other runs need not

        scored = evaluation.evaluation_of(info, journal)
    with Output(as_json=as_json) as output:
        if iteration is not None:
            _iteration(info, entries, loop, iteration, output)
        elif diff is not None:
            _diff(info, entries, loop, diff, folder, output)
        elif files:
            _files(info, entries, loop, folder, output)
        elif item is not None:
            _iteration(info, entries, list_of(info, entries, loop), item, output)
        elif trace:
            _trace(info, trace_of(surviving(entries), agent=_agent(info)), output)
        elif scored is not None and (failed or first is not None):
            evaluation.write_cases(info, entries, first or 1, journal, output, failed=failed)
        elif failed or first is not None:
            _page(info, entries, loop, first or 1, journal, output, failed=failed)
        elif lifecycle:
            _lifecycle(info, entries, output)
        elif traceback:
            show_tracebacks(info, recorded_result(info, entries), entries, output)
        elif as_json:
            data = {**recorded_json(info, entries), **submitted_json(info, returns)}
            output.write_json(data if scored is None else {**data, "evaluation": scored.to_json()})
        elif only_output:
            output.write_result(text_of(recorded_result(info, entries).output))
        else:
            detail = waiting_text(info, returns)
            _overview(
                info, entries, loop, journal, output, detail=detail, folder=folder, scored=scored
            )
    return 0


def _overview(
    info: RunInfo,
    entries: list[Entry],
    loop: str,
    url: str,
    output: Output,
    *,
    detail: str,
    folder: Path | None,
    scored: EvalResult | None,
) -> None:
    """Write the facts of a run; `detail` is why it waits for a worker, `folder` that of its journal.

    `scored` is its result, if it is an evaluation of a data set.
    """
    loops = iterations_of(entries)
    path = loop_of(info, loops, loop) if loops or loop else ""
    result = recorded_result(info, entries, detail)
    status = "" if ended(entries) or info.status == result.status.value else state_of(info, entries)
    with output.holding() as head:
        started = texts.ago(info.created) if output.terminal else texts.when(info.created)
        rest = f"  run {info.run_id}, started {started}"
        name = texts.one_line(info.name)
        if output.terminal:
            name = texts.fit(name, max(8, output.width - len(rest)), output.signs)
        output.write((name, "bold"), rest)
        if info.tags:
            tags = texts.one_line(" ".join(f"{key}={value}" for key, value in info.tags.items()))
            output.write(("tags: ", "dim"), tags, wrap=True)
        if origin := origin_of(info):
            output.write((f"from {origin}", "dim"))
        ending = ending_text(result, status, scripted=info.scripted)
        output.write((ending, STYLES.get(info.status, "")), wrap=True)
        report_failure(result, output, command_line("show", info.run_id, url, "--traceback"))
        if text := texts.value_line(info.input):
            output.write(("input: ", "dim"), texts.fit(text, output.width - 7, output.signs))
    outcomes = [] if loop else step_outcomes(info, entries)
    columns = ColumnWidths.within(output.width - 1)
    with output.holding() as steps:
        # A single step that is a loop would repeat the last row of the loop.
        for step in outcomes if scored is None and (len(outcomes) != 1 or not loops) else ():
            output.write(*step_line(step, columns, output.signs))
    with output.holding() as curve:
        if path:
            _scores(path, loops[path], output)
    with output.holding() as agents_lines:
        _agents(info, entries, output)
        coding = coding_of(info, entries)
        if coding is not None:
            report_coding(coding, output)
        for one in () if coding is not None else sessions_in(entries):
            name = texts.one_line(f"{one.agent} {one.session[:12]}".strip())
            output.write((f"session {name}: ", "dim"), one.text)
    with output.holding() as cases:
        if scored is not None:
            from .evaluation import write_evaluation, write_missed

            write_evaluation(scored, info, output)
            write_missed(entries, output)
    with output.holding() as written:
        questions = open_questions(surviving(entries))
        if scored is None or questions:
            report_output(result.output, output, questions, whole=True)
    with output.holding() as end:
        _end(info, entries, result, loop, path, loops, url, folder, output)

    def more(what: str, *words: str) -> Callable[[int], Line]:
        command = command_line("show", info.run_id, url, *words)
        return lambda count: (
            ((f"  {output.signs.more} {texts.plural(count, what)}: {command}", "dim"),),
            False,
        )

    write_screen(
        [
            Block(head),
            beginning(steps, more("more step", "--trace")),
            Block(curve),
            _entry_rows(info, entries, path if loop else "", url, output) if path else Block([]),
            beginning(cases, more("more case", "--failed")),
            beginning(agents_lines, more("more agent", "--json")),
            beginning(written, more("more line", "--output")),
            Block(end),
        ],
        output,
    )


def _end(
    info: RunInfo,
    entries: list[Entry],
    result: Result,
    loop: str,
    path: str,
    loops: IterationsByLoop,
    url: str,
    folder: Path | None,
    output: Output,
) -> None:
    """Write where the files are, the commands for details, and how the run continues."""
    for workspace in workspaces_of(result):
        report_handed_over(workspace, result, output)
    output.write((f"journal: {shown_url(url)}", "dim"))
    if path:
        failed = [one.number for one in loops[path] if status_of(one) == "failed"]
        number = str(failed[0] if failed else loops[path][-1].number)
        word = "--item" if path in items_of_lists(entries) else "--iteration"
        options = ["--loop", loop] if loop else []
        command = command_line("show", info.run_id, url, *options, word, number)
        output.write(("details: ", "dim"), command, ("; or --diff I J, --trace", "dim"))
    if problem := unused_files(info, entries, folder):
        output.note(f"files are not shown: {problem}")
    unrecorded = unrecorded_files(info, entries, folder)
    if kept := [state for one in unrecorded for state in one.states]:
        name = files_line("list", info.run_id, unrecorded[0].folder)
        output.write(
            (f"{texts.plural(len(kept), 'state')} of files without a record: ", "dim"), name
        )
    # Files that a dead process left in the middle of a step.
    folders = [one.folder for one in unrecorded if one.present]
    _continuation(info, entries, result, url, output, folders)


def _continuation(
    info: RunInfo,
    entries: list[Entry],
    result: Result,
    url: str,
    output: Output,
    folders: list[Path],
) -> None:
    """Write how the run continues: by an answer, after its files are put back, or by a resume."""
    if info.status in ("running", "interrupted"):  # the sentence of a suspended run says it
        replay = RecordedRun(surviving(entries))
        for path in replay.waiting.keys() - replay.woken.keys():
            wait = replay.waiting[path]
            output.write(texts.one_line(texts.wait_text(path, wait["for"], wait["due"])))
    if questions := open_questions(surviving(entries)):
        report_questions(questions, result, output, url)
    elif folders:
        names = ", ".join(map(str, folders))
        command = files_line("restore", info.run_id, folders[0])
        output.write((f"{UNRECORDED}: ", "yellow"), names, wrap=True)
        line = continuation_line(result, info, url) if ended(entries) else resume_line(info, url)
        also: tuple[Part, ...] = (("; or continue: ", "dim"), line) if line else ()
        output.write(("put the files back: ", "dim"), command, *also)
    elif info.status == "suspended" and result.reason is Reason.WAITING:
        report_wait(result, output, url)
    elif info.status in ("interrupted", "suspended"):
        answered = info.status == "suspended" and result.reason is Reason.APPROVAL
        lead, doubt = "answered; " if answered else "", () if answered else in_doubt(info, entries)
        report_continuation(info, output, url, lead=lead, doubt=doubt)
    elif line := continuation_line(result, info, url):
        output.write(("continue: ", "dim"), line)


def _scores(path: str, items: list[Iteration], output: Output) -> None:
    if any(item.accepted is not None for item in items):
        _values(path, items, output)
        return
    scores = scores_of(items)
    # A curve of one point says no more than its row.
    if len(scores) > 1:
        name = path.rsplit("/", 1)[-1]
        line = texts.sparkline(scores, output.width - texts.width(name) - 24, output.signs)
        ends = f"{texts.score(scores[0])} {output.signs.to} {texts.score(scores[-1])}"
        output.write((f"{name} scores ", "dim"), (line, "cyan"), f" {ends}")


def _values(path: str, items: list[Iteration], output: Output) -> None:
    """Write the objective as a curve between its worst and its best value."""
    measures = [item.objective for item in items if item.objective is not None]
    if len(measures) < 2:
        return
    ranks = [measure.rank for measure in measures]
    low, high = min(ranks), max(ranks)
    if low == high:
        return
    name = f"{path.rsplit('/', 1)[-1]} {texts.one_line(measures[0].name)}"
    curve = [(rank - low) / (high - low) for rank in ranks]
    ends = (
        f"{texts.one_line(measures[0].text)} {output.signs.to} {texts.one_line(measures[-1].text)}"
    )
    room = output.width - texts.width(name) - texts.width(ends) - 3
    line = texts.sparkline(curve, max(1, room), output.signs)
    output.write((f"{name} ", "dim"), (line, "cyan"), f" {ends}")


def _entry_rows(
    info: RunInfo, entries: list[Entry], only_loop: str, url: str, output: Output
) -> Block:
    """Return the rows of a run, of which those that matter most are shown if not all fit."""
    items = [
        item
        for item in Progress(info.source.get("bounds")).recall(entries)
        if not only_loop or (isinstance(item, Row) and item.path == only_loop)
    ]
    rows = [item for item in items if isinstance(item, Row)]

    def lines(shown: Sequence[Shown]) -> list[Line]:
        with output.holding() as held:
            for item in shown:
                _entry_row(item, output)
        return held

    counts, counted = _counted(rows, entries)

    def cut(room: int) -> list[Line]:
        # The ends of loops say what the reason of the run says.
        shown = chosen([i for i in items if not isinstance(i, Ending)], max(1, room - 2))
        left = len(rows) - sum(isinstance(item, Row) for item in shown)
        loop = ["--loop", only_loop] if only_loop else []
        command = command_line("show", info.run_id, url, *loop, "--first", "1")
        failed = "; or --failed" if "failed" in counts else ""
        more = f"  {output.signs.more} {texts.plural(left, 'more row')}: {command}{failed}"
        return [
            (((counted, "bold"),), False),
            *lines(shown),
            (((more, "dim"),), False),
        ]

    whole = lines(items)
    if "not run" in counts:
        whole.append((((counted, "bold"),), False))
    return Block(whole, cut)


def _counted(rows: Sequence[Row], entries: Sequence[Entry]) -> tuple[dict[str, int], str]:
    """Return the outermost rows by status, also in words, with the items that a list that has ended did not run."""
    outermost = min((row.depth for row in rows), default=0)
    own = [row for row in rows if row.depth == outermost]
    lists = items_of_lists(entries) if ended(entries) else {}
    paths = Counter(row.path for row in own)
    left = sum(len(lists[path]) - count for path, count in paths.items() if path in lists)
    counts = counts_of((row.iteration for row in own), left)
    return counts, counts_text(counts, "item" if own and own[-1].item else "iteration")


def _entry_row(item: Shown, output: Output) -> None:
    if isinstance(item, Row) and status_of(item.iteration) == "failed":
        # The reason gets the room of columns that say nothing of a failure.
        label = f"{indented(item)}  "
        named = f"{texts.fit(texts.one_line(item.item), 24, output.signs)}: " if item.item else ""
        room = output.width - 1 - texts.width(label) - 10
        text = texts.fit(named + item.summary, room, output.signs)
        output.write((label, "bold"), (f"{output.signs.failed} failed  ", "red"), (text, "red"))
    elif isinstance(item, Row):
        output.write(*row_line(item, ColumnWidths.within(output.width - 1), output.signs))
    elif isinstance(item, Ending):
        output.write((ending_line(item, output.signs), "dim"))
    else:
        output.write((note_line(item, output.signs), "yellow"), wrap=True)


def _page(
    info: RunInfo,
    entries: list[Entry],
    loop: str,
    first: int,
    url: str,
    output: Output,
    *,
    failed: bool,
) -> None:
    """Write some rows of a loop, or those of all loops that failed, with the failed steps."""
    loops = iterations_of(entries)
    path = loop_of(info, loops, loop) if loop or (loops and not failed) else ""
    every = [
        row
        for row in Progress(info.source.get("bounds")).recall(entries)
        if isinstance(row, Row) and (not path or row.path == path)
    ]
    counts, counted = _counted(every, entries)
    rows = [row for row in every if not failed or status_of(row.iteration) == "failed"]
    shown = rows[first - 1 : first - 1 + PAGE]
    steps = [s for s in step_outcomes(info, entries) if s.status is Status.FAILED] if failed else []
    left = max(0, len(rows) - (first - 1) - len(shown))
    if output.as_json:
        output.write_json(
            {
                "run_id": info.run_id, "counts": counts, "left": left,
                "rows": [{"path": f"{row.path}/{row.iteration.number}", **row.iteration.to_json()} for row in shown],
                "steps": [{"name": step.name, **step.to_json()} for step in steps],
            }
        )  # fmt: skip
        return
    if every:
        output.write((counted, "bold"))
    elif not steps:
        output.write(f"{info.run_id} has no recorded iteration")
    for step in steps:
        output.write(*step_line(step, ColumnWidths.within(output.width - 1), output.signs))
    for row in shown:
        _entry_row(row, output)
    if left:
        words = [*(["--failed"] if failed else []), *(["--loop", loop] if loop else [])]
        command = command_line("show", info.run_id, url, *words, "--first", str(first + PAGE))
        output.write((f"{texts.plural(left, 'more row')}: ", "dim"), command)


def list_of(info: RunInfo, entries: list[Entry], loop: str) -> str:
    """Return the path of a list by its path or name; by default, the outermost list."""
    lists = {
        path: items
        for path, items in iterations_of(entries).items()
        if path in items_of_lists(entries)
    }
    if not lists:
        raise ConfigurationError(f"--item: {info.run_id} has no list; use --iteration")
    return loop_of(info, lists, loop)


def _iteration(info: RunInfo, entries: list[Entry], loop: str, number: int, output: Output) -> None:
    loops = iterations_of(entries)
    path = loop_of(info, loops, loop)
    item = iteration_of(path, loops[path], number, other_loops(loops, path, loop))
    duel = duel_of(surviving(entries), f"{path}/{number}")
    if output.as_json:
        more = {"duel": duel} if duel else {}
        output.write_json({"run_id": info.run_id, "loop": path, **item.to_json(), **more})
        return
    row = Progress(info.source.get("bounds")).row(
        path, item, item_at(f"{path}/{number}", items_of_lists(entries))
    )
    # The feedback is below, in full, and nowhere else.
    judged = item.evaluation and replace(item.evaluation, feedback="")
    head = replace(row, iteration=replace(item, evaluation=judged))
    output.write(*row_line(head, ColumnWidths.within(output.width - 1), output.signs))
    _part("input", text_of(item.input), output)
    _part("output", text_of(item.output), output)
    _part("error" if item.error else "feedback", item.feedback, output)
    if item.error is not None:
        _part("traceback", item.error.traceback.rstrip(), output)
    for sentence, passed in verdicts_of(item.evaluation):
        sign = output.signs.undecided if passed is None else output.signs.not_yet
        output.write(f"  {output.signs.passed if passed else sign} {texts.one_line(sentence)}")
    for criterion in item.evaluation.criteria if item.evaluation else ():
        sign = output.signs.passed if criterion.passed else output.signs.not_yet
        gap = "" if criterion.gap in item.feedback else criterion.gap
        output.write(f"  {sign} {texts.one_line(f'{criterion.name}: {gap}').rstrip(': ')}")
    for improvement in item.evaluation.improvements if item.evaluation else ():
        if improvement not in item.feedback:
            output.write(f"  to do: {texts.one_line(improvement)}")
    before = next((one for one in loops[path] if one.number == number - 1), None)
    green, red = turned_tests(before, item, directly(surviving(entries), path, 0))
    for title, names in (("turned green", green), ("turned red", red)):
        if names:
            output.write(
                (f"tests that {title}: ", "dim"), texts.one_line(", ".join(names)), wrap=True
            )
    for answer in duel:
        output.write(("duel: ", "dim"), answer_of(answer), wrap=True)
    nodes = trace_of(surviving(entries), f"{path}/{number}", agent=_agent(info))
    for node in nodes:
        node.text = node.text.removesuffix(row.feedback).rstrip()
    _write_nodes(nodes, output)


def _part(title: str, text: str, output: Output) -> None:
    if text:
        output.write((f"{title}:", "bold"))
        output.write(text)


def _diff(
    info: RunInfo,
    entries: list[Entry],
    loop: str,
    numbers: tuple[int, int],
    folder: Path | None,
    output: Output,
) -> None:
    loops = iterations_of(entries)
    path = loop_of(info, loops, loop)
    others = other_loops(loops, path, loop)
    kept = run_files(info.run_id, entries, path, folder)
    if numbers[0] == 0 and kept is not None:
        two = iteration_of(path, loops[path], numbers[1], others)
        # The start has files and no output.
        patch = kept.diff(None, two)
        if output.as_json:
            output.write_json(
                {"run_id": info.run_id, "loop": path, "iterations": [*numbers], "files": patch}
            )
        else:
            output.write(patch.rstrip("\n") or "no file differs")
        return
    one, two = (iteration_of(path, loops[path], number, others) for number in numbers)
    names = [f"iteration {i.number} ({texts.rated(i) or 'no score'})" for i in (one, two)]
    before, after = (_lines(item.output) for item in (one, two))
    lines = list(difflib.unified_diff(before, after, names[0], names[1], lineterm=""))
    patch = "" if kept is None or one.files is None else kept.diff(one, two)
    if output.as_json:
        text = "\n".join(lines)
        shown: Json = {"run_id": info.run_id, "loop": path, "iterations": [*numbers], "diff": text}
        output.write_json(shown if kept is None else {**shown, "files": patch})
        return
    if not lines:
        output.write(f"the outputs of iterations {numbers[0]} and {numbers[1]} are the same")
    styles = {"+": "green", "-": "red", "@": "cyan"}
    for line in [*lines, *patch.splitlines()]:
        output.write((line, styles.get(line[:1], "")))
    if others:
        output.write((f"loop: {path}; for another loop, use {others}", "dim"))


def _files(
    info: RunInfo, entries: list[Entry], loop: str, folder: Path | None, output: Output
) -> None:
    """Write the files that each iteration of a loop changed."""
    loops = iterations_of(entries)
    path = loop_of(info, loops, loop)
    kept = run_files(info.run_id, entries, path, folder)
    if kept is None:
        raise ConfigurationError(f"--files: {path} has no workspace")
    changes = {item.number: kept.changes(item) for item in loops[path] if item.files is not None}
    if output.as_json:
        output.write_json({"run_id": info.run_id, "loop": path, "files": changes})
        return
    for item in loops[path]:
        output.write((f"{item.number}  {files_text(item)}", "bold"))
        for name, (added, removed) in changes.get(item.number, {}).items():
            output.write(f"   {texts.one_line(name)}  +{added} -{removed}")


def _lines(output: Json) -> list[str]:
    """Return an output as lines to compare; an object or a list has one line for each part."""
    if isinstance(output, dict | list):
        # Sorted, because a model that writes the same members in another order has changed nothing.
        return json.dumps(output, indent=2, ensure_ascii=False, sort_keys=True).splitlines()
    return text_of(output).splitlines()


def _lifecycle(info: RunInfo, entries: list[Entry], output: Output) -> None:
    lifecycle: LifecycleListener = agents.lifecycle_of(entries)
    if output.as_json:
        moments = [moment.to_json() for moment in lifecycle.moments]
        output.write_json(
            {"run_id": info.run_id, "state": lifecycle.state.value, "moments": moments}
        )
        return
    for moment in lifecycle.moments:
        output.write(
            (f"{moment.at:9.2f} s  ", "dim"), f"{moment.move.event:19} ",
            (f"{moment.move.after:13} ", "bold"),
            texts.one_line(moment.path), ("  " + texts.one_line(moment.detail), "dim"),
        )  # fmt: skip


def _agent(info: RunInfo) -> str:
    return text_of(info.source.get("agent") or "")


def _trace(info: RunInfo, nodes: Sequence[TraceNode], output: Output) -> None:
    if output.as_json:
        output.write_json({"run_id": info.run_id, "trace": [node.to_json() for node in nodes]})
    else:
        _write_nodes(nodes, output)


_STYLES = {"failed": "red", "satisfied": "green", "passed": "green", "chosen": "green"}


def _write_nodes(nodes: Sequence[TraceNode], output: Output) -> None:
    """Write a line per node, indented by its depth: kind, name, what it did, status, duration, price."""
    for depth, node in walk(nodes):
        status = "" if node.status == "done" else node.status
        style = _STYLES.get(node.status, "yellow")
        head = f"{'  ' * depth}{node.kind} "
        tail = ", ".join(filter(None, [status, node.facts]))
        name = texts.one_line(node.name)
        room = max(10, output.width - texts.width(head + name + tail) - 4)
        text = texts.fit(node.text, room, output.signs)
        line: list[Part] = [(head, "dim"), (name, "bold"), f"  {text}" if text else ""]
        if status:
            line += ["  ", (status, style)]
        output.write(*line, (f"  {node.facts}" if node.facts else "", "dim"))


def _agents(info: RunInfo, entries: Sequence[Entry], output: Output) -> None:
    """Write a line for each agent: its progress and the reason for its end."""
    lines = []
    for entry in surviving(entries):
        if entry.kind == "reported" and entry.value.get("kind") == "phased":
            report = entry.value
            counts = ", ".join(f"{phase} {n}" for phase, n in report["phase_iterations"].items())
            cap, total = report["max_iterations_effective"], report["phase_sum"]
            end = f"ended in {report['phase']} by {report['ended_by']}"
            used = f"{report['total_iterations']} of at most {cap} (the phases: {total})"
            lines.append((entry.path, f"{counts}; {used}; {end}"))
    for one in executions_in(info, entries):
        text = f"{one['status']}, {texts.plural(one['interaction_count'], 'interaction')}"
        if one["last_interaction_at"] is not None:
            text += f", the last at {texts.when(one['last_interaction_at'])}"
        if one["limit_reached"]:
            text += "; the limit was reached without a final answer"
        lines.append((str(one["path"]), f"{text}; {one['error']}" if one["error"] else text))
    for path, text in lines:
        name = path.rpartition("/")[2]
        output.write(("agent ", "dim"), name, f": {texts.one_line(text)}", wrap=True)
