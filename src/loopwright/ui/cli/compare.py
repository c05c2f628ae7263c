"""`compare`: recorded runs side by side."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated

import typer

from ...insight.comparing import ComparedRun, Comparison
from ...journal import Entry, Journal, RunInfo
from ...records.codec import text_of
from ...records.display import duration, score, value_line
from ...records.evaluation import number_text
from ..formatting import fit, one_line, side_by_side, sparkline
from ..journals import DEFAULT, find_run, reading
from . import completion
from .options import AsJson, JournalUrl, LoopName
from .output import Output

_KEY, _LONGEST_KEY = 16, 32  # columns of the names of rows
_COLUMN = 30  # columns of a run


def compare(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN RUN...",
            help="Run IDs, 2 to 16 of them.",
            autocompletion=completion.runs,
        ),
    ],
    loop: LoopName = "",
    outputs: Annotated[
        bool, typer.Option("--outputs", help="Compare the outputs of the first run and the others.")
    ] = False,
    journal: JournalUrl = DEFAULT,
    as_json: AsJson = False,
) -> int:
    """Compare recorded runs: their ends, their settings, and the first path where they differ.

    Examples:
        loopwright compare first last
        loopwright compare first last --outputs
    """

    async def work(store: Journal) -> list[tuple[RunInfo, list[Entry]]]:
        rows = [await find_run(store, name) for name in names]
        return [(info, await store.entries(info.run_id)) for info in rows]

    with Output(as_json=as_json) as output:
        done = Comparison.of(reading(journal, work), loop=loop)
        if as_json:
            output.write_json(done.to_json(outputs=outputs))
        else:
            _write(done, output)
            if outputs:
                _write_diffs(done.runs, output)
    return 0


def _write(done: Comparison, output: Output) -> None:
    # The names of limits tell which setting differs, so they are not cut.
    longest = max((len(key) for key in done.differs), default=0)
    width = min(max(_KEY, longest + 2), _LONGEST_KEY)
    row = functools.partial(_line, width)
    output.write((row("", [run.info.run_id for run in done.runs]), "bold"))
    for title, value in _ROWS:
        cells = [value(run) for run in done.runs]
        if any(cells):
            output.write(row(title, cells))
    for name in dict.fromkeys(name for run in done.runs for name in run.metrics):
        output.write(row(name, [value_line(run.metrics.get(name)) for run in done.runs]))
    if any(score is not None for run in done.runs for score in run.scores):
        scores = [[score for score in run.scores if score is not None] for run in done.runs]
        curves = [sparkline(one, _COLUMN - 2, output.signs) if one else "" for one in scores]
        output.write(row("scores", curves))
        for number, cells in _by_iteration(done.runs):
            output.write(row(f"  iteration {number}", cells))
    if done.paired is not None:
        from ..evaluations import paired_text  # loads data sets, which other runs need not

        output.write(("by case", "bold"), f": {paired_text(done.paired)}", wrap=True)
    if done.differs:
        output.write(("what differs", "bold"))
        for key, values in done.differs.items():
            output.write(
                row(key, ["none" if value is None else value_line(value) for value in values])
            )
    same = "all recorded results are the same"
    if done.unfinished:
        same = "all results that the runs have so far are the same"
    output.write((f"they part at {done.part_at}" if done.part_at else same, "bold"))


def _line(width: int, title: str, cells: Sequence[str]) -> str:
    columns = "".join(f"{fit(one_line(cell), _COLUMN - 2):{_COLUMN}}" for cell in cells)
    return f"{fit(title, width - 1):{width}}{columns}".rstrip()


def _by_iteration(runs: Sequence[ComparedRun]) -> Iterator[tuple[int, list[str]]]:
    for number in range(max(len(run.scores) for run in runs)):
        cells = [score(run.scores[number]) if number < len(run.scores) else "" for run in runs]
        yield number + 1, cells


def _with(total: float, inherited: float) -> str:
    own = number_text(total - inherited)
    return own if not inherited else f"{own} + {number_text(inherited)} inherited"


def _origin(run: ComparedRun) -> str:
    forked = run.info.source.get("forked")
    return f"{forked['run_id']} at {forked['path']}" if forked else ""


_ROWS: Sequence[tuple[str, Callable[[ComparedRun], str]]] = (
    ("status", lambda run: run.info.status),
    ("reason", lambda run: run.info.reason.replace("_", " ")),
    ("score", lambda run: score(None if run.best is None else run.best.score)),
    ("iterations", lambda run: str(run.iterations)),
    ("calls", lambda run: _with(run.usage.calls, run.inherited.calls)),
    ("USD", lambda run: _with(run.usage.usd, run.inherited.usd)),
    ("time", lambda run: duration(run.seconds)),
    ("forked from", _origin),
)


def _write_diffs(runs: Sequence[ComparedRun], output: Output) -> None:
    first, *others = runs
    for other in others:
        output.write((f"output of {first.info.run_id} and {other.info.run_id}", "bold"))
        if first.output == other.output:
            output.write("the outputs are the same")
            continue
        for pair in side_by_side(text_of(first.output), text_of(other.output)):
            if pair.kind == "skipped":
                output.write((f"  {pair.count} equal lines", "dim"))
                continue
            before, after = (
                "".join(text for _, text in side) for side in (pair.before, pair.after)
            )
            if pair.kind == "same":
                output.write(f"  {before}")
                continue
            if pair.left:
                output.write((f"- {before}", "red"))
            if pair.right:
                output.write((f"+ {after}", "green"))
