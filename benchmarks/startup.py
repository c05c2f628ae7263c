"""Start-up: the time until a first iteration, the memory of the package, and the time of short commands.

The modules are compiled before, as `make install` and pip do it; otherwise this measures the compiler.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from .measuring import Row


def _seconds(*command: str) -> float:
    """Return the CPU seconds of a process, which other processes of the machine hardly change."""

    def once() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime

    return statistics.median(once() for _ in range(9))


_ASYNCIO = "import asyncio; asyncio.run(asyncio.sleep(0))"
_FIRST = """
import asyncio
from loopwright import Loop, run

async def same(value):
    return value

async def done(output):
    return 1.0

asyncio.run(run(Loop(same, done), 1))
"""
_DOCUMENT = """
schema: loopwright/1
name: greeting
steps:
  - name: hello
    shell: echo hello
"""
# VmHWM is the peak of this process; `ru_maxrss` would begin with that of its parent.
_PEAK = """
print(open("/proc/self/status").read().partition("VmHWM:")[2].split()[0])
"""


def _printed(code: str) -> float:
    """Return the median of the numbers that code prints."""

    def once() -> float:
        command = [sys.executable, "-c", code]
        return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    return statistics.median(once() for _ in range(9))


def _compile() -> None:
    """Write the caches of all modules that are imported, also where the environment forbids it."""
    variables = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-m", "loopwright", "--help"]
    subprocess.run(command, check=True, capture_output=True, env=variables)


def rows() -> Iterator[Row]:
    """Measure and yield the figures."""
    _compile()
    bare, first = _seconds(sys.executable, "-c", _ASYNCIO), _seconds(sys.executable, "-c", _FIRST)
    note = f"{first * 1e3:.0f} ms, a program that imports asyncio {bare * 1e3:.0f} ms"
    yield Row(
        "start to first iteration, CPU time to that of asyncio", first / bare, 100 / 60, note=note
    )
    empty = _printed(_PEAK) * 1024 / 1e6
    names = "from loopwright import Loop, run"
    memory = _printed(f"{names}\n{_PEAK}") * 1024 / 1e6 - empty
    yield Row("Loop and run, over bare python", memory, 25, "MB", f"bare {empty:.1f} MB")
    with tempfile.TemporaryDirectory() as folder:
        document = Path(folder, "greeting.yaml")
        document.write_text(_DOCUMENT, "utf-8")
        journal = f"sqlite:{folder}/runs.db"
        own = [sys.executable, "-m", "loopwright"]
        subprocess.run(
            [*own, "run", str(document), "--yes", "--journal", journal],
            check=True,
            capture_output=True,
        )
        yield Row("loopwright --version, CPU time", _seconds(*own, "--version"), 0.12, "s")
        yield Row("loopwright --help, CPU time", _seconds(*own, "--help"), 0.12, "s")
        yield Row(
            "loopwright runs, CPU time", _seconds(*own, "runs", "--journal", journal), 0.2, "s"
        )
        yield Row("loopwright check, CPU time", _seconds(*own, "check", str(document)), 0.4, "s")


if __name__ == "__main__":
    for row in rows():
        print(row)
