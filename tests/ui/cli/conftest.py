"""A folder with steps of Python in it, and the command line to run them with."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from loopwright.ui.cli import main
from warm_python import WarmProcess, warm_python

STEPS = '''
import asyncio, os, threading
from loopwright import (
    Budget, Evaluation, Loop, MaxIterations, ScoreAtLeast, Stop, Usage, Workflow, step,
)
from loopwright.errors import Suspended
from loopwright.records import Reason

SCORES = [0.25, 0.5, 0.9]
QUESTION = {"condition": "It is\\nshort", "answer": "NO"}

async def draft(value, ctx):
    """Write a draft, for a cent."""
    ctx.spend(Usage(1, 10, 5, 0.01))
    with open("effects.txt", "a") as file:
        print(f"draft {ctx.iteration}", file=file)
    return f"draft {ctx.iteration}\\nof {value}"

async def judge(output, ctx):
    """Score it by its number."""
    number = ctx.iteration
    votes = ({"condition": "It is short", "answer": number == 3},)
    return Evaluation(SCORES[number - 1], number == 3, f"round {number} is long", votes=votes)

refine = Loop(draft, judge, until=ScoreAtLeast(0.9), name="refine")
short = Loop(draft, judge, until=ScoreAtLeast(0.9) | MaxIterations(2), name="short")
inner = Loop(draft, judge, until=MaxIterations(2), name="inner")
outer = Loop(inner, judge, until=MaxIterations(2), name="outer")

async def broken(value):
    raise ValueError("no such thing")

fails = Loop(broken, name="fails")

async def waiting(value, ctx):
    """Answer twice, then wait for a file that says go."""
    while ctx.iteration > 2 and not os.path.exists("go.txt"):
        await asyncio.sleep(0.01)
    with open("effects.txt", "a") as file:
        print(f"waiting {ctx.iteration}", file=file)
    return ctx.iteration

waits = Loop(waiting, judge, until=MaxIterations(3), name="waits")

async def stubborn(value):
    """Never end, not even when cancelled."""
    print("begun", flush=True)
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            print("not I", flush=True)

def blocking(value):
    """Hold a thread for ever."""
    print("begun", flush=True)
    threading.Event().wait()

async def asking(value):
    """Wait for a person."""
    raise Suspended(Stop(Reason.APPROVAL, "a person must say yes"), path="asking",
                    request={"question": "Publish?"})

async def printing(value):
    """Print on stdout, in Python and in a child process."""
    print("from the step", flush=True)
    os.system("echo from its child")
    return {"given": value}

async def echo(value):
    """Give back what is given."""
    return value

async def strange(value):
    """Return what a terminal must not obey."""
    return "\\x1b[31mred\\x1b[0m \\u65e5\\u672c\\u8a9e\\x07"

both = Workflow("both", {"first": echo, "second": refine}, needs={"second": ["first"]})
not_a_step = [1, 2]
'''


@dataclass(frozen=True)
class Answer:
    """What a command did: its exit code and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one object on stdout."""
        return json.loads(self.out)


class Project:
    """A folder with `steps.py`, and the command line called in it."""

    def __init__(self, folder: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capture = capture
        self._started: list[WarmProcess] = []

    def call(self, *arguments: str) -> Answer:
        """Call the command line in this process."""
        self._capture.readouterr()
        code = main(arguments)
        out, err = self._capture.readouterr()
        return Answer(code, out, err)

    def run(self, *arguments: str, given: str = "", **environ: str) -> Answer:
        """Call it in a process of its own, and wait for its end."""
        words = ["-m", "loopwright", *arguments]
        done = warm_python().run(words, cwd=self.folder, env=self.environ(environ), input=given)
        return Answer(done.returncode, done.stdout, done.stderr)

    def start(self, *arguments: str, **environ: str) -> WarmProcess:
        """Start it in a process of its own, with pipes to read; it does not outlive the test."""
        words = ["-m", "loopwright", *arguments]
        process = warm_python().start(words, cwd=self.folder, env=self.environ(environ))
        self._started.append(process)
        return process

    def end(self) -> None:
        """End what still runs."""
        for process in self._started:
            process.kill()
            process.wait()
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()

    @staticmethod
    def environ(extra: dict[str, str]) -> dict[str, str]:
        """Return an environment in which only `extra` is said to the command line."""
        told = ("LOOPWRIGHT", "OTEL_", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "PYTHONIOENCODING")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(told)}
        return {**kept, "PYTHONUTF8": "1", **extra}

    def effects(self) -> list[str]:
        """Return what steps did to the world, in order."""
        file = self.folder / "effects.txt"
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Project]:
    """A fresh folder that is the current one."""
    (tmp_path / "steps.py").write_text(STEPS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("LOOPWRIGHT_JOURNAL", raising=False)
    monkeypatch.delenv("LOOPWRIGHT_TRUST", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("LOOPWRIGHT_DEBUG", raising=False)
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    sys.modules.pop("steps", None)
    made = Project(tmp_path, capsys)
    yield made
    made.end()
    sys.modules.pop("steps", None)
