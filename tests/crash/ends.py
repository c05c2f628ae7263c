"""Every shape of a tree of processes with every way in which a run of a coding agent ends: part of `make torture`.

    python -m crash.ends [SHAPE:ENDING …]

The agent improves a file in iteration 1. In iteration 2 it starts processes and then ends, or waits until something
ends it. Afterwards no process is left, the user's repository is as before, and the best file is in place.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loopwright import Context, Loop, MaxIterations, ScoreAtLeast, Timeout, Workspace, agent
from loopwright.coding.agents import Manifest
from loopwright.testing.fake_agent import manifest
from loopwright.ui.cli import main as loopwright

from .kills import repository
from .workspace_program import user_files

QUIET = "> /dev/null 2>&1"
# MARK is a number of seconds that no other process has in its command line.
SHAPES = {
    "child": f"sleep MARK {QUIET} &",
    "holds the pipes": "sleep MARK &",
    "ignores signals": f"sh -c 'trap \"\" INT TERM HUP; while :; do sleep MARK; done' {QUIET} &",
    "new session": f"setsid sleep MARK {QUIET} &",
    "double fork": f"(setsid sh -c 'sleep MARK & sleep MARK &' {QUIET} &)",
    "nohup": f"nohup setsid sleep MARK {QUIET} &",
    "stopped": f"sleep MARK {QUIET} & kill -STOP $!",
    "zombie's parent": f"sh -c 'sleep 0 & exec sleep MARK' {QUIET} &",
    "forks in a loop": f"sh -c 'while :; do sleep MARK & sleep 0.2; done' {QUIET} &",
    "no environment": f"env -i setsid sleep MARK {QUIET} &",
}
FORMATS = ("claude", "codex", "gemini", "qwen", "opencode")
WAIT = {"wait": 300}
SPENT = [{"raw": json.dumps({"cost": n / 10})} for n in (1, 2, 3)]
SEPARATOR = ", "
LIMIT = 5.0  # seconds of a limit: iteration 1 takes less
LEFT = 10.0  # seconds in which the processes must be gone
PATIENCE = 120.0  # seconds for one command


@dataclass(frozen=True)
class Ending:
    """How a run ends.

    Args:
        code: the exit code of the command.
        actions: what the agent does after it started the processes.
        words: more words of the command line.
        best: the content of the best file.
        options: of the agent.
        timeout: seconds for the loop, or None.
        act: what happens to the run while the agent waits.
        resumed: whether the run continues afterwards, and is satisfied then.
    """

    code: int
    actions: list[dict[str, Any]] = field(default_factory=lambda: [WAIT])
    words: tuple[str, ...] = ()
    best: str = "1"
    options: dict[str, Any] = field(default_factory=dict)
    timeout: float | None = None
    act: Callable[[int, Path], None] | None = None
    resumed: bool = False


def to_group(number: signal.Signals) -> Callable[[int, Path], None]:
    """As a terminal does, which sends it to the group of the command."""
    return lambda pid, _: os.killpg(pid, number)


def to_process(number: signal.Signals) -> Callable[[int, Path], None]:
    return lambda pid, _: os.kill(pid, number)


def cancel(_: int, folder: Path) -> None:
    if ended(start(folder, "cancel", "r", *journal(folder), log="cancel")) != 0:
        raise AssertionError("the run could not be cancelled")


def kill_supervisors(pid: int, _: Path) -> None:
    """Kill the supervisors of the run's agents, and not the program that forks them."""
    for number, parent in parents().items():
        with contextlib.suppress(OSError):
            title = Path(f"/proc/{number}/comm").read_text()
            if title.startswith("lw-") and parents().get(parent) == pid:
                os.kill(number, signal.SIGKILL)


ENDINGS = {
    "satisfied": Ending(0, [{"say": "done"}], best="2"),
    "exhausted": Ending(3, [{"say": "done"}]),
    "failed": Ending(1, [{"fail": "401 Invalid API key"}]),
    "time limit": Ending(1, options={"timeout": LIMIT}),
    "no output": Ending(1, options={"idle_timeout": LIMIT}),
    "deadline": Ending(3, timeout=2 * LIMIT),
    "budget": Ending(3, [*SPENT, WAIT], ("--max-usd", "0.2")),
    "SIGINT": Ending(130, act=to_group(signal.SIGINT)),
    "SIGTERM": Ending(130, act=to_process(signal.SIGTERM)),
    "SIGHUP": Ending(130, act=to_group(signal.SIGHUP)),
    "cancel": Ending(130, act=cancel),
    "kill -9": Ending(-9, act=to_process(signal.SIGKILL), best="2", resumed=True),
    "kill -9 of the supervisor": Ending(1, act=kill_supervisors),
}
# Only a supervisor finds a process that has neither its session nor its environment.
IMPOSSIBLE = {("no environment", "kill -9 of the supervisor")}


def loop_of(folder: Path, name: str, mark: str, form: str, *, again: bool) -> Loop[Any, Any]:
    """Return the loop of a cell; the agent of a resumed run only writes the file."""
    end, shape = ENDINGS[name], SHAPES[folder.name.partition(SEPARATOR)[0]].replace("MARK", mark)
    second = [{"run": shape}, {"write": {"n.txt": "2"}}, *end.actions]
    if again:
        second = [{"write": {"n.txt": "2"}}, {"say": "done"}]
    script = folder / "script.json"
    done = (
        {"raw": json.dumps({"cost": 0.01, "text": "done"})} if name == "budget" else {"say": "done"}
    )
    script.write_text(json.dumps([[{"write": {"n.txt": "1"}}, done], second]))
    made = manifest("text" if name == "budget" else form, script)
    if name == "budget":
        made |= {"events": "fields", "fields": {"usd": "/cost", "text": "/text"}, "usd": True}

    def judge(_: object, ctx: Context) -> float:
        assert ctx.folder is not None
        number = (ctx.folder / "n.txt").read_text()
        return {"1": 0.6, "2": 0.95 if end.best == "2" else 0.4}[number]

    return Loop(
        agent(Manifest.model_validate(made), "work", **end.options),
        evaluate=judge,
        until=ScoreAtLeast(0.9) | MaxIterations(2) | Timeout(end.timeout or 3600),
        name="fix",
        workspace=Workspace(folder / "project", home=folder / "home", merge="none"),
    )


def journal(folder: Path) -> tuple[str, str]:
    return "--journal", f"sqlite:{folder / 'runs.db'}"


def start(folder: Path, *words: str, log: str) -> int:
    """Start the command line in a child that has our imports already; return its process id."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.setsid()
        # As at a terminal: nohup and the background of a shell ignore them, and a fork inherits that.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        os.chdir(folder)
        sys.path.insert(0, str(folder))
        with (folder / f"{log}.log").open("w") as output:
            for stream in (1, 2):
                os.dup2(output.fileno(), stream)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        code = loopwright(list(words))
    except SystemExit as error:
        code = int(error.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def ended(pid: int) -> int | None:
    """Wait for a child; return its exit code, or None if it does not end."""
    for _ in pauses(PATIENCE):
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


def pauses(seconds: float) -> Iterator[None]:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        yield
        time.sleep(0.05)


def processes() -> list[Path]:
    return [place for place in Path("/proc").iterdir() if place.name.isdigit()]


def parents() -> dict[int, int]:
    """Return the parent of each process."""
    found = {}
    for place in processes():
        with contextlib.suppress(OSError):
            stat = (place / "stat").read_text()
            found[int(place.name)] = int(stat.rpartition(")")[2].split()[1])
    return found


def left(mark: str) -> list[str]:
    """Return the command lines with the mark."""
    found = []
    for place in processes():
        with contextlib.suppress(OSError):
            line = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            found += [line] if mark in line and "fake_agent" not in line else []
    return found


def best(folder: Path) -> str:
    """Return the content of the file in the workspace."""
    places = [
        file
        for file in (folder / "home").rglob("n.txt")
        if file.is_relative_to(folder / "home" / "trees")
    ]
    return " and ".join(file.read_text() for file in places)


def problem(folder: Path, name: str, mark: str, form: str) -> str:
    """Run a cell in a new folder; return "" or what is wrong."""
    end = ENDINGS[name]
    repository(folder, {"n.txt": "0"})
    (folder / "project" / "dirty").write_text("dirty")
    before = user_files(folder / "project", "copy")
    steps = f"import crash.ends as e, pathlib\nloop = e.loop_of(pathlib.Path({str(folder)!r}), {name!r}, {mark!r}, {form!r}, again={{}})\n"
    (folder / "steps.py").write_text(steps.format(False))
    command = ["run", "steps:loop", "--run-id", "r", "--yes", *journal(folder), *end.words]
    pid = start(folder, *command, log="run")
    if end.act is not None:
        if not any(left(mark) for _ in pauses(PATIENCE)):
            return "the processes never started"
        end.act(pid, folder)
    code = ended(pid)
    if code != end.code:
        return f"it exited with {code} and not {end.code}"
    if all(left(mark) for _ in pauses(LEFT)):
        return f"left: {left(mark)}"
    if end.resumed:
        (folder / "steps.py").write_text(steps.format(True))
        if (code := ended(start(folder, *command, "--in-doubt", "rerun", log="again"))) != 0:
            return f"the resumed run exited with {code}"
    if user_files(folder / "project", "copy") != before:
        return "the user's files changed"
    return "" if best(folder) == end.best else f"the file in place is {best(folder)!r}"


def main(words: list[str]) -> int:
    """Run the named cells, or all; print those in which something is wrong."""
    cells = [(s, e) for s in SHAPES for e in ENDINGS if (s, e) not in IMPOSSIBLE]
    cells = [cell for cell in cells if not words or ":".join(cell) in words]
    root = Path(tempfile.mkdtemp(prefix="ends-"))
    workers = []
    for worker in range(min(WORKERS, len(cells))):
        if (pid := os.fork()) == 0:
            os._exit(min(tried(root, cells, worker), 100))
        workers.append(pid)
    failed = sum(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in workers)
    print(f"{len(cells)} cells of ends, {failed} failed" + (f"; see {root}" if failed else ""))
    if not failed:
        shutil.rmtree(root)
    return int(bool(failed))


WORKERS = 4  # cells at the same time: most of them wait


def tried(root: Path, cells: list[tuple[str, str]], worker: int) -> int:
    """Run every n-th cell; return how many failed."""
    failed = 0
    for number in range(worker, len(cells), WORKERS):
        shape, name = cells[number]
        folder = root / f"{shape}{SEPARATOR}{name}"
        wrong = problem(folder, name, f"4322.{os.getpid()}{number:03}", FORMATS[number % 5])
        if wrong:
            failed += 1
            print(f"{shape}, {name}: {wrong}", flush=True)
        else:
            shutil.rmtree(folder)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
