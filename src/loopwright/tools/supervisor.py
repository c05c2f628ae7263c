"""Runs programs and ends each of them together with every process below it.

    python -I -S -X utf8 supervisor.py SOCKET

This is a separate program that imports nothing of the package. It receives requests at a socket and
forks a supervisor for each, which takes a millisecond; starting Python takes twenty. The client is
`supervised`. A request is the length of a JSON object in 8 bytes, with five open files (standard streams,
CONTROL, STATUS), and the object: `words`, `env`, `cwd`, `interrupt`, `grace`, `linger`, `title`.

Rules:

1. A program runs in a new session. Its supervisor adopts every process below it whose parent ends
   (PR_SET_CHILD_SUBREAPER), so neither setsid nor a double fork leaves the tree.
2. No program starts after the requesting process has ended: a resumed run may use the same files by then.
3. The end begins when CONTROL receives `end SECONDS` or closes, when the requesting process has ended,
   on SIGTERM, or `linger` seconds after the program ended.
4. At the end the program's group gets `interrupt`; after the program has ended, the other processes get
   it too. After the grace period the remaining processes are stopped, so that they start no others, and
   killed, until none is left.
5. STATUS reports `started PID`, `failed ERRNO`, `exited CODE`, and `ended PID HOW NAME` for each process
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

DEATH_SIGNAL, TITLE, SUBREAPER = 1, 15, 36  # of prctl (linux/prctl.h); Python has no names for them
TICK = 0.01  # seconds between two checks of a tree that is ending
WATCH = 1.0  # seconds between two checks of the parent process
PATIENCE = 5.0  # seconds after which processes that wait inside the kernel are left
REPORTED = 1000  # the maximum number of processes in the report: the client reads it line by line

prctl = getattr(ctypes.CDLL(None), "prctl", None)


class Supervisor:
    """One program with the processes below it, and the state of their end."""

    def __init__(self, request: dict[str, Any], control: int, status: int) -> None:
        self.control, self.status = control, status
        self.interrupt: int = request["interrupt"]
        self.grace: float = request["grace"]
        self.linger: float = request["linger"]
        self.parent = os.getppid()
        self.adopts = prctl is not None and prctl(SUBREAPER, 1, 0, 0, 0) == 0
        self.adopts = self.adopts and os.path.exists("/proc/self/stat")
        if prctl is not None:
            prctl(TITLE, request["title"].encode(), 0, 0, 0)
        self.program = 0
        self.code: int | None = None
        self.deadline: float | None = None  # the end of the grace period
        self.end_requested = False
        self.interrupted: dict[int, str] = {}  # process IDs with names
        self.line = b""
        self.poll = select.poll()
        wake, wakes = os.pipe()
        self.wake = wake
        for number in (wake, wakes, control, status):
            os.set_inheritable(number, False)
            os.set_blocking(number, False)
        # A signal between a check and `poll` would be missed for a second; the pipe wakes `poll`.
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
        # A handler, even an empty one: the default ignores the signal and writes nothing to the pipe.
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for end in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(end, self._request_end)
        self.poll.register(wake, select.POLLIN)
        self.poll.register(control, select.POLLIN)

    def _request_end(self, *_: object) -> None:
        self.end_requested = True

    def report(self, line: str) -> None:
        """Write a line to STATUS."""
        with contextlib.suppress(OSError):  # the client has closed it
            os.write(self.status, line.encode("utf-8", "backslashreplace") + b"\n")

    def is_wanted(self) -> bool:
        """Return whether the requesting process still exists: CONTROL is open at its other end."""
        return not any(event & select.POLLHUP for _, event in self.poll.poll(0))

    def start(self, request: dict[str, Any]) -> bool:
        """Start the program; return whether it could be started."""
        # The pipe is closed by a successful exec, so an empty read means that the program runs.
        failure, fails = os.pipe()
        self.program = os.fork()
        if self.program == 0:
            try:
                os.setsid()
                if prctl is not None:
                    # If the supervisor itself is killed, the program must not continue without one.
                    prctl(DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
                for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores
                    signal.signal(number, signal.SIG_DFL)
                os.chdir(request["cwd"])
                os.execvpe(request["words"][0], request["words"], request["env"])
            except OSError as error:
                os.write(fails, b"%d" % (error.errno or 0))
            finally:
                # Without the handlers of `atexit`, which belong to the supervisor.
                os._exit(127)
        os.close(fails)
        failed = os.read(failure, 16)
        os.close(failure)
        nothing = os.open(os.devnull, os.O_RDWR)
        # The client sees the end of the output only when no other process holds the pipes.
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)
        os.close(nothing)
        if failed:
            self.report(f"failed {int(failed)}")
            return False
        self.report(f"started {self.program}")
        return True

    def reap(self) -> bool:
        """Collect the available exit codes. Return whether any process is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return not self.adopts and self.group()
            if pid == 0:
                return True
            if pid == self.program:
                self.code = os.waitstatus_to_exitcode(status)
                self.report(f"exited {self.code}")
                if self.deadline is None:
                    self.linger += time.monotonic()

    def group(self) -> bool:
        """Return whether the program's process group has members."""
        try:
            os.killpg(self.program, 0)
        except PermissionError:
            return self.code is None  # on macOS, for a group of ended processes
        except OSError:
            return False
        return True

    def below(self) -> dict[int, tuple[int, str]]:
        """Return group and name of each live process below this one, by process ID."""
        if not self.adopts:
            return {self.program: (self.program, "")} if self.group() else {}
        live: dict[int, tuple[int, str]] = {}
        children: dict[int, list[int]] = {}
        for name in os.listdir("/proc"):
            if name.isdigit():
                try:
                    with open(f"/proc/{name}/stat", "rb") as file:
                        stat = file.read()
                except OSError:
                    continue
                # The name of a program may contain spaces and brackets; the last bracket ends it.
                at = stat.rindex(b")")
                state, parent, group = stat[at + 2 :].split(None, 3)[:3]
                children.setdefault(int(parent), []).append(int(name))
                if state not in (b"Z", b"X"):
                    title = stat[stat.index(b"(") + 1 : at].decode("utf-8", "backslashreplace")
                    live[int(name)] = (int(group), title)
        waiting, tree = [os.getpid()], dict[int, tuple[int, str]]()
        while waiting:
            for pid in children.get(waiting.pop(), ()):
                waiting.append(pid)
                if pid in live:
                    tree[pid] = live[pid]
        return tree

    def signal(self, pid: int, number: int) -> None:
        """Send a signal to a process that may have ended."""
        with contextlib.suppress(OSError):
            if self.adopts:
                os.kill(pid, number)
            else:
                os.killpg(pid, number)

    def wait(self) -> None:
        """Wait for the next event, and read CONTROL."""
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
                self.control_received(data)
        # The client was killed: the supervisor was adopted by another process.
        if os.getppid() != self.parent:
            self.end_requested = True

    def control_received(self, data: bytes) -> None:
        """Handle the data that CONTROL received; none means that it was closed."""
        if not data:
            self.poll.unregister(self.control)
            self.end_requested = True
        *lines, self.line = (self.line + data).split(b"\n")
        for line in lines:
            grace = float(line.split()[1])
            self.end_requested = True
            if self.deadline is not None:
                self.deadline = min(self.deadline, time.monotonic() + grace)
            # Of several requests the shortest grace period counts.
            self.grace = grace

    def run(self) -> None:
        """Wait until the tree is to end, and end it."""
        while self.reap():
            now = time.monotonic()
            if self.deadline is None:
                over = self.code is not None and now >= self.linger
                if self.end_requested or over:
                    self.deadline = now + self.grace
            if self.deadline is not None:
                if now >= self.deadline:
                    self.kill()
                    break
                self.interrupt_tree()
            self.wait()
        for pid, name in list(self.interrupted.items())[:REPORTED]:
            self.report(f"ended {pid} asked {name}")

    def interrupt_tree(self) -> None:
        """Send the interrupt once: to the program's group, and after the program's end to all."""
        for pid, (group, name) in self.below().items():
            if pid not in self.interrupted and (self.code is not None or group == self.program):
                self.interrupted[pid] = name
                self.signal(pid, self.interrupt)
                self.signal(pid, signal.SIGCONT)  # a stopped process cannot handle it

    def kill(self) -> None:
        """Stop and kill the remaining processes until none is left."""
        until = time.monotonic() + PATIENCE
        killed: dict[int, str] = {}
        while self.reap() and time.monotonic() < until:
            stopped: dict[int, tuple[int, str]] = {}
            # Stopped before they are killed: a process that forks faster than it is killed would escape.
            while fresh := {p: item for p, item in self.below().items() if p not in stopped}:
                for pid in fresh:
                    self.signal(pid, signal.SIGSTOP)
                stopped.update(fresh)
            for pid, (_, name) in stopped.items():
                self.signal(pid, signal.SIGKILL)
                self.interrupted.pop(pid, None)
                killed[pid] = name
            self.wait()
        for pid, name in list(killed.items())[:REPORTED]:
            self.report(f"ended {pid} killed {name}")
        for pid, (_, name) in list(self.below().items())[:REPORTED]:
            self.report(f"ended {pid} left {name}")


def supervise(request: dict[str, Any], files: list[int]) -> None:
    """Run a program with its standard streams, CONTROL and STATUS."""
    os.setsid()
    for stream, file in enumerate(files[:3]):
        os.dup2(file, stream)
        os.close(file)
    supervisor = Supervisor(request, *files[3:])
    # After it has its title: a resumed run ends the supervisors that it finds, and this one either has its
    # title before the end of the requesting process, or notices that end here.
    if supervisor.is_wanted() and supervisor.start(request):
        supervisor.run()


def received(server: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Return the next request and its open files, or None when the socket is closed."""
    # Open files arrive with the first bytes of a message (SCM_RIGHTS), so the head is read with `recvmsg`.
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
    """Fork a supervisor for each request, until the requesting process has ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # supervisors are not waited for
    parent = os.getppid()
    while os.getppid() == parent:
        if not select.select([server], [], [], WATCH)[0]:
            continue
        request = received(server)
        if request is None:
            return
        settings, files = request
        if os.fork() == 0:
            try:
                server.close()
                supervise(settings, files)
            finally:
                os._exit(0)
        for file in files:
            os.close(file)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
