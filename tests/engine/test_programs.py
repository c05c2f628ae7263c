"""A Python program names its step where the command line can import it again, and nowhere else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HEAD = """
from loopwright import Budget, Loop, MaxIterations, run_sync

def grow(value, ctx):
    return value

loop = Loop(grow, until=MaxIterations(2), name="l")
"""
GUARD = '\nif __name__ == "__main__":\n    '
RUN = 'run_sync({step}, "x", journal="sqlite:runs.db", run_id="one"{more})\n'
TELL = """
import asyncio, json, sys
from loopwright.journal import open_journal

async def main():
    journal = open_journal("sqlite:runs.db")
    source = (await journal.find("one")).source
    print(json.dumps([source.get("program"), source.get("root")]))
    await journal.close()

asyncio.run(main())
"""


def python(folder: Path, *words: str, code: int = 0) -> str:
    """Run Python in a folder, and return what it prints."""
    env = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=env, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    ("name", "text", "words", "program"),
    [
        ("prog.py", HEAD + GUARD + RUN.format(step="loop", more=""), ["prog.py"], "prog:loop"),
        ("prog.py", HEAD + GUARD + RUN.format(step="grow", more=""), ["prog.py"], "prog:grow"),
        ("pkg/flow.py", HEAD + GUARD + RUN.format(step="loop", more=""), ["-m", "pkg.flow"], "pkg.flow:loop"),
        ("pkg/flow.py", HEAD, ["-c", "from pkg import flow; flow." + RUN.format(step="flow.loop", more="")],
         "pkg.flow:loop"),
        # An import would run it again.
        ("prog.py", HEAD + RUN.format(step="loop", more=""), ["prog.py"], None),
        # Not a name of the module, or only of the script.
        ("prog.py", HEAD + GUARD + RUN.format(step="Loop(grow, name='l', until=MaxIterations(1))", more=""),
         ["prog.py"], None),
        ("prog.py", HEAD + GUARD + "mine = Loop(grow, name='l')\n    " + RUN.format(step="mine", more=""),
         ["prog.py"], None),
        # What is passed beside the step cannot be found again.
        ("prog.py", HEAD + GUARD + RUN.format(step="loop", more=", budget=Budget(calls=3)"), ["prog.py"], None),
        ("prog.py", HEAD + GUARD + RUN.format(step="loop", more=", resources={'a': 1}"), ["prog.py"], None),
        ("my prog.py", HEAD + GUARD + RUN.format(step="loop", more=""), ["my prog.py"], None),
    ],
)  # fmt: skip
def test_a_program_names_its_step_where_it_can_be_imported(
    name: str, text: str, words: list[str], program: str | None, tmp_path: Path
) -> None:
    """`program` and `root` of the row, which `resume` imports from; nothing otherwise."""
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    python(tmp_path, *words)
    expected = [program, str(tmp_path) if program else None]
    assert json.loads(python(tmp_path, "-c", TELL)) == expected


def test_a_program_is_imported_after_the_approval_of_its_contents(tmp_path: Path) -> None:
    """Without an approval nothing of it is executed; an approval covers the module and those that it imports."""
    (tmp_path / "helper.py").write_text("open('imported', 'a').write('h')\n")
    (tmp_path / "prog.py").write_text(
        "import helper\n" + HEAD + GUARD + RUN.format(step="loop", more="")
    )
    python(tmp_path, "prog.py")
    (tmp_path / "imported").unlink()
    resume = [
        "-m",
        "loopwright",
        "resume",
        "one",
        "--max-iterations",
        "3",
        "--journal",
        "sqlite:runs.db",
    ]
    told = python(tmp_path, *resume, code=2)
    assert (
        f"prog:loop needs your approval: it runs 1 Python function on this machine. Review its code in {tmp_path}"
        in told
    )
    assert not (tmp_path / "imported").exists()
    assert "Exhausted: 3 of 3" in python(tmp_path, *resume, "--yes", code=3)
    again = [*resume[:4], "--max-iterations", "4", *resume[6:]]
    (tmp_path / "helper.py").write_text("open('imported', 'a').write('changed')\n")
    assert "needs your approval" in python(tmp_path, *again, code=2)
    assert (tmp_path / "imported").read_text() == "h"
