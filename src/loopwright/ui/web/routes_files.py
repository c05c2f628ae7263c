"""The routes of the files of a run: differences of iterations, and branches and changes made from them."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from ...coding.workspace.saved import SavedWorkspace
from ...errors import ConfigurationError, RunLocked
from ...journal.views import RunView
from ...records import Iteration
from ...records.codec import Json, text_of
from .. import formatting as texts
from ..journals import folder_of
from ..run_files import RunFiles, filtered_text, keys_text, names_text, run_files
from .access import is_loop
from .page import Page
from .patch_lines import lines_of
from .render import render
from .routes_read import loop_in, number_in, run_in
from .run_header import name_of


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
            return {"confirm": _question(saved, item, paths), "confirmed": len(paths)}
        count = texts.plural(len(saved.apply(commit)), "file")
        return {"said": f"{count} of {saved.project} changed.{_keys(saved, commit)}"}

    return await asyncio.to_thread(work)


def _question(saved: SavedWorkspace, item: Iteration, paths: list[str]) -> str:
    """Return the question before the files of the user's folder change."""
    count = texts.plural(len(paths), "file")
    return f"Apply iteration {item.number} to {saved.project}? This changes {count}: {names_text(paths)}"


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
