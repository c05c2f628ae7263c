"""The routes of limits, forks and comparisons of runs, of replay and measured judges, and of workers and queues.

The pages of replay and of measured judges also give their figures as JSON.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from ...documents.yaml.reader import read
from ...engine.change_limits import ENDED, change_limits
from ...engine.run import new_run_id
from ...errors import ConfigurationError, LoopwrightError, RunNotFound
from ...insight import Replay, StoppingPolicy, policy_from_json
from ...insight import replay as replayed
from ...insight.comparing import Comparison
from ...insight.comparing import compare as compare_runs
from ...insight.report import reports_svg
from ...journal import RunInfo
from ...records.codec import Json, text_of
from ...records.redaction import of_environment
from .. import formatting as texts
from ..cluster_state import read_cluster
from ..documents import recordings_in, selected_runs
from ..formatting import limit_text, side_by_side
from ..read_limits import limit_value
from .access import is_loop, is_run_id
from .page import Page
from .render import cut, readable, render, sentence_of
from .routes_runs import run_in

MOST_COMPARED = 4  # runs, a column each
_MOST_SCORES = 200  # rows of the table of scores
_MOST_TEXT = 400  # characters of a setting
# The fields of the form that changes limits, and the option of `change_limits` that each sets.
TUNABLE = {
    "max_iterations": "Iterations",
    "max_calls": "Model calls",
    "max_total_tokens": "Tokens, input and output",
    "max_usd": "Cost, US dollars",
    "max_effects": "Effects",
    "timeout": "Active time, such as 5m",
    "deadline": "Deadline, such as 2030-01-31T18:00:00+00:00",
    "at_once": "Items or steps at a time",
    "candidates": "Candidates of an iteration",
}


async def limits(page: Page, request: Request) -> Response:
    """The limits of a run that are in force, with a form that changes them."""
    shown = await change_limits(run_in(request), journal=page.records.journal)
    loops = list(dict.fromkeys(limit.loop for limit in shown.limits if limit.loop))
    return HTMLResponse(
        render(
            "limits.html", shown=shown, loops=loops, fields=TUNABLE,
            ended=shown.status in ENDED, limit_text=limit_text,
        )
    )  # fmt: skip


async def tuned(page: Page, request: Request, fields: dict[str, Json]) -> dict[str, Json]:
    """Request new limits of a run."""
    values = {key: text_of(fields.get(key)).strip() for key in TUNABLE}
    changes = {key: limit_value(key, text) for key, text in values.items() if text}
    if not changes:
        raise ConfigurationError("give at least one new limit")
    reason = text_of(fields.get("reason")).strip()
    of_environment(os.environ).refuse("reason", reason)
    done = await change_limits(
        run_in(request), journal=page.records.journal, loop=text_of(fields.get("loop")),
        reason=reason, **changes,
    )  # fmt: skip
    when = "within a second" if done.status == "running" else "when it is resumed"
    return {"said": f"The run takes the new limits {when}."}


async def compare(page: Page, request: Request) -> Response:
    """Two to four runs side by side."""
    shown = await _comparison(page, request)
    first, *others = shown.runs
    outputs = []
    for other in others:
        # Comparing long outputs takes seconds, and other pages must not wait.
        texts = readable(first.output), readable(other.output)
        pairs = await asyncio.to_thread(side_by_side, *texts)
        titles = (first.info.run_id, other.info.run_id)
        outputs.append((titles, pairs, texts[0] == texts[1]))
    longest = max(len(run.scores) for run in shown.runs)
    rows = [
        [run.scores[n] if n < len(run.scores) else None for run in shown.runs]
        for n in range(min(longest, _MOST_SCORES))
    ]
    return HTMLResponse(
        render(
            "runs_compare.html", shown=shown, outputs=outputs, rows=rows,
            texts=lambda value: cut("none" if value is None else readable(value), _MOST_TEXT),
            metrics=list(dict.fromkeys(name for run in shown.runs for name in run.metrics)),
            forked=any("forked" in run.info.source for run in shown.runs),
            json="/compare/json?" + str(request.query_params),
        )
    )  # fmt: skip


async def compared_json(page: Page, request: Request) -> Response:
    """The comparison as the JSON that `loopwright compare --json` prints."""
    return JSONResponse((await _comparison(page, request)).to_json())


async def _comparison(page: Page, request: Request) -> Comparison:
    run_ids = request.query_params.getlist("run")
    if not 2 <= len(run_ids) <= MOST_COMPARED:
        raise ConfigurationError(
            f"compare: select 2 to {MOST_COMPARED} runs in the list, not {len(run_ids)}"
        )
    if not all(map(is_run_id, run_ids)):
        raise RunNotFound("there is no run with this ID in this journal")
    loop = request.query_params.get("loop", "")
    if loop and not is_loop(loop):
        raise ConfigurationError("loop: this is not the path of a loop")
    return await compare_runs(*run_ids, journal=page.records.journal, loop=loop)


async def forked(page: Page, request: Request, fields: dict[str, Json]) -> dict[str, Json]:
    """Fork a run from a path with other variables, and execute the new run."""
    origin, new_id = run_in(request), new_run_id()
    lines = text_of(fields.get("sets")).splitlines()
    sets = [f"--set={line.strip()}" for line in lines if line.strip()]
    words = ["fork", "--run-id", new_id, *sets, "--", origin]
    if path := text_of(fields.get("at")).strip():
        words.append(path)
    try:
        await page.processes.launch(words)
    except ConfigurationError as error:
        # The command names its option, and the form has a field.
        raise ConfigurationError(str(error).replace("--set: ", "Variables: ")) from error
    return {"go": f"/runs/{new_id}"}


MOST_REPORTS = 100
_LONGEST = 2000  # characters of a field
# The shares of reports by the name of their runs: `insight.judge_bench.BENCH` and `insight.judge_pairs.PAIRS`.
_SHARES = {
    "judge_bench": {
        "sensitivity": "Sensitivity", "specificity": "Specificity", "kappa": "Kappa", "flip_rate": "Flip rate", "icc": "icc",
    },
    "judge_pairs": {
        "consistent_accuracy": "Consistent accuracy", "consistency": "Consistency", "flip_rate": "Flip rate",
        "first_share": "Answers first",
    },
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class PolicyForm:
    """The fields of the form, as the options of `loopwright measure limits`."""

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
    names = sorted({info.name for info in await page.records.journal.runs()} - _SHARES.keys())
    plot = ""
    if report is not None:
        # Safe markup: `frontier_svg` escapes the titles of policies.
        plot = Markup(report.frontier_svg())  # noqa: S704
    link = f"/limits/json?{request.url.query}"
    return HTMLResponse(
        render("replay.html", form=form, report=report, problem=problem, names=names, plot=plot, link=link)
    )  # fmt: skip


async def replay_json(page: Page, request: Request) -> Response:
    """The same report as the object of `loopwright measure limits --json`."""
    form = PolicyForm.of(request)
    if not form.runs:
        raise ConfigurationError("runs: name the runs to compare, such as name:DOC")
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
    plots: dict[tuple[str, str], list[tuple[str, Mapping[str, Json]]]] = {}
    for row in reversed(rows):
        one = (texts.when(row.info.created), row.report)
        plots.setdefault((row.judge, row.info.name), []).append(one)
    # Safe markup: `reports_svg` escapes its texts. One plot for each judge, because its rates are its own.
    drawn = [
        (judge, Markup(reports_svg(ones, judge, list(_SHARES[name])[:2])))  # noqa: S704
        for (judge, name), ones in plots.items()
    ]
    return HTMLResponse(render("judges.html", rows=rows, shares=_SHARES, plots=drawn))


async def judges_json(page: Page, request: Request) -> Response:
    """The same reports as JSON."""
    del request
    return JSONResponse({"reports": [row.to_json() for row in await _judges(page)]})


async def _judges(page: Page) -> list[JudgeRow]:
    journal = page.records.journal
    infos = [
        info
        for name in _SHARES
        for info in await journal.runs(name=name, status="satisfied", limit=MOST_REPORTS)
    ]
    rows = []
    for info in sorted(infos, key=lambda info: -info.created):
        end = await page.records.with_view(info.run_id, lambda view: view.ending())
        if end is not None and isinstance(end.get("output"), dict):
            rows.append(JudgeRow(info, end["output"]))
    return rows


MOST_HELD = 5  # runs that a row names
MOST_DELAYED = 20  # runs that do not continue


async def workers(page: Page, request: Request) -> Response:
    """The page of workers and queues."""
    del request
    try:
        view = await read_cluster(page.records.journal, MOST_DELAYED)
    except ConfigurationError:
        return HTMLResponse(render("workers.html", view=None, most=MOST_HELD))
    return HTMLResponse(render("workers.html", view=view, most=MOST_HELD))


async def tables(page: Page, request: Request) -> Response:
    """The tables alone, which the page fetches again."""
    del request
    view = await read_cluster(page.records.journal, MOST_DELAYED)
    return HTMLResponse(render("cluster.html", view=view, most=MOST_HELD))
