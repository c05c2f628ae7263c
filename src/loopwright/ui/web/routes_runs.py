"""The routes that read runs, and those of their files: differences, branches and changes made from them.

What is read: the list, a run, its iterations, comparisons, the trace and exports.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from ...coding.workspace.saved import SavedWorkspace
from ...conditions import CEILING
from ...errors import ConfigurationError, LoopwrightError, RunLocked, RunNotFound
from ...journal import Entry, RunInfo, surviving
from ...journal.questions import open_questions
from ...journal.replay import recorded_result
from ...journal.views import ORDERS, RunView, Wanted
from ...records import Failure, Iteration, Reason, Result
from ...records.codec import Json, text_of
from .. import formatting as texts
from ..evaluations import case_json
from ..export import exported
from ..finding import STATUSES, wanted_of
from ..formatting import side_by_side
from ..journals import folder_of, has_step
from ..run_files import (
    REPLACED,
    RunFiles,
    changes_text,
    files_text,
    filtered_text,
    keys_text,
    names_text,
    run_files,
    turned_tests,
    unrecorded_files,
)
from ..run_summary import coding_of, handed_over, sessions_in, workspaces_of
from ..trace import duel_of
from .access import is_loop, is_run_id
from .evaluation import EvaluationPage, WantedCases, by_case, reader, traced
from .forms import QuestionForm, fields_of, form_of
from .page import Page, in_order, main_loop
from .render import cut, lines_of, readable, render
from .run_page import (
    MAX_ENTRIES,
    Section,
    branch_of,
    confirmation_of,
    inner_of,
    is_list,
    name_of,
    page_of,
    run_of,
    section_of,
    steps_of,
)

WORDS = ("name", "status", "reason", "search", "since", "queue", "worker", "sort")
NAMED_ORDERS = {
    "": "newest first", "-started": "oldest first", "updated": "latest change first", "name": "by name", "status": "by status",
    "score": "best score first", "-score": "worst score first", "cost": "dearest first",
    "iterations": "most iterations first",
}  # fmt: skip
_PARTS = {"yes": "cases.html", "figures": "figures.html"}  # of the page of cases
MOST_BASELINES = 20  # runs of the same name that can be chosen as a baseline
_MAX_VALUE = 200_000  # characters of an input or output on the page of a run


def run_in(request: Request) -> str:
    """Return the run ID of a path. Raises RunNotFound for an impossible one."""
    run_id = str(request.path_params["run_id"])
    if not is_run_id(run_id):
        raise RunNotFound("there is no run with this ID in this journal")
    return run_id


def loop_in(request: Request) -> str:
    """Return the loop of a query. Raises ConfigurationError for an impossible path."""
    loop = request.query_params.get("loop", "")
    if not is_loop(loop):
        raise ConfigurationError("loop: this is not the path of a loop")
    return loop


def number_in(request: Request, name: str, *, maximum: int = 100_000_000, default: int = 0) -> int:
    """Return an integer of a query. Raises ConfigurationError for any other value."""
    text = request.query_params.get(name, "")
    if not text:
        return default
    # The length is checked first: converting millions of digits takes quadratic time.
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) <= maximum):
        raise ConfigurationError(f"{name}: this is not an integer from 0 to {maximum}")
    return int(text)


def words_in(request: Request) -> tuple[dict[str, str], list[str]]:
    """Return the words and the tags by which a query finds runs; empty fields of the form are left out."""
    query = request.query_params
    words = {word: query[word][:400] for word in WORDS if query.get(word)}
    return words, [tag[:400] for tag in query.getlist("tag") if tag]


def wanted_in(request: Request) -> Wanted:
    """Return the page of the list in a query. Raises ConfigurationError."""
    wanted = wanted_of(*words_in(request))
    before, after = _key(request, "before"), _key(request, "after")
    return replace(wanted, before=before, after=after, offset=number_in(request, "offset"))


def _key(request: Request, name: str) -> int:
    text = request.query_params.get(name, "0")
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 16):
        raise ConfigurationError(f"{name}: this is not a position in the list")
    return int(text)


async def runs(page: Page, request: Request) -> Response:
    """The list of runs, newest first or in another order."""
    wanted, (words, tags) = wanted_in(request), words_in(request)
    listing = await page.records.listing(wanted)

    def link(path: str = "/", /, **place: object) -> str:
        pairs = {**words, **{key: str(value) for key, value in place.items()}}
        query = [*pairs.items(), *(("tag", tag) for tag in tags)]
        return f"{path}?{urlencode([pair for pair in query if pair[1]])}".removesuffix("?")

    rows, limit = listing.rows, wanted.limit
    full = len(rows) == limit
    keys = [row.key for row in rows]
    names = listing.names
    if wanted.name and wanted.name not in names:
        names = [*names, wanted.name]
    if wanted.by_key:
        newer = link(after=max(keys)) if keys and (wanted.before or wanted.after) else ""
        older = link(before=min(keys)) if full or (wanted.after and rows) else ""
    else:
        # How far a search has read is known for the next page only.
        back = wanted.offset and not wanted.text
        newer = link(offset=max(0, wanted.offset - limit) or "") if back else ""
        older = link(offset=wanted.offset + limit) if full and not wanted.text else ""
    # A column begins with its natural order; a second click reverses it.
    orders = {
        order: link(
            sort=f"-{order}" if wanted.sort in (order, *([""] * (order == "started"))) else order
        )
        for order in ORDERS
    }
    place = {
        "before": wanted.before or "",
        "after": wanted.after or "",
        "offset": wanted.offset or "",
    }
    searched: dict[str, object] = {"before" if wanted.by_key else "offset": listing.searched}
    statuses = [*STATUSES, *([wanted.status] if len(wanted.statuses) > 1 else [])]
    return HTMLResponse(
        render(
            "runs.html", listing=listing, wanted=wanted, words=defaultdict(str, words), names=names, statuses=statuses,
            reasons=[reason.value for reason in Reason], filtered=bool(tags or words.keys() - {"sort"}),
            named_orders={**NAMED_ORDERS, **({} if wanted.sort in NAMED_ORDERS else {wanted.sort: f"by {wanted.order}"})},
            newest=link() if wanted.before or wanted.after or wanted.offset else "", newer=newer, older=older, orders=orders,
            search_on=link(**searched) if listing.searched else "", events=link("/events", **place),
        )
    )  # fmt: skip


async def run(page: Page, request: Request) -> Response:
    """One run."""
    run_id = run_in(request)
    evaluation = await _evaluation(page, run_id, _cases_in(request))

    def work(view: RunView) -> str:
        run_progress = page.run_progress.of(view)
        loop = main_loop(view)
        shown = run_of(view, loop, run_progress, page.live)
        sections = [section_of(view, path, run_progress) for path in in_order(view, view.loops())]
        steps = steps_of(view)
        further = [s for s in sections if not s.over_list and s.count < CEILING]
        # None of a run that is too long to be read at once, or whose cases are read apart.
        short = view.last <= MAX_ENTRIES and evaluation is None
        entries = view.between(0, MAX_ENTRIES) if short else []
        end = view.ending() or {}
        questions: list[QuestionForm] = []
        if view.info.status == "suspended":
            questions = [
                form_of(question) for question in open_questions(surviving(view.between(0, 0)))
            ]
        # Complete: a long schema is left out of the first reading.
        numbers = run_progress.progress.waits.values() if shown.open else ()
        waits = [entry for number in numbers for entry in view.between(number - 1, 1)]
        main = next((one for one in sections if one.path == loop), None)
        coding = coding_of(view.info, entries)
        handed, changed = [], ""
        if coding is not None or any(one.has_files for one in sections):
            result = recorded_result(view.info, entries)
            handed = [one for place in workspaces_of(result) for one in handed_over(place, result)]
            # The files may be on another machine, or were deleted.
            with contextlib.suppress(LoopwrightError):
                changed = _whole_change(page, view.info, entries, main, result)
        return render(
            "run.html", evaluation=evaluation, main=main, coding=coding, handed=handed, changed=changed,
            with_files=[one for one in sections if one.has_files], sessions=sessions_in(entries),
            unrecorded=unrecorded_files(view.info, entries, folder_of(page.records.journal)), replaced=REPLACED,
            run=shown, failure=Failure.from_json(end.get("error")), sections=sections, steps=steps, questions=questions, waits=waits,
            raisable_loops=further, ceiling=CEILING, asked=any(q.of_output for q in questions),
            input=cut(readable(view.info.input), _MAX_VALUE), output=cut(_output(view, loop, questions), _MAX_VALUE),
            retriable=has_step(view.info),
            rewindable=bool(sections) and "bounds" in view.info.source,
            raisable=bool(view.info.source.get("file") or view.info.source.get("python")),
        )  # fmt: skip

    return HTMLResponse(await page.records.with_view(run_id, work))


def _cases_in(request: Request) -> WantedCases:
    """Return the cases of a query. Raises ConfigurationError."""
    words = {
        name: request.query_params.get(name, "")[:400]
        for name in ("state", "sort", "search", "baseline")
    }
    return WantedCases(**words, offset=number_in(request, "offset"))


async def _evaluation(page: Page, run_id: str, wanted: WantedCases) -> EvaluationPage | None:
    """Return the wanted cases of an evaluation; None for another run."""
    scored = await page.records.with_view(run_id, page.cases.of)
    if scored is None:
        return None
    before, recorded = None, (scored.info.source.get("eval") or {}).get("baseline", "")
    wanted = replace(wanted, baseline=wanted.baseline or recorded)
    others = await page.records.journal.runs(name=scored.info.name, limit=MOST_BASELINES)
    if wanted.baseline:
        # A deleted one is no reason to show nothing.
        with contextlib.suppress(RunNotFound):
            before = await page.records.with_view(wanted.baseline, page.cases.of)
    baselines = [one for one in others if one.run_id != run_id and one.status == "satisfied"]
    return await page.records.with_view(
        run_id, lambda view: EvaluationPage.of(view, scored, before, wanted, baselines)
    )


async def cases(page: Page, request: Request) -> Response:
    """The cases of an evaluation: those of a state, a page of them, in an order, or with a text."""
    shown = await _evaluation(page, run_in(request), _cases_in(request))
    if shown is None:
        raise ConfigurationError("this run is not an evaluation of a data set")
    template = _PARTS.get(request.query_params.get("part", ""), "evaluation.html")
    return HTMLResponse(render(template, evaluation=shown))


async def cases_json(page: Page, request: Request) -> Response:
    """The same as JSON: the evaluation, its histogram, and the cases of the page."""
    shown = await _evaluation(page, run_in(request), _cases_in(request))
    return JSONResponse(None if shown is None else shown.to_json())


async def case(page: Page, request: Request) -> Response:
    """One case in full, beside that of the baseline."""
    run_id, place = run_in(request), number_in(request, "place")
    scored = await page.records.with_view(run_id, page.cases.of)
    if scored is None or place >= len(scored.rows):
        raise ConfigurationError("there is no such case; reload the page")
    row, baseline = scored.rows[place], request.query_params.get("baseline", "")
    shown, nodes = await page.records.with_view(
        run_id, lambda view: (case_json(row, reader(view)), traced(view, row))
    )
    # Its document and its file are read, and other pages must not wait.
    given = await asyncio.to_thread(page.cases.in_file, scored.info, row)
    earlier = None
    if baseline:
        other = await page.records.with_view(baseline, page.cases.of)
        if (match := by_case(other).get((row.id, row.repeat, row.digest))) is not None:
            earlier = await page.records.with_view(
                baseline, lambda view: case_json(match, reader(view))
            )
    return HTMLResponse(
        render(
            "case.html", case=shown, given=given, earlier=earlier, baseline=baseline, nodes=nodes, at=row.path, run_id=run_id,
            start=0, left=0,
        )
    )  # fmt: skip


def _whole_change(
    page: Page, info: RunInfo, entries: Sequence[Entry], main: Section | None, result: Result
) -> str:
    """Return what the files of a run differ in from its start, or ""."""
    item = None if main is None or main.latest is None else main.latest.iteration
    if main is None or item is None or item.files is None:
        return ""
    files = run_files(info.run_id, entries, main.path, folder_of(page.records.journal))
    if files is None:
        return ""
    own = result.loops.get(main.name)
    # Until the files are handed over, those of the iteration that the page shows as the result.
    over = result.workspace or (own.workspace if own is not None else None)
    where = over or {"base": files.base, "commit": files.commit_of(item)}
    return changes_text(files.store.changes(where["base"], where["commit"]))


def _output(view: RunView, loop: str, questions: Sequence[QuestionForm]) -> str:
    """Return the output of a run: the one to review, the final one, or the best so far."""
    if reviews := [question for question in questions if question.of_output]:
        return reviews[0].output
    end = view.ending()
    if end is not None:
        return readable(end.get("output"))
    marks = view.outline(loop) if loop else []
    scored = [item for _, item in marks if item.eligible and item.score is not None]
    best = max(scored, key=lambda item: item.score or 0.0, default=None)
    if marks and marks[-1][1].accepted is not None:
        best = next((item for _, item in reversed(marks) if item.accepted), None)
    # A loop without scores has no best iteration, so its latest output is shown.
    if best is None and marks:
        best = marks[-1][1]
    return readable(view.iteration(loop, best.number).output) if best else ""


async def rows(page: Page, request: Request) -> Response:
    """Some rows of a loop: from an offset, or the page of iteration `at`; of one status or of all."""
    run_id, loop = run_in(request), loop_in(request)
    offset, at = number_in(request, "offset"), number_in(request, "at")
    status = request.query_params.get("status", "")[:40]

    def work(view: RunView) -> str:
        page = page_of(view, loop, view.outline(loop), offset=offset, at=at, status=status)
        return render(
            "rows.html", page=page, path=loop, name=name_of(loop, view.info),
            unit="item" if is_list(loop, view.info) else "iteration",
        )  # fmt: skip

    return HTMLResponse(await page.records.with_view(run_id, work))


async def inside(page: Page, request: Request) -> Response:
    """The inner loops of the iteration in progress."""
    run_id, loop = run_in(request), loop_in(request)

    def work(view: RunView) -> str:
        under = f"{loop}/{view.count(loop) + 1}"
        return render("inside.html", loops=inner_of(view, under, opened=True))

    return HTMLResponse(await page.records.with_view(run_id, work))


async def iteration(page: Page, request: Request) -> Response:
    """One iteration in full."""
    run_id, loop, number = run_in(request), loop_in(request), number_in(request, "number")
    address = urlencode({"loop": loop, "b": number, "part": "yes"})

    def work(view: RunView) -> str:
        item = view.iteration(loop, number)
        before, start = (
            (view.iteration(loop, number - 1), []) if number > 1 else (None, view.effects(loop, 0))
        )
        green, red = turned_tests(before, item, start)
        place = f"{loop}/{number}"
        loops = inner_of(view, place)
        duel = duel_of(view.effects(loop, number), place) if item.candidates else []
        return render(
            "iteration.html", confirmation=confirmation_of(item), duel=duel, item=item, path=place, loops=loops, green=green, red=red,
            files=files_text(item), files_url=f"/runs/{run_id}/files?{address}",
        )  # fmt: skip

    return HTMLResponse(await page.records.with_view(run_id, work))


async def compare(page: Page, request: Request) -> Response:
    """The outputs of two iterations side by side."""
    run_id, loop = run_in(request), loop_in(request)
    numbers = number_in(request, "a", default=1), number_in(request, "b", default=1)

    def work(view: RunView) -> tuple[list[str], list[str], str]:
        items = [view.iteration(loop, number) for number in numbers]
        titles = [
            f"Iteration {item.number}"
            + (f" (score {texts.score(item.score)})" if item.score is not None else "")
            for item in items
        ]
        return [readable(item.output) for item in items], titles, name_of(loop, view.info)

    outputs, titles, name = await page.records.with_view(run_id, work)
    # Comparing long outputs takes seconds, and other pages must not wait.
    pairs = await asyncio.to_thread(side_by_side, *outputs)
    template = "compared.html" if request.query_params.get("part") else "compare.html"
    same = outputs[0] == outputs[1]
    return HTMLResponse(
        render(template, pairs=pairs, titles=titles, name=name, run_id=run_id, same=same)
    )


async def trace(page: Page, request: Request) -> Response:
    """A part of the trace: what the run, a loop or an iteration consists of."""
    run_id, at, offset = (
        run_in(request),
        request.query_params.get("at", ""),
        number_in(request, "offset"),
    )
    if at and not is_loop(at):
        raise ConfigurationError("at: this is not a path")

    def work(view: RunView) -> str:
        nodes = branch_of(view, at, offset)
        end = offset + len(nodes)
        left = max(0, view.count(at) - end) if at else 0
        return render(
            "trace.html", nodes=nodes, at=at, start=offset, end=end, left=left, run_id=run_id
        )

    return HTMLResponse(await page.records.with_view(run_id, work))


_TYPES = {
    "html": "text/html", "json": "application/json", "csv": "text/csv",
    "jsonl": "application/jsonl", "candidates.csv": "text/csv", "cases.jsonl": "application/jsonl",
    "patch": "text/x-diff", "bundle": "application/octet-stream",
}  # fmt: skip


async def export(page: Page, request: Request) -> Response:
    """A run as a file in one of the formats of an export."""
    run_id, form = run_in(request), request.path_params["form"]
    if form not in _TYPES:
        raise ConfigurationError(f"form: unknown format; use one of {', '.join(_TYPES)}")
    info = await page.records.journal.find(run_id)
    entries = await page.records.journal.entries(info.run_id)
    content = await asyncio.to_thread(
        exported, form, info, entries, folder_of(page.records.journal)
    )
    charset = "; charset=utf-8" if isinstance(content, str) else ""
    return Response(
        content, media_type=f"{_TYPES[form]}{charset}",
        headers={"content-disposition": f'attachment; filename="{info.run_id}.{form}"'},
    )  # fmt: skip


async def start(page: Page, request: Request) -> Response:
    """The workflows of the project folder."""
    del request
    documents = await asyncio.to_thread(page.project.documents)
    folder = page.project.folder
    # Not below the home folder, or there is none.
    with contextlib.suppress(ValueError, RuntimeError):
        folder = Path("~") / folder.relative_to(Path.home())
    return HTMLResponse(
        render("start.html", documents=documents, folder=str(folder), fields_of=fields_of)
    )


async def _files(page: Page, run_id: str, loop: str) -> RunFiles:
    store = page.records.journal
    found = run_files(run_id, await store.entries(run_id), loop, folder_of(store))
    if found is None:
        raise ConfigurationError(f"{loop} has no workspace")
    return found


async def _item(page: Page, run_id: str, loop: str, number: int) -> Iteration:
    def work(view: RunView) -> Iteration:
        return view.iteration(loop, number)

    return await page.records.with_view(run_id, work)


async def difference(page: Page, request: Request) -> Response:
    """The files of two iterations side by side; without `a` those that iteration `b` changed, 0 is the start."""
    run_id, loop, after = run_in(request), loop_in(request), number_in(request, "b", default=1)
    before = number_in(request, "a") if "a" in request.query_params else None
    files, item = await _files(page, run_id, loop), await _item(page, run_id, loop, after)
    first = await _item(page, run_id, loop, before) if before else None

    def work() -> tuple[str, dict[str, list[int]]]:
        commit = files.commit_of(item)
        if before is None:
            return files.diff_from_parent(item), files.changes(item)
        start = files.base if first is None else files.commit_of(first)
        return files.readable_diff(start, commit), files.changes_between(start, commit)

    # Git reads the trees of large repositories, and other pages must not wait.
    patch, changes = await asyncio.to_thread(work)
    title = f"Files that iteration {after} changed"
    if before is not None:
        title = f"Files of {f'iteration {before}' if before else 'the start'} and iteration {after}"
    values = {"title": title, "changes": changes, "lines": lines_of(patch), "run_id": run_id}
    if request.query_params.get("part"):
        return HTMLResponse(render("patch.html", **values))
    name = await page.records.with_view(run_id, lambda view: name_of(loop, view.info))
    return HTMLResponse(render("files.html", name=name, **values))


async def branch(page: Page, request: Request, fields: dict[str, Json]) -> dict[str, Json]:
    """Make a branch of the files of an iteration in the user's repository."""
    files, item, loop = await _chosen(page, request, fields)
    name = text_of(fields.get("name")).strip()

    def work() -> str:
        saved, commit = files.saved(run_in(request), loop), files.commit_of(item)
        made = saved.branch_of(commit, f"{loop}: files of iteration {item.number}", name)
        filtered = f" Warning: {filtered_text(made.filtered)}." if made.filtered else ""
        keys = _keys(saved, commit)
        return f"Branch {made.name} has the files of iteration {item.number}.{keys}{filtered}"

    return {"said": await asyncio.to_thread(work)}


async def apply(page: Page, request: Request, fields: dict[str, Json]) -> dict[str, Json]:
    """Change the files of the user's folder by what a run changed up to an iteration.

    Without the number of files that the person confirmed, nothing changes, and the reply asks for it.
    """
    files, item, loop = await _chosen(page, request, fields)
    run_id = run_in(request)
    if (await page.records.journal.find(run_id)).status == "running":
        raise RunLocked(f"{run_id} is running. Wait for its end, or cancel it")

    def work() -> dict[str, Json]:
        saved, commit = files.saved(run_id, loop), files.commit_of(item)
        paths = saved.apply(commit, write=False)
        if not paths:
            return {"said": f"{saved.project} has these changes already. Nothing was changed."}
        # The folder may have changed since the question, so another number is asked about again.
        if fields.get("confirmed") != len(paths):
            count = texts.plural(len(paths), "file")
            question = f"Apply iteration {item.number} to {saved.project}? This changes {count}: {names_text(paths)}"
            return {"confirm": question, "confirmed": len(paths)}
        count = texts.plural(len(saved.apply(commit)), "file")
        return {"said": f"{count} of {saved.project} changed.{_keys(saved, commit)}"}

    return await asyncio.to_thread(work)


def _keys(saved: SavedWorkspace, commit: str) -> str:
    """Return a sentence for files that have a key, as the end of a run reports them."""
    warning = keys_text(saved.paths_with_keys(commit))
    return f" Warning: {warning}." if warning else ""


async def _chosen(
    page: Page, request: Request, fields: dict[str, Json]
) -> tuple[RunFiles, Iteration, str]:
    """Return the iteration that the fields of a form name."""
    run_id, loop, number = (
        run_in(request),
        text_of(fields.get("loop")),
        text_of(fields.get("number")),
    )
    if not is_loop(loop) or not (number.isascii() and number.isdigit() and len(number) < 6):
        raise ConfigurationError("name a loop and the number of one of its iterations")
    return await _files(page, run_id, loop), await _item(page, run_id, loop, int(number)), loop
