"""`memory`: the memory of loops and agents, which outlives their runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from ...errors import ConfigurationError, RunNotFound, listed, nearest
from ...journal import Journal
from ...journal.protocol import shown_url
from ...memory import Episode, Fact, View, ranked, view_of
from ...memory.entries import Memory
from ...records.codec import text_of
from .. import formatting as texts
from ..journals import DEFAULT, MAX_ROWS, command_line, reading
from .options import AsJson, JournalUrl
from .output import Output, Part

_STYLES = {"success": "green", "partial": "yellow", "failure": "red", "active": "green"}


def memory(
    space: Annotated[
        str,
        typer.Argument(metavar="SPACE", help="Space to show. Without it, the spaces are listed."),
    ] = "",
    journal: JournalUrl = DEFAULT,
    find: Annotated[
        str,
        typer.Option("--find", metavar="WORDS", help="Only entries that share words with WORDS."),
    ] = "",
    number: Annotated[
        str, typer.Option("--entry", metavar="ID", help="Show one episode or fact in full.")
    ] = "",
    only: Annotated[
        str,
        typer.Option(
            "--only", metavar="KIND", help="Only this kind: episodes, facts, notes or working."
        ),
    ] = "",
    limit: Annotated[
        int,
        typer.Option(
            "--limit", "-n", min=1, max=MAX_ROWS, help="Maximum number of rows, of each kind."
        ),
    ] = 10,
    everything: Annotated[
        bool, typer.Option("--all", help="Include superseded, doubted and removed entries.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """List the spaces of the memory, or show the episodes, facts and notes of one space.

    Examples:
        loopwright memory
        loopwright memory writing --find 'release date'
        loopwright memory writing --only facts --limit 50
    """
    if only and only not in _KINDS:
        hint = nearest(only, _KINDS) or f"; use one of {', '.join(_KINDS)}"
        raise ConfigurationError(f"--only: {only!r} is not a kind of memory{hint}")
    with Output(as_json=as_json) as output:
        try:
            views = reading(journal, lambda store: _views(store, space))
        except RunNotFound:  # the journal does not exist yet
            views = {}
        if not space:
            _spaces(views, journal, output)
        elif number:
            _one(views, space, number, output)
        else:
            entries = _entries_to_show(
                views[space] if space in views else View(), find, limit, everything
            )
            shown = {kind: entries[kind] for kind in ([only] if only else _KINDS)}
            _space(space, journal, views, shown, output)
    return 0


_KINDS = ("episodes", "facts", "notes", "working")


async def _views(store: Journal, space: str) -> dict[str, View]:
    """Return the view of one space, or of all spaces, by name."""
    # Memory is optional for a journal, and not part of its protocol.
    log: Memory | None = getattr(store, "memory", None)
    if log is None:
        raise ConfigurationError(
            "this journal has no memory. Use sqlite:PATH or postgres://HOST/DATABASE."
        )
    names = await log.spaces()
    if space and space not in names:
        hint = nearest(space, names) or listed(space, names, lead="there are")
        raise ConfigurationError(f"there is no space {space!r} in this memory{hint}")
    wanted = [space] if space else list(names)
    return {name: view_of(await log.entries(name)) for name in wanted}


def _entries_to_show(view: View, find: str, limit: int, everything: bool) -> dict[str, list[Any]]:
    """Return the entries of a space to show, by kind."""
    episodes = list(view.episodes.values()) if everything else view.live_episodes
    facts = list(view.facts.values()) if everything else view.live_facts
    # Without words to find, `ranked` returns the last ones, so the best facts stand at the end.
    facts.sort(key=lambda fact: fact.confidence * fact.relevance)
    working = [{"run": run, "values": values} for run, values in view.working.items() if values]
    return {
        "episodes": ranked(find, episodes, lambda item: item.text, limit=limit),
        "facts": ranked(find, facts, lambda item: item.text, limit=limit),
        "notes": ranked(
            find, list(view.notes.values()), lambda item: text_of(item.value), limit=limit
        ),
        "working": ranked(find, working, lambda item: text_of(item["values"]), limit=limit),
    }


def _spaces(views: Mapping[str, View], url: str, output: Output) -> None:
    rows: list[dict[str, Any]] = [
        {
            "space": name,
            "episodes": len(view.live_episodes),
            "facts": len(view.live_facts),
            "notes": len(view.notes),
            "success_rate": view.success_rate().rate,
            "unreadable": view.unreadable,
        }
        for name, view in views.items()
    ]
    if output.as_json:
        output.write_json({"spaces": rows})
        return
    if not rows:
        output.note(f"no memory in {shown_url(url)}")
    for row in rows:
        kinds = (("episodes", "episode"), ("facts", "fact"), ("notes", "note"))
        counts = [texts.plural(row[key], word) for key, word in kinds if row[key]]
        output.write((texts.one_line(row["space"]), "bold"), f"  {', '.join(counts) or 'empty'}")


def _space(
    name: str, url: str, views: Mapping[str, View], shown: Mapping[str, list[Any]], output: Output
) -> None:
    view = views[name] if name in views else View()
    if output.as_json:
        rows = {kind: [_json(item) for item in items] for kind, items in shown.items()}
        success = view.success_rate().to_json()
        output.write_json(
            {"space": name, "success": success, "unreadable": view.unreadable, **rows}
        )
        return
    rate = view.success_rate()
    if rate.total and "episodes" in shown:
        output.write(f"{rate.successes} of {texts.plural(rate.total, 'episode')} successful")
    for kind, items in shown.items():
        for item in items:
            output.write(*_line(kind, item, output))
    if not any(shown.values()):
        output.note(f"no entries to show in {name!r}")
    if view.unreadable:
        output.note(
            f"{view.unreadable} damaged {'entry' if view.unreadable == 1 else 'entries'} omitted"
        )
    episode = next(iter(shown.get("episodes", ())), None)
    if episode is not None:
        command = command_line("memory", name, url, "--entry", str(episode.id))
        output.write(("details: ", "dim"), command)


def _json(item: Any) -> Any:
    if isinstance(item, Episode | Fact):
        return item.to_json()
    return item if isinstance(item, dict) else {
        "seq": item.seq, "value": item.value, "at": item.at, "run": item.run,
    }  # fmt: skip


def _line(kind: str, item: Any, output: Output) -> list[Part]:
    if kind == "working":
        head: list[Part] = [(f"working memory of run {item['run'] or '-'}", "dim"), "  "]
        text = text_of(item["values"])
    elif kind == "notes":
        head = [(f"{item.seq:>6}  note     {texts.when(item.at)}", "dim"), "  "]
        text = text_of(item.value)
    elif kind == "facts":
        head = [
            f"{item.id}  ", (f"{item.status:9}", _STYLES.get(item.status, "")),
            f"{item.confidence:.2f}  ", (f"{item.category}  " if item.category else "", "dim"),
        ]  # fmt: skip
        text = item.text
    else:
        head = [
            f"{item.id:>6}  ", (f"{item.outcome:8}", _STYLES[item.outcome]),
            f" {texts.score(item.score):5} ", (f"{texts.when(item.at)}  ", "dim"),
            f"{texts.one_line(item.action)}  ",
        ]  # fmt: skip
        last = item.tried[-1] if item.tried else ""
        tried = text_of(last.get("tried", last) if isinstance(last, Mapping) else last)
        text = item.feedback or item.description or tried
    used = sum(texts.width(part if isinstance(part, str) else part[0]) for part in head)
    room = max(20, output.width - used)
    return [*head, texts.fit(texts.one_line(text), room, output.signs)]


def _one(views: Mapping[str, View], space: str, number: str, output: Output) -> None:
    view = views[space] if space in views else View()
    by_id: dict[str, Any] = {str(key): item for key, item in view.episodes.items()}
    by_id |= view.facts
    if number not in by_id:
        raise ConfigurationError(
            f"--id: {space} has no episode or fact {number!r}{nearest(number, by_id)}"
        )
    data = by_id[number].to_json()
    if output.as_json:
        output.write_json({"space": space, **data})
        return
    for name, value in data.items():
        if value in (None, "", [], False):
            continue
        if name == "tried":
            output.write(("tried:", "bold"))
            for item in value:
                output.write(f"  {texts.one_line(text_of(item))}")
            continue
        when = name in ("at", "touched")
        text = texts.when(value) if when else texts.one_line(text_of(value))
        output.write((f"{name}: ", "bold"), text)
