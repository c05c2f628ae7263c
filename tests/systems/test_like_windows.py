"""Without the POSIX parts of Python: import, loops, journals, documents and commands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
LOOP = """
import sys
import loopwright
from loopwright import Loop, Passed, run_sync
from loopwright.evaluators import check
assert sys.modules["fcntl"] is None
loop = Loop(
    lambda value, ctx: value + "x" * ctx.iteration, check(lambda text: len(text) > 2), until=Passed()
)
for _ in range(2):
    result = run_sync(loop, "x", journal="sqlite:runs.db", run_id="one")
    print(result.status, len(result.history))
"""
LARGE = """
from loopwright import run_sync, step
@step
def write(size):
    return "x" * size
print(len(run_sync(write, 2**21, journal="sqlite:runs.db", run_id="one").output))
print(len(run_sync(write, 2**21, journal="sqlite:runs.db", run_id="one").output))
"""
TWO = """
import asyncio
from pathlib import Path
from loopwright.errors import JournalUnavailable
from loopwright.journal.sqlite.database import SideLock
first, second = SideLock(Path("lock")), SideLock(Path("lock"), patience=0)
with first:
    try:
        with second:
            print("both")
    except JournalUnavailable:
        print("one")
with second:
    print("released")
first.close(), second.close()
"""
MODEL = """
from loopwright import run_sync
from loopwright.models import Models, ScriptedModel
from loopwright.prompts import prompt
models = Models(ScriptedModel([{"replies": ["hello"]}]))
print(run_sync(prompt("Say hello", model="openai:any"), None, resources={"models": models}).output)
"""
DOCUMENT = """
from pathlib import Path
from loopwright import run_sync
from loopwright.documents import load
Path("doc.yaml").write_text(
    "schema: loopwright/1\\nname: a\\nsteps:\\n  - {name: b, shell: echo hello}\\n"
)
result = run_sync(load("doc.yaml").step, None, journal="sqlite:runs.db")
print(result.status, result.output.strip())
"""
COMMAND = """
import asyncio, sys
from loopwright.tools import run_command
done = asyncio.run(run_command([sys.executable, "-c", "print(input().upper())"], stdin="hello"))
print(done.exit_code, done.stdout.strip())
done = asyncio.run(run_command([sys.executable, "-c", "import sys; sys.exit('no')"]))
print(done.exit_code, done.stderr.strip())
try:
    asyncio.run(run_command(["no-such-program"]))
except Exception as error:
    print(error.kind)
"""
TREE = """
import asyncio, sys, time
from pathlib import Path
from loopwright.tools import run_command
child = "import time; time.sleep(600)"
parent = (
    "import subprocess, sys, time; "
    f"print(subprocess.Popen([sys.executable, '-c', {child!r}]).pid, flush=True); time.sleep(600)"
)
done = asyncio.run(run_command([sys.executable, "-c", parent], timeout=1.0))
print(done.timed_out, done.exit_code < 0)
pid, state = int(done.stdout), ""
for _ in range(500):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        state = "gone"
    if state in ("gone", "Z"):
        break
    time.sleep(0.01)
print(state in ("gone", "Z"))
"""


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        pytest.param(LOOP, "satisfied 2 satisfied 2", id="a loop and its SQLite journal"),
        pytest.param(LARGE, "2097152 2097152", id="a content beside the journal"),
        pytest.param(TWO, "one released", id="a lock excludes another opening"),
        pytest.param(MODEL, "hello", id="a model"),
        pytest.param(DOCUMENT, "satisfied hello", id="a document"),
        pytest.param(COMMAND, "0 HELLO 1 no cannot_start", id="a command"),
        pytest.param(TREE, "True True True", id="a command with its descendants"),
    ],
)
def test_a_program_runs_without_posix(tmp_path: Path, program: str, expected: str) -> None:
    """A program gives the same results where fcntl, fork and process groups are missing."""
    file = tmp_path / "program.py"
    file.write_text(program, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", str(HERE / "like_windows.py"), str(tmp_path), str(file)],
        capture_output=True, text=True, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert done.stderr == ""
    assert done.stdout.split() == expected.split()
