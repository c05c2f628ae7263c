"""Steps of the project that the page is tested on, and its runs."""

import asyncio
from pathlib import Path

from loopwright import (
    Budget,
    Evaluation,
    Loop,
    MaxIterations,
    ScoreAtLeast,
    Timeout,
    Usage,
    retry,
    run_sync,
)

SCORES = [0.3, 0.42, 0.4, 0.55, 0.61, 0.7, 0.68, 0.74]


def write(words):
    """Write."""
    return str(words)


def longer(last):
    """One word more."""
    return f"{last.input} more"


async def draft(value, ctx):
    """Write a draft for a cent or two."""
    n = ctx.iteration
    ctx.spend(Usage(1, 900 + 40 * n, 300, 0.012 + 0.002 * n))
    points = "".join(f"- point {i}\n" for i in range(n + 2))
    return f"# Release note\n\nVersion 2.{n} is out.\nOperators must convert by 30 June.\n{points}"


async def judge(output, ctx):
    """Judge it by its number."""
    n = ctx.iteration
    criteria = (
        {"name": "audience", "passed": n > 3, "gap": "" if n > 3 else "it names nobody"},
        {"name": "date", "passed": False, "gap": "it is not in the first sentence"},
    )
    score = SCORES[(n - 1) % len(SCORES)]
    return Evaluation(score, False, "Say first who must act, and by when", criteria=criteria)


note = Loop(
    draft,
    judge,
    until=ScoreAtLeast(0.8) | MaxIterations(8),
    guards=Budget(usd=0.5) | Timeout(60),
    name="release_note",
)
short = Loop(draft, judge, until=ScoreAtLeast(0.9) | MaxIterations(2), name="short")
inner = Loop(draft, judge, until=MaxIterations(2), name="paragraph")
chapter = Loop(inner, judge, until=ScoreAtLeast(0.9) | MaxIterations(2), name="chapter")
tried = {"n": 0}


async def shaky(value):
    """Answer at every second try only."""
    tried["n"] += 1
    if tried["n"] % 2:
        raise ConnectionError("the line was dropped")
    return f"answer {tried['n']}"


again = Loop(retry(shaky, delay=0.001), judge, until=MaxIterations(2), name="again")
asks = Loop(
    draft, judge, until=ScoreAtLeast(0.9) | MaxIterations(3), approve="iteration", name="asks"
)


async def broken(value):
    """Fail."""
    raise ValueError("the service answered 503 <b>bold</b>")


fails = Loop(broken, name="fetch")


async def slow(value, ctx):
    """Wait until there is a file that says which round may end."""
    while not Path(f"go-{ctx.iteration}").exists() and not Path("go-all").exists():
        await asyncio.sleep(0.01)
    return f"round {ctx.iteration}"


slowly = Loop(slow, judge, until=MaxIterations(6), name="slowly")


async def paced(value, ctx):
    """Take a moment; before the third round and the last one wait until they may begin."""
    while ctx.iteration in (3, 61) and not Path(f"many-{ctx.iteration}").exists():
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.08 if ctx.iteration > 2 else 0)
    return f"round {ctx.iteration}"


many = Loop(paced, judge, until=MaxIterations(61), name="many")


async def at_once(value, ctx):
    """Write a line."""
    return f"line {ctx.iteration}\n" * 3


thousand = Loop(at_once, judge, until=MaxIterations(1000), name="thousand")


def make():
    """Make the runs."""
    Path(".loopwright").mkdir(exist_ok=True)
    journal = "sqlite:.loopwright/runs.db?synchronous=normal"
    made = {
        "noted": ("note", note), "nested": ("chapter", chapter), "failed": ("fails", fails),
        "again": ("again", again), "asking": ("asks", asks), "exhausted": ("short", short), "limited": ("short", short),
    }  # fmt: skip
    for run_id, (name, loop) in made.items():
        source = {"python": f"steps:{name}", "root": str(Path.cwd())}
        given = "Write the release note for version 2.4"
        run_sync(loop, given, journal=journal, run_id=run_id, source=source)
    run_sync(thousand, "a thousand", journal=journal, run_id="thousand")
