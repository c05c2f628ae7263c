"""The pages of replay and of measured judges, each with its figures as JSON."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from ...documents.yaml.reader import read
from ...errors import ConfigurationError, LoopwrightError
from ...insight import Replay, StoppingPolicy, policy_from_json
from ...insight import replay as replayed
from ...journal import Entry, RunInfo
from ...journal.views import RunView
from ...records.codec import Json
from ..replaying import recordings_in, selected_runs
from .page import Page
from .render import render

BENCH = "judge_bench"  # the name of measurements, `insight.judge_run.BENCH`
MOST_REPORTS = 100
_LONGEST = 2000  # characters of a field
_SHARES = ("sensitivity", "specificity", "kappa", "icc")
_WIDTH, _HEIGHT, _MARGIN = 640, 260, 40
_COLOURS = {"sensitivity": "#3949ab", "specificity": "#c2410c"}


@dataclass(frozen=True, slots=True)
class PolicyForm:
    """The fields of the form: runs, loop, conditions, and whether a grid is tried."""

    runs: str
    loop: str
    until: str
    grid: bool

    @classmethod
    def of(cls, request: Request) -> PolicyForm:
        """Return the fields of a query."""
        query = request.query_params

        def text(name: str) -> str:
            return query.get(name, "")[:_LONGEST].strip()

        return cls(text("runs"), text("loop"), text("until"), grid=query.get("grid") == "on")

    def policies(self) -> list[StoppingPolicy]:
        """Return the policy of each line of conditions. Raises ConfigurationError with the line."""
        lines = enumerate(self.until.splitlines(), start=1)
        return [
            policy_from_json(read(line, f"line {number}").value, f"line {number}")
            for number, line in lines
            if line.strip()
        ]


async def replay(page: Page, request: Request) -> Response:
    """The form of a policy, and what it would have done."""
    form = PolicyForm.of(request)
    report, problem = None, ""
    if form.runs:
        try:
            report = await _report(page, form)
        except LoopwrightError as error:
            # Beside the form, so that the person can correct a field.
            problem = str(error)
    names = sorted({info.name for info in await page.records.journal.runs()} - {BENCH})
    plot = ""
    if report is not None:
        # Safe markup: `frontier_svg` escapes the titles of policies.
        plot = Markup(report.frontier_svg())  # noqa: S704
    link = f"/replay/json?{request.url.query}"
    return HTMLResponse(
        render("replay.html", form=form, report=report, problem=problem, names=names, plot=plot, link=link)
    )  # fmt: skip


async def replay_json(page: Page, request: Request) -> Response:
    """The same report as the object of `loopwright replay --json`."""
    form = PolicyForm.of(request)
    if not form.runs:
        raise ConfigurationError("runs: name the runs to replay, such as name:DOC")
    report = await _report(page, form)
    return JSONResponse(report.to_json())


async def _report(page: Page, form: PolicyForm) -> Replay:
    policies = form.policies()
    runs = await selected_runs(page.records.journal, form.runs.split(), mix=False)
    # Documents are loaded and thousands of runs compared, and other pages must not wait.
    return await asyncio.to_thread(_replayed, runs, form, policies)


def _replayed(
    runs: Sequence[tuple[RunInfo, list[Entry]]], form: PolicyForm, policies: list[StoppingPolicy]
) -> Replay:
    return replayed(recordings_in(runs, form.loop), policies, use_grid=form.grid)


@dataclass(frozen=True, slots=True)
class JudgeRow:
    """One measurement of a judge."""

    info: RunInfo
    report: Mapping[str, Json]

    @property
    def judge(self) -> str:
        """The criteria of the judge."""
        return "; ".join(self.report["judge"]["criteria"])

    def shown(self, name: str) -> str:
        """Return a share with its interval, or why there is none."""
        row = self.report[name]
        if "value" not in row:
            return str(row["why"])
        return f"{row['value']:.3f} [{row['low']:.3f}, {row['high']:.3f}]"

    @property
    def advice(self) -> str:
        """The advised voting rule, or why there is none."""
        advice = self.report["advice"]
        if why := advice.get("why") or advice.get("unattainable"):
            return str(why)
        return f"lead {advice['accept_lead']} of at most {advice['max_votes']} votes"

    def to_json(self) -> dict[str, Json]:
        """Return the report with its run and time."""
        return {"run_id": self.info.run_id, "created": self.info.created, **self.report}


async def judges(page: Page, request: Request) -> Response:
    """The reports of measured judges over time."""
    del request
    rows = await _judges(page)
    # Safe markup: its texts are escaped.
    plot = Markup(_plot(rows)) if rows else ""  # noqa: S704
    return HTMLResponse(render("judges.html", rows=rows, shares=_SHARES, plot=plot))


async def judges_json(page: Page, request: Request) -> Response:
    """The same reports as JSON."""
    del request
    return JSONResponse({"reports": [row.to_json() for row in await _judges(page)]})


def _ending(view: RunView) -> dict[str, Json] | None:
    return view.ending()


async def _judges(page: Page) -> list[JudgeRow]:
    journal = page.records.journal
    infos = await journal.runs(name=BENCH, status="satisfied", limit=MOST_REPORTS)
    rows = []
    for info in infos:
        end = await page.records.with_view(info.run_id, _ending)
        if end is not None and isinstance(end.get("output"), dict):
            rows.append(JudgeRow(info, end["output"]))
    return rows


def _plot(rows: Sequence[JudgeRow]) -> str:
    """Return a plot of sensitivity and specificity, a point with its interval for each report, oldest first."""
    ordered = list(reversed(rows))
    step = (_WIDTH - 2 * _MARGIN) / max(1, len(ordered) - 1) if len(ordered) > 1 else 0.0

    def y(share: float) -> float:
        return _HEIGHT - _MARGIN - share * (_HEIGHT - 2 * _MARGIN)

    axes = f"M{_MARGIN} {_MARGIN}V{_HEIGHT - _MARGIN}H{_WIDTH - _MARGIN}"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" font-size="12">',
        "<title>Sensitivity and specificity over time</title>",
        f'<path d="{axes}" fill="none" stroke="#666"/>',
    ]
    lines += [
        f'<text x="{_MARGIN - 6}" y="{y(share):.1f}" text-anchor="end">{share:g}</text>'
        for share in (0.0, 1.0)
    ]
    for offset, (name, colour) in enumerate(_COLOURS.items()):
        left = _MARGIN + offset * 120
        lines += [
            f'<g fill="{colour}"><rect x="{left}" y="{_MARGIN - 24}" width="10" height="10"/></g>',
            f'<text x="{left + 15}" y="{_MARGIN - 14}">{name}</text>',
        ]
        for place, row in enumerate(ordered):
            value = row.report[name]
            if "value" not in value:
                continue
            x = _MARGIN + 12 + place * step * 0.96 + offset * 6
            title = escape(f"{row.info.run_id}: {name} {row.shown(name)}")
            lines += [
                f'<g stroke="{colour}" fill="{colour}"><title>{title}</title>',
                f'<path d="M{x:.1f} {y(value["low"]):.1f}V{y(value["high"]):.1f}" fill="none"/>',
                f'<circle cx="{x:.1f}" cy="{y(value["value"]):.1f}" r="4"/></g>',
            ]
    return "\n".join([*lines, "</svg>"])
