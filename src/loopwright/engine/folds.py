"""Paths that a resume does not enter, because one entry of the journal stands for what happened there.

Such an entry is appended after everything at and under its path has ended. A resume does not load what it stands
for; usage, judging and effects still count in every account above.
"""

from __future__ import annotations

from ..journal import Entry
from ..records.codec import Json
from .context import Context
from .effects import check_same
from .step import Step

__all__ = ["fold", "folded"]


def fold(ctx: Context, value: Json = None, fingerprint: str = "") -> None:
    """Record that everything at and under the path of a context has ended.

    Args:
        ctx: the context, whose account is that of its path alone.
        value: what a resume needs of it.
        fingerprint: the identity of what ran there, `STEP:INPUT`.
    """
    run, path, account, replay = ctx.run, ctx.path, ctx.account, ctx.run.replay
    if run.silent:
        return
    now, judging = run.now(), account.judging
    began = None if replay is None else replay.began(path)
    if replay is not None:
        judging += replay.judged(path)
    kept: dict[str, Json] = {"effects": account.all_effects(), "value": value}
    if judging:
        kept["judging"] = judging.to_json()
    entry = Entry("folded", path, now if began is None else began, kept, fingerprint)
    entry.usage, entry.seconds = account.settled, now - entry.at
    run.append(entry)


def folded(ctx: Context, step: Step, fingerprint: str = "") -> Entry | None:
    """Return the entry that stands for the path of a context, or None.

    Raises:
        ReplayMismatch: if the step or its input changed, unless that was accepted.
    """
    replay = ctx.run.replay
    entry = None if replay is None else replay.folded.get(ctx.path)
    if entry is not None:
        check_same(ctx.run, entry, fingerprint, step)
    return entry
