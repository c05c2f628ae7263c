"""A recorded evaluation of a data set on a terminal: its figures in four lines, and its cases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from ...datasets.results import STATES, EvalResult, Gate
from ...journal import Entry, RunInfo
from ...records.codec import Json
from .. import formatting as texts
from ..evaluations import (
    RUNNING,
    cases_in,
    paired_text,
    recorded_evaluation,
    score_text,
    with_baseline,
)
from ..journals import command_line, reading
from ..rows import LINE_INPUT, PAGE, counts_text
from .output import Output

_LEFT = 56  # columns of the left part of a line
_WORST = 3  # cases in a line
_LIMITS = {"mean_at_least": "mean ≥", "lower_at_least": "lower ≥", "max_drop": "drop ≤"}


def evaluation_of(info: RunInfo, url: str) -> EvalResult:
    """Return the result of an evaluation with its comparison and its gate."""
    return recorded_evaluation(*reading(url, lambda store: with_baseline(store, info.run_id)))


def write_evaluation(shown: EvalResult, info: RunInfo, output: Output) -> None:
    """Write the data set, the score, the states, the cost and the gate of an evaluation, in four lines."""
    wanted, data, counts = info.source.get("eval") or {}, shown.dataset, shown.counts
    more = output.signs.more
    facts = [
        texts.one_line(info.name),
        f"{texts.one_line(data['name'])} ({data['digest'][:4]}{more})"
        if data
        else texts.one_line(wanted.get("file", "")),
        data.get("use", ""),
        f"{texts.plural(data['cases'], 'case')} × {wanted.get('repeat', 1)}" if data else "",  # noqa: RUF001
        f"{wanted['at_once']} at a time" if "at_once" in wanted else "",
        f"held out: look {data['looks']}" if data.get("looks") else "",
    ]
    output.write((" · ".join(filter(None, facts)), "bold"), wrap=True)
    compared = "" if shown.baseline is None else f"difference {paired_text(shown.baseline)}"
    _write_line(f"score   {score_text(shown.score)}", compared, output)
    states = "   ".join(f"{state} {counts.get(state, 0):,}" for state in STATES)
    worst = " │ ".join(
        f"{texts.one_line(row['id'])} {row['score']:.2f} {texts.fit(texts.one_line(row.get('feedback', '')), 30, output.signs)}".rstrip()
        for row in shown.worst[:_WORST]
    )
    _write_line(states, worst and f"worst  {worst}", output)
    limits = [
        f"{_LIMITS[name]} {limit:g} {_verdict(shown, name, limit)}"
        for name, limit in wanted.get("gate", {}).items()
    ]
    spent = f"{texts.spent(shown.usage, scripted=info.scripted)}, " if shown.usage else ""
    gate = f"gate: {' · '.join(limits)}" if limits else ""
    _write_line(f"spent   {spent}{texts.duration(info.active)}", gate, output)
    for sentence in shown.gate["failed"] if shown.gate is not None else ():
        output.write((f"gate not met: {sentence}", "red"), wrap=True)


def _verdict(shown: EvalResult, name: str, limit: float) -> str:
    if not shown.dataset or (name == "max_drop" and shown.baseline is None):
        return "not compared"
    verdict = shown.gated(Gate(**{name: limit})).gate
    return "ok" if verdict and verdict["ok"] else "not met"


def _write_line(left: str, right: str, output: Output) -> None:
    """Write two parts of a line, below each other where they do not fit."""
    line = f"  {left:{_LEFT}}  {right}".rstrip()
    if texts.width(line) < output.width:
        output.write(line)
    else:
        output.write(f"  {left}")
        output.write(f"  {right}", wrap=True)


def write_missed(entries: Sequence[Entry], output: Output) -> None:
    """Write a line for each case that has ended and did not pass."""
    for case in filter(_missed, cases_in(entries)):
        _case_row(case, output)


def _missed(case: Mapping[str, Json]) -> bool:
    return case["state"] not in ("passed", RUNNING)


def write_cases(
    info: RunInfo, entries: list[Entry], first: int, url: str, output: Output, *, failed: bool
) -> None:
    """Write some cases of an evaluation, or those of them that did not pass."""
    every = list(cases_in(entries))
    counts = dict(Counter(case["state"] for case in every))
    cases = [case for case in every if not failed or _missed(case)]
    shown = cases[first - 1 : first - 1 + PAGE]
    left = max(0, len(cases) - (first - 1) - len(shown))
    if output.as_json:
        output.write_json({"run_id": info.run_id, "counts": counts, "left": left, "rows": shown})
        return
    output.write((counts_text(counts, "case"), "bold"))
    for case in shown:
        _case_row(case, output)
    if left:
        words = [*(["--failed"] if failed else []), "--first", str(first + PAGE)]
        output.write(
            (f"{texts.plural(left, 'more case')}: ", "dim"),
            command_line("show", info.run_id, url, *words),
        )


def _case_row(case: Mapping[str, Json], output: Output) -> None:
    score = "" if case["score"] is None else f"{case['score']:.2f}"
    name = case["id"] if case["repeat"] == 1 else f"{case['id']} ({case['repeat']})"
    head = f"  {case['state']:9}  {score:5} {texts.fit(texts.one_line(name), 24, output.signs)}  "
    why = texts.one_line(str(case.get("error") or case["feedback"])[:LINE_INPUT])
    room = max(8, output.width - 1 - texts.width(head))
    style = {"passed": "green", RUNNING: ""}.get(case["state"], "red")
    output.write((head, style), texts.fit(why, room, output.signs))
