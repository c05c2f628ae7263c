"""Process trees: whatever a command started ends with it, with the run, and before a resume."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from processes import alive, done, gone, noted, pids
from tree_steps import step_of

from loopwright import Loop, MaxIterations, Timeout, run, run_sync
from loopwright.engine.run import TOKEN, end_leftovers
from loopwright.errors import StepTimeout
from loopwright.tools import ShellStep, run_command
from loopwright.tools.supervised import EndedProcess, Supervised

NOTE = 'touch "$$"; exec sleep 60'  # a process that notes its number and stays
AWAY = {
    "setsid": f"setsid sh -c '{NOTE}' &",
    "nohup": f"nohup setsid sh -c '{NOTE}' >/dev/null 2>&1 &",
    "deaf": f"setsid sh -c 'trap \"\" TERM INT HUP; {NOTE}' >/dev/null 2>&1 &",
    "no environment": "setsid env -i /bin/sh -c 'touch $$; exec /bin/sleep 60' >/dev/null 2>&1 &",
}
DAEMON = """
import os, pathlib, signal, time
if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for number in range(3):
    os.dup2(os.open(os.devnull, os.O_RDWR), number)
pathlib.Path(str(os.getpid())).touch()
time.sleep(60)
"""
AWAY["double fork"] = f"{sys.executable} -c '{DAEMON}'"
KINDS = pytest.mark.parametrize("kind", AWAY)


@KINDS
def test_the_tree_ends_with_the_command(kind: str, tmp_path: Path) -> None:
    """What a command leaves behind ends with it, in whatever session it is."""
    result = done(run_command(f"{AWAY[kind]}\n{waiting(1)}", cwd=tmp_path))
    assert result.exit_code == 0, result.stderr
    assert len(pids(tmp_path)) == 1
    assert gone(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["deaf", "double fork"])
def test_the_tree_ends_at_a_time_limit(kind: str, tmp_path: Path) -> None:
    """At its own time limit a step ends every process below it."""
    step = ShellStep(f"{AWAY[kind]}\n{waiting(1)}\ntouch $$\nsleep 60", cwd=tmp_path, timeout=3)
    with pytest.raises(StepTimeout):
        done(step.run_command(None, None))  # type: ignore[arg-type]
    assert len(pids(tmp_path)) == 2
    assert gone(tmp_path)


@KINDS
def test_the_tree_ends_with_a_cancel(kind: str, tmp_path: Path) -> None:
    """A cancelled caller leaves no process."""

    async def cancelled() -> None:
        script = f"{AWAY[kind]}\ntouch $$; sleep 60"
        task = asyncio.ensure_future(run_command(script, cwd=tmp_path))
        await noted(tmp_path, 2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    done(cancelled())
    assert gone(tmp_path)


@pytest.mark.slow
def test_the_tree_ends_at_the_deadline_of_a_loop(tmp_path: Path) -> None:
    """A deadline ends the call in flight with its whole tree."""
    step = ShellStep(f"{AWAY['deaf']}\ntouch $$; sleep 60", cwd=tmp_path)
    result = run_sync(Loop(step, until=MaxIterations(1) | Timeout(3)), None)
    assert result.reason.value == "timeout"
    assert len(pids(tmp_path)) == 2
    assert gone(tmp_path)


def waiting(count: int) -> str:
    """Return a script that waits until so many processes are noted."""
    return f"while [ $(ls | grep -c '^[0-9]*$') -lt {count} ]; do sleep 0.01; done"


def killed(journal: Path, folder: Path, script: str, count: int) -> None:
    """Start a run in a process of its own, and kill that once its processes are noted."""
    program = [sys.executable, str(Path(__file__).with_name("tree_steps.py"))]
    with subprocess.Popen([*program, str(journal), str(folder), script]) as process:
        asyncio.run(noted(folder, count))
        os.kill(process.pid, signal.SIGKILL)


@KINDS
def test_the_tree_ends_when_the_run_is_killed(kind: str, tmp_path: Path) -> None:
    """After kill -9 of the run no process of its shell step is left."""
    folder = tmp_path / "work"
    folder.mkdir()
    killed(tmp_path / "runs.db", folder, f"{AWAY[kind]}\ntouch $$; sleep 60", 2)
    assert gone(folder)


@pytest.mark.slow
def test_a_resume_ends_the_old_tree_before_it_asks(tmp_path: Path) -> None:
    """When the question whether to run a step again is asked, nothing of its first attempt runs."""
    folder, journal = tmp_path / "work", tmp_path / "runs.db"
    folder.mkdir()
    script = f"{AWAY['deaf']}\n{AWAY['no environment']}\ntrap '' TERM\ntouch $$; sleep 60"
    killed(journal, folder, script, 3)
    result = run_sync(
        step_of(str(folder), script), None, journal=f"sqlite:{journal}", run_id="busy"
    )
    assert not any(alive(pid) for pid in pids(folder))
    assert (result.status.value, result.request["kind"]) == ("suspended", "doubt")  # type: ignore[index]


async def test_what_has_no_supervisor_is_found_by_its_environment(tmp_path: Path) -> None:
    """Processes that name the run in their environment are ended, others are not."""
    words = ["sh", "-c", 'touch "$$"; sleep 60 & wait']
    given = {**os.environ, TOKEN: "0123456789abcdef"}
    mine = subprocess.Popen(words, env=given, cwd=tmp_path, start_new_session=True)
    others = subprocess.Popen(["sleep", "60"], env={**os.environ, TOKEN: "another"})
    await noted(tmp_path, 1)
    waiter = asyncio.create_task(asyncio.to_thread(mine.wait))
    assert await end_leftovers("0123456789abcdef") == []
    assert await waiter == -signal.SIGKILL
    assert others.poll() is None
    assert await end_leftovers("another", tmp_path) == []  # as a system without /proc is asked
    assert others.wait() == -signal.SIGKILL


async def test_the_report_names_what_had_to_be_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A supervisor says which processes it ended, and how."""
    # A busy machine needs longer to kill a tree, and `end` releases its supervisor after this time.
    monkeypatch.setattr("loopwright.tools.supervised.SETTLE", 60.0)
    script = f"{AWAY['deaf']}\ntouch $$; exec sleep 60"
    program = Supervised(["sh", "-c", script], env=dict(os.environ), cwd=tmp_path, stdin=False)
    await noted(tmp_path, 2)
    # Each notes its number before it becomes `sleep`, and the report has the name at the end.
    while {name_of(pid) for pid in pids(tmp_path)} != {"sleep"}:
        await asyncio.sleep(0.005)
    ending = asyncio.create_task(program.end(60.0))
    await program.exited  # it obeyed the interrupt, however long it waited for a processor
    assert await program.end(0.0)
    assert await ending
    ended = {(item.how, item.name) for item in program.ended}
    assert ended == {("asked", "sleep"), ("killed", "sleep")}
    assert isinstance(program.ended[0], EndedProcess)
    assert program.returncode == -signal.SIGTERM
    close(program)


async def test_the_interrupt_is_what_it_is_said_to_be(tmp_path: Path) -> None:
    """A program is asked to end by the signal of its choice."""
    script = "trap 'exit 7' INT; touch $$; while :; do sleep 0.01; done"
    words, env = ["bash", "-c", script], dict(os.environ)
    program = Supervised(words, env=env, cwd=tmp_path, stdin=False, interrupt=signal.SIGINT)
    await noted(tmp_path, 1)
    assert await program.end(10.0)
    assert program.returncode == 7
    close(program)


async def test_a_killed_supervisor_leaves_no_program(tmp_path: Path) -> None:
    """A program whose supervisor was killed dies with it, also what left its session, and that is known."""
    script = f"{AWAY['setsid']}\ntouch $$; sleep 60"
    program = Supervised(["sh", "-c", script], env=dict(os.environ), cwd=tmp_path)
    await noted(tmp_path, 2)
    stat = Path(f"/proc/{program.pid}/stat").read_text()
    os.kill(int(stat.rpartition(")")[2].split()[1]), signal.SIGKILL)
    await program.gone
    assert program.returncode == -signal.SIGKILL
    assert await program.end(0)
    assert gone(tmp_path)
    close(program)


LATE = """
import asyncio, os, signal, sys
from loopwright.tools.supervised import Supervised

async def main():
    first = Supervised(["true"], env=dict(os.environ), stdin=False)
    await first.gone
    print("ready", flush=True)
    sys.stdin.readline()
    # Not ended at once by the interrupt of its supervisor, so that a mistake is always visible.
    Supervised(["touch", "started"], env=dict(os.environ), cwd=sys.argv[1], stdin=False, interrupt=signal.SIGCONT)
    print("sent", flush=True)
    sys.stdin.readline()

asyncio.run(main())
"""


def test_a_program_does_not_start_after_its_run_was_killed(tmp_path: Path) -> None:
    """A request that a killed run left behind is dropped: nothing changes files after a resume has begun."""
    marker = f"LC_TEST={tmp_path}"  # the server of supervisors keeps variables of this name
    with subprocess.Popen(
        [sys.executable, "-c", LATE, str(tmp_path)],
        env={**os.environ, "LC_TEST": str(tmp_path), TOKEN: "fedcba9876543210"},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as client:  # fmt: skip
        assert client.stdin is not None
        assert client.stdout is not None
        assert client.stdout.readline() == "ready\n"
        (server,) = set(named(marker)) - {client.pid}
        while state(server) != "S":  # it waits for the next request
            os.sched_yield()
        os.kill(server, signal.SIGSTOP)
        while state(server) != "T":
            os.sched_yield()
        client.stdin.write("\n")
        client.stdin.flush()
        assert client.stdout.readline() == "sent\n"
        client.kill()
    assert asyncio.run(end_leftovers("fedcba9876543210")) == []
    os.kill(server, signal.SIGCONT)
    # Twice: the server may end after it forked a process that the first list does not have.
    while named(marker) or named(marker):
        os.sched_yield()
    assert not (tmp_path / "started").exists()


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def named(variable: str) -> list[int]:
    """Return the processes that have a variable in their environment."""
    return [
        int(environment.parent.name)
        for environment in Path("/proc").glob("[0-9]*/environ")
        if variable.encode() in content(environment).split(b"\0")
    ]


def content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:  # it has ended
        return b""


def name_of(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def close(program: Any) -> None:
    for pipe in (program.stdin, program.stdout, program.stderr):
        if pipe is not None:
            pipe.close()


async def test_commands_of_a_run_name_it_in_their_environment(tmp_path: Path) -> None:
    """The token is the same in every attempt of a run, and another for each journal."""
    step = ShellStep('printf %s "$LOOPWRIGHT_RUN"')
    found = [
        (await run(step, None, journal=f"sqlite:{tmp_path / name}.db", run_id="same")).output
        for name in ("a", "b")
    ]
    assert len(set(found)) == 2
    assert all(len(token) == 16 for token in found)
