"""The pages of replay and of measured judges, each with its figures as JSON."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from dataclasses import dataclass

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from ...documents.yaml.reader import read
from ...errors import ConfigurationError, LoopwrightError
from ...insight import Replay, StoppingPolicy, policy_from_json
from ...insight import replay as replayed
from ...insight.report import reports_svg
from ...journal import RunInfo
from ...journal.views import RunView
from ...records.codec import Json
from .. import formatting as texts
from ..replaying import recordings_in, selected_runs
from .page import Page
from .render import render, sentence_of

BENCH = "judge_bench"  # the name of measurements, `insight.judge_run.BENCH`
MOST_REPORTS = 100
_LONGEST = 2000  # characters of a field
_SHARES = {
    "sensitivity": "Sensitivity",
    "specificity": "Specificity",
    "kappa": "Kappa",
    "flip_rate": "Flip rate",
    "icc": "icc",
}


@dataclass(frozen=True, slots=True)
class PolicyForm:
    """The fields of the form, as the options of `loopwright replay`."""

    runs: str
    loop: str
    until: str
    price: str
    grid: bool
    mix: bool

    @classmethod
    def of(cls, request: Request) -> PolicyForm:
        """Return the fields of a query."""
        query = request.query_params

        def text(name: str) -> str:
            return query.get(name, "")[:_LONGEST].strip()

        return cls(
            text("runs"), text("loop"), text("until"), text("price"),
            grid=query.get("grid") == "on", mix=query.get("mix") == "on",
        )  # fmt: skip

    @property
    def quality_of_a_call(self) -> float:
        """The price. Raises ConfigurationError for a text that is not one."""
        try:
            price = float(self.price or 0)
        except ValueError:
            price = math.nan
        if not 0 <= price < math.inf:
            raise ConfigurationError(
                f"price: {self.price!r} is not a price. Use a number from 0, such as 0.01."
            )
        return price

    def policies(self) -> list[StoppingPolicy]:
        """Return the policy of each line of conditions. Raises ConfigurationError with the line."""
        policies = []
        for number, line in enumerate(self.until.splitlines(), start=1):
            if line.strip():
                # With the lines above it, a syntax error has the position in the field.
                value = read("\n" * (number - 1) + line, "conditions").value
                policies.append(policy_from_json(value, f"conditions:{number}"))
        return policies


async def replay(page: Page, request: Request) -> Response:
    """The form of a policy, and what it would have done."""
    form = PolicyForm.of(request)
    report, problem = None, ""
    if form.runs:
        try:
            report = await _report(page, form)
        except LoopwrightError as error:
            # Beside the form, so that the person can correct a field.
            problem = sentence_of(error)
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
    policies, price = form.policies(), form.quality_of_a_call
    runs = await selected_runs(page.records.journal, form.runs.split(), mix=form.mix)

    def compared() -> Replay:
        return replayed(recordings_in(runs, form.loop), policies, use_grid=form.grid, price=price)

    # Documents are loaded and thousands of runs compared, and other pages must not wait.
    return await asyncio.to_thread(compared)


@dataclass(frozen=True, slots=True)
class JudgeRow:
    """One measurement of a judge."""

    info: RunInfo
    report: Mapping[str, Json]

    @property
    def judge(self) -> str:
        """The criteria of the judge."""
        return "; ".join(self.report["judge"]["criteria"])

    @property
    def robustness(self) -> str:
        """How many texts of the robustness set were refused, or that it was not shown."""
        shown = self.report["robustness"]
        if not shown:
            return "not asked"
        return f"{shown['shown'] - len(shown['accepted'])} of {shown['shown']} refused"

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
    plots: dict[str, list[tuple[str, Mapping[str, Json]]]] = {}
    for row in reversed(rows):
        plots.setdefault(row.judge, []).append((texts.when(row.info.created), row.report))
    # Safe markup: `reports_svg` escapes its texts. One plot for each judge, because its rates are its own.
    drawn = [(judge, Markup(reports_svg(ones, judge))) for judge, ones in plots.items()]  # noqa: S704
    return HTMLResponse(render("judges.html", rows=rows, shares=_SHARES, plots=drawn))


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
