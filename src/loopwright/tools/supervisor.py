"""Runs programs and ends each of them together with every process below it.

    python -I -S -X utf8 supervisor.py SOCKET

A program of its own, without imports of this package. It waits at a socket for programs to run and
forks a supervisor for each, which costs a millisecond where a start of Python costs twenty. The
other side is `supervising`. A request is the length of a JSON object in 8 bytes, with five open files
(standard streams, CONTROL, STATUS), and the object: `words`, `env`, `cwd`, `interrupt`, `grace`,
`linger`, `title`.

Rules:

1. A program runs in a session of its own. Its supervisor adopts every process below it whose parent
   ends (PR_SET_CHILD_SUBREAPER), so neither setsid nor a double fork leaves the tree.
2. The end begins when CONTROL says `end SECONDS` or closes, when the process that asked is gone, on
   SIGTERM, or `linger` seconds after the program ended.
3. At the end the program's group gets `interrupt`, and once the program is gone so does the rest. What
   is there after the grace is stopped, so that it can start nothing, and killed, until none is left.
4. STATUS says `started PID`, `failed ERRNO`, `exited CODE`, and `ended PID HOW NAME` for each process
   that had to be ended. It closes when the tree is empty.

Without a subreaper (macOS) only the program's process group is ended.
"""

import array
import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import sys
import time
from typing import Any

DEATH_SIGNAL, TITLE, SUBREAPER = 1, 15, 36  # of prctl
TICK = 0.01  # seconds between two looks at a tree that is ending
WATCH = 1.0  # seconds between two looks at the parent process
PATIENCE = 5.0  # seconds after which processes that cannot be killed are left
MOST = 1000  # processes that are reported

prctl = getattr(ctypes.CDLL(None), "prctl", None)


class Supervisor:
    """The program, what is below it, and how far its end is."""

    def __init__(self, asked: dict[str, Any], control: int, status: int) -> None:
        self.control, self.status = control, status
        self.interrupt: int = asked["interrupt"]
        self.grace: float = asked["grace"]
        self.linger: float = asked["linger"]
        self.parent = os.getppid()
        self.adopts = prctl is not None and prctl(SUBREAPER, 1, 0, 0, 0) == 0
        self.adopts = self.adopts and os.path.exists("/proc/self/stat")
        if prctl is not None:
            prctl(TITLE, asked["title"].encode(), 0, 0, 0)
        self.program = 0
        self.code: int | None = None
        self.deadline: float | None = None  # when the grace is over
        self.told = False
        self.asked: dict[int, str] = {}  # processes that got the interrupt, with their names
        self.said = b""
        self.poll = select.poll()
        wake, wakes = os.pipe()
        self.wake = wake
        for number in (wake, wakes, control, status):
            os.set_inheritable(number, False)
            os.set_blocking(number, False)
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for end in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(end, self._tell)
        self.poll.register(wake, select.POLLIN)
        self.poll.register(control, select.POLLIN)

    def _tell(self, *_: object) -> None:
        self.told = True

    def say(self, line: str) -> None:
        """Write a line of the report."""
        with contextlib.suppress(OSError):  # nobody reads it any more
            os.write(self.status, line.encode("utf-8", "backslashreplace") + b"\n")

    def start(self, asked: dict[str, Any]) -> bool:
        """Start the program; return whether it could be started."""
        failure, fails = os.pipe()
        self.program = os.fork()
        if self.program == 0:
            try:
                os.setsid()
                if prctl is not None:
                    prctl(DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
                for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores
                    signal.signal(number, signal.SIG_DFL)
                os.chdir(asked["cwd"])
                os.execvpe(asked["words"][0], asked["words"], asked["env"])
            except OSError as error:
                os.write(fails, b"%d" % (error.errno or 0))
            finally:
                os._exit(127)
        os.close(fails)
        said = os.read(failure, 16)
        os.close(failure)
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):  # the pipes are the program's alone
            os.dup2(nothing, stream)
        os.close(nothing)
        if said:
            self.say(f"failed {int(said)}")
            return False
        self.say(f"started {self.program}")
        return True

    def reap(self) -> bool:
        """Take the exit codes that are there; return whether any process is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return not self.adopts and self.group()
            if pid == 0:
                return True
            if pid == self.program:
                self.code = os.waitstatus_to_exitcode(status)
                self.say(f"exited {self.code}")
                if self.deadline is None:
                    self.linger += time.monotonic()

    def group(self) -> bool:
        """Return whether the program's process group has members."""
        try:
            os.killpg(self.program, 0)
        except PermissionError:
            return self.code is None  # on macOS, a group of the dead
        except OSError:
            return False
        return True

    def below(self) -> dict[int, tuple[int, str]]:
        """Return the living processes below this one: their groups and names by their numbers."""
        if not self.adopts:
            return {self.program: (self.program, "")} if self.group() else {}
        found: dict[int, tuple[int, str]] = {}
        children: dict[int, list[int]] = {}
        for name in os.listdir("/proc"):
            if name.isdigit():
                try:
                    with open(f"/proc/{name}/stat", "rb") as file:
                        stat = file.read()
                except OSError:
                    continue
                at = stat.rindex(b")")
                state, parent, group = stat[at + 2 :].split(None, 3)[:3]
                children.setdefault(int(parent), []).append(int(name))
                if state not in (b"Z", b"X"):
                    title = stat[stat.index(b"(") + 1 : at].decode("utf-8", "backslashreplace")
                    found[int(name)] = (int(group), title)
        waiting, tree = [os.getpid()], dict[int, tuple[int, str]]()
        while waiting:
            for pid in children.get(waiting.pop(), ()):
                waiting.append(pid)
                if pid in found:
                    tree[pid] = found[pid]
        return tree

    def signal(self, pid: int, number: int) -> None:
        """Send a signal to a process that may be gone."""
        with contextlib.suppress(OSError):
            if self.adopts:
                os.kill(pid, number)
            else:
                os.killpg(pid, number)

    def hear(self) -> None:
        """Wait for the next thing to happen, and read what CONTROL says."""
        now = time.monotonic()
        wait = WATCH if self.deadline is None else TICK
        if self.deadline is None and self.code is not None:
            wait = min(wait, max(0.0, self.linger - now))
        for number, _ in self.poll.poll(wait * 1000):
            try:
                data = os.read(number, 4096)
            except OSError:
                continue
            if number == self.control:
                self.listen(data)
        if os.getppid() != self.parent:
            self.told = True

    def listen(self, data: bytes) -> None:
        """Take what CONTROL says."""
        if not data:
            self.poll.unregister(self.control)
            self.told = True
        *lines, self.said = (self.said + data).split(b"\n")
        for line in lines:
            grace = float(line.split()[1])
            self.told = True
            if self.deadline is not None:
                self.deadline = min(self.deadline, time.monotonic() + grace)
            self.grace = grace

    def run(self) -> None:
        """Wait for the end, and bring it about."""
        while self.reap():
            now = time.monotonic()
            if self.deadline is None:
                over = self.code is not None and now >= self.linger
                if self.told or over:
                    self.deadline = now + self.grace
            if self.deadline is not None:
                if now >= self.deadline:
                    self.kill()
                    break
                self.ask()
            self.hear()
        for pid, name in list(self.asked.items())[:MOST]:
            self.say(f"ended {pid} asked {name}")

    def ask(self) -> None:
        """Send the interrupt once to each process whose turn it is."""
        for pid, (group, name) in self.below().items():
            if pid not in self.asked and (self.code is not None or group == self.program):
                self.asked[pid] = name
                self.signal(pid, self.interrupt)
                self.signal(pid, signal.SIGCONT)  # one that is stopped could not end by itself

    def kill(self) -> None:
        """Stop and kill what is left, again until nothing is."""
        until = time.monotonic() + PATIENCE
        killed: dict[int, str] = {}
        while self.reap() and time.monotonic() < until:
            stopped: dict[int, tuple[int, str]] = {}
            while fresh := {p: found for p, found in self.below().items() if p not in stopped}:
                for pid in fresh:
                    self.signal(pid, signal.SIGSTOP)
                stopped.update(fresh)
            for pid, (_, name) in stopped.items():
                self.signal(pid, signal.SIGKILL)
                self.asked.pop(pid, None)
                killed[pid] = name
            self.hear()
        for pid, name in list(killed.items())[:MOST]:
            self.say(f"ended {pid} killed {name}")
        for pid, (_, name) in list(self.below().items())[:MOST]:
            self.say(f"ended {pid} left {name}")


def supervise(asked: dict[str, Any], files: list[int]) -> None:
    """Run a program with its standard streams, CONTROL and STATUS."""
    os.setsid()
    for stream, file in enumerate(files[:3]):
        os.dup2(file, stream)
        os.close(file)
    supervisor = Supervisor(asked, *files[3:])
    if supervisor.start(asked):
        supervisor.run()


def received(server: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Return the next request and its open files; None when nobody will ask again."""
    numbers = array.array("i")
    head, more, _, _ = server.recvmsg(8, socket.CMSG_LEN(5 * numbers.itemsize))
    for level, kind, data in more:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            numbers.frombytes(data[: len(data) - len(data) % numbers.itemsize])
    if len(head) < 8:
        return None
    size, text = int.from_bytes(head, "big"), bytearray()
    while len(text) < size:
        part = server.recv(min(size - len(text), 1 << 20))
        if not part:
            return None
        text += part
    return json.loads(text), list(numbers)


def serve(server: socket.socket) -> None:
    """Fork a supervisor for each request, as long as the process that asks is there."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for a supervisor
    parent = os.getppid()
    while os.getppid() == parent:
        if not select.select([server], [], [], WATCH)[0]:
            continue
        request = received(server)
        if request is None:
            return
        asked, files = request
        if os.fork() == 0:
            try:
                server.close()
                supervise(asked, files)
            finally:
                os._exit(0)
        for file in files:
            os.close(file)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
