"""The command line, for people and for other programs.

Rules:

1. A command is one line of `GROUPS`. Its module is loaded only when it is called, so that help and
   short commands start at once.
2. Results go to stdout, all other text to stderr; `--json` prints exactly one object.
3. The exit code is the status of the run; 2 is a wrong command line or document.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from keyword import iskeyword
from types import FrameType
from typing import NamedTuple

from ...errors import ConfigurationError

__all__ = ["COMMANDS", "DEBUG", "FAMILIES", "GROUPS", "Command", "main", "version"]

DEBUG = "LOOPWRIGHT_DEBUG"


class Command(NamedTuple):
    """A command: its name of one or two words, the module with its function, and its help."""

    name: str
    module: str
    summary: str

    def load(self) -> Callable[..., int]:
        """Import its module, and return its function: `files list` is `files_list`."""
        module = import_module(f".{self.module}", __name__)
        if not gc.isenabled():  # the start of the process has switched it off
            gc.freeze()
            gc.enable()
        word = self.name.replace(" ", "_")
        command: Callable[..., int] = getattr(module, f"{word}_" if iskeyword(word) else word)
        return command


GROUPS = {
    "Start": (
        Command("run", "run", "Run a document, or a step of a Python module."),
        Command("until", "until", "Let an agent work until a check passes."),
        Command("new", "new", "Copy a template that runs at once."),
        Command("again", "again", "Run the document of a run again, as a new run."),
        Command("check", "check", "Report the problems of documents, or their plan."),
        Command("submit", "submit", "Queue runs for workers."),
    ),
    "Look": (
        Command("runs", "runs", "List the runs in the journal, newest first."),
        Command("show", "show", "Show a run and the reason for its end."),
        Command("watch", "watch", "Follow a run of another process."),
        Command("compare", "compare", "Compare recorded runs."),
        Command("ui", "ui", "Show and control the runs in a browser."),
    ),
    "Continue": (
        Command("resume", "run", "Resume a run that was interrupted or suspended."),
        Command("retry", "run", "Do again what failed in a run."),
        Command("approve", "approve", "List the questions of a run, or answer one."),
        Command("signal", "signals", "Send an event to the runs that wait for it."),
        Command("steer", "steering", "Give a run a hint for its next iterations."),
        Command("hold", "steering", "Stop a run before its next effects."),
        Command("continue", "steering", "End the hold of a run."),
        Command("cancel", "rewind", "Cancel a run."),
        Command("rewind", "rewind", "Discard the recorded results from a path onward."),
        Command("fork", "fork", "Run again from a recorded point, as a new run."),
        Command("limits", "limits", "Show the limits of a run, or change them while it runs."),
    ),
    "Files": (
        Command("files list", "files.list", "List the workspaces of loops, or their snapshots."),
        Command("files diff", "files.diff", "Print what changed between two iterations."),
        Command("files branch", "files.branch", "Make a branch of your repository."),
        Command("files apply", "files.apply", "Change the files of your folder."),
        Command("files restore", "files.restore", "Put an iteration in place."),
        Command("files prune", "files.prune", "Delete the workspaces of ended loops."),
    ),
    "Measure": (
        Command("eval", "eval", "Score a task on the cases of a data set."),
        Command("measure judge", "measure.judge", "Measure a judge against human labels."),
        Command("measure limits", "measure.limits", "Compare other limits on recorded runs."),
    ),
    "Workers": (
        Command("worker start", "worker.start", "Execute the runs that are submitted."),
        Command("worker list", "worker.list", "List workers, their runs, and queues."),
        Command("worker drain", "worker.drain", "Let a worker end."),
        Command("worker queues", "worker.queues", "List queues, pause one, or let it continue."),
        Command(
            "worker schedules",
            "worker.schedules",
            "List schedules, pause one, or create missed runs.",
        ),
    ),
    "Keep": (
        Command("journal init", "journal.init", "Create or update the tables of a journal."),
        Command("journal check", "journal.check", "Read every entry of a journal."),
        Command("journal move", "journal.move", "Copy the runs and memories to another journal."),
        Command("journal prune", "journal.prune", "Delete the runs that ended long ago."),
        Command("journal cache", "journal.cache", "Count or delete the replies that it keeps."),
        Command("journal adopt", "journal.adopt", "Make a folder known that came from elsewhere."),
        Command("memory", "memory", "Show the memory of loops and agents."),
        Command("tag", "tag", "Tag a run, to find it again."),
        Command("export", "export", "Export a run as JSON, CSV, JSON lines or HTML."),
    ),
    "Set up": (
        Command("doctor", "doctor", "Check models, agents, tools, extras and the journal."),
        Command("agents", "agents", "List coding agents, show one, or try one."),
        Command("convert", "check", "Convert a document to the native dialect."),
        Command("schema", "check", "Print the JSON Schema of documents."),
        Command("mcp", "serve", "Offer the workflows of a folder as tools of an MCP server."),
        Command("serve", "serve", "Offer the workflows of a folder over HTTP."),
        Command("completion", "completion", "Print what a shell needs to complete commands."),
    ),
}  # in the order of the help
COMMANDS = tuple(command for group in GROUPS.values() for command in group)
# What the commands with the same first word are for.
FAMILIES = {
    "files": "The files of runs",
    "measure": "Figures of judges and limits",
    "worker": "Workers, queues and schedules",
    "journal": "Journals",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; `arguments` default to the process's own."""
    words = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    # SQLite and the file system would fail later, in the middle of a run.
    if wrong := _unwritable(words):
        from .output import report_error

        return report_error(ConfigurationError(wrong), _command(words))
    # The parser knows no option with an optional value.
    if "--otel" in words:
        from .options import with_collector

        words = with_collector(words)
    try:
        if words == ["--version"]:
            return version()
        with _stopped_early(words):
            from .parser import parser

            app = parser()
            code = app(words, prog_name="loopwright", standalone_mode=False)
    except KeyboardInterrupt:
        # 128 + 2, as shells report the end by SIGINT.
        return 130
    except SystemExit as leaving:  # shell completion leaves like this
        return leaving.code if isinstance(leaving.code, int) else 1
    except BaseException as error:  # the user gets a sentence, not a traceback
        from .output import report_error

        return report_error(error, _command(words))
    return code if isinstance(code, int) else 0


@contextmanager
def _stopped_early(words: Sequence[str]) -> Iterator[None]:
    """Let a signal end a worker with exit code 0 also while its packages load.

    A service manager may stop a worker in its first seconds; the command has handlers of its own later.
    """
    if (
        _command(words) != "worker start"
        or threading.current_thread() is not threading.main_thread()
    ):
        yield
        return

    def stop(number: int, _: FrameType | None) -> None:
        name = signal.Signals(number).name
        sys.stderr.write(f"loopwright: {name}: stopped before any run\n")
        sys.stderr.flush()
        raise SystemExit(0)

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _unwritable(words: Sequence[str]) -> str:
    """Return the problem of a word that a record or a path cannot hold, or ""."""
    for word in (*words, os.environ.get("LOOPWRIGHT_JOURNAL", "")):
        if "\0" in word:
            from ..formatting import clean

            return f"{clean(word)[:80]!r}: this argument contains a NUL byte. Remove it."
        try:
            word.encode()
        except UnicodeEncodeError:
            shown = word.encode("utf-8", "backslashreplace").decode()[:80]
            return f"'{shown}': this argument is not UTF-8 text. Rename the file, or write the text in UTF-8."
    return ""


def _command(words: Sequence[str]) -> str:
    """Return the command in a command line, or ""."""
    names = [word for word in words if not word.startswith("-")]
    wanted = {" ".join(names[:count]) for count in (1, 2)}
    return next((command.name for command in COMMANDS if command.name in wanted), "")


def version() -> int:
    """Print the version; without the parser, which takes longer than the answer."""
    from importlib.metadata import version

    sys.stdout.write(f"loopwright {version('loopwright')}\n")
    return 0
