"""The command line, for people and for other programs.

Rules:

1. A command is one line of `COMMANDS`. Its module is loaded only when it is called, so that help and
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
from functools import partial
from importlib import import_module
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import ConfigurationError

if TYPE_CHECKING:
    from typer.core import TyperGroup

__all__ = ["COMMANDS", "DEBUG", "Command", "main"]

DEBUG = "LOOPWRIGHT_DEBUG"


class Command(NamedTuple):
    """A command: its name, the module with the function of that name, and its help."""

    name: str
    module: str
    summary: str

    def load(self) -> Callable[..., int]:
        """Import its module, and return its function."""
        command: Callable[..., int] = getattr(import_module(f".{self.module}", __name__), self.name)
        return command


COMMANDS = (
    Command("run", "run", "Run a document, or a step of a Python module."),
    Command("until", "until", "Let an agent work until a check passes."),
    Command("check", "check", "Report the problems of documents, or their plan."),
    Command("doctor", "doctor", "Try the providers of models with the keys in the environment."),
    Command("agents", "agents", "List coding agents, show one, or try one."),
    Command("convert", "check", "Convert a document to the native dialect."),
    Command("runs", "show", "List the runs in the journal, newest first."),
    Command("show", "show", "Show a run and the reason for its end."),
    Command("resume", "run", "Resume a run that was interrupted or suspended."),
    Command("watch", "watch", "Follow a run of another process."),
    Command("submit", "submit", "Queue runs for workers."),
    Command("worker", "worker", "Execute the runs that are submitted to a journal."),
    Command("workers", "workers", "List workers, the runs that they hold, and queues."),
    Command("queues", "workers", "List queues, pause one, or let it continue."),
    Command("schedules", "schedules", "List schedules, pause one, or create missed runs."),
    Command("approve", "approve", "List the questions of a run, or answer one."),
    Command("cancel", "rewind", "Cancel a run."),
    Command("tune", "tune", "Show the limits of a run, or change them while it runs."),
    Command("rewind", "rewind", "Discard the recorded results from a path onward."),
    Command("fork", "fork", "Run again from a recorded point, as a new run."),
    Command("compare", "compare", "Compare recorded runs."),
    Command("workspace", "workspace", "List, show or put back the files of loops."),
    Command("bench", "bench", "Measure the judge of a document against human labels."),
    Command("replay", "replay", "Compare other limits on recorded runs."),
    Command("memory", "memory", "Show the memory of loops and agents."),
    Command("export", "export", "Export a run as JSON, CSV, JSON lines or HTML."),
    Command("journal", "journal", "Create, check, copy or clean a journal."),
    Command("ui", "ui", "Show and control the runs in a browser."),
    Command("schema", "check", "Print the JSON Schema of documents."),
)


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
        if words == ["--version"]:  # without the parser, which takes longer than the answer
            return _version()
        with _stopped_early(words):
            app = _app(words)
            if not gc.isenabled():  # the start of the process has switched it off
                gc.freeze()
                gc.enable()
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
    if _command(words) != "worker" or threading.current_thread() is not threading.main_thread():
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
    wanted = next((word for word in words if not word.startswith("-")), "")
    return wanted if any(command.name == wanted for command in COMMANDS) else ""


def _app(words: Sequence[str]) -> TyperGroup:
    """Return the parser of a command line."""
    import typer
    from typer.core import TyperGroup
    from typer.main import get_command

    app = typer.Typer(
        name="loopwright",
        help="Run loops until they are satisfied: execute, evaluate, adapt, repeat.",
        epilog=f"LOOPWRIGHT_JOURNAL sets the journal URL. {DEBUG}=1 prints tracebacks.",
        rich_markup_mode=None,
        # Its tracebacks show the values of variables, and with them keys and inputs.
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    def answer(wanted: bool) -> None:
        if wanted:
            raise typer.Exit(_version())

    @app.callback()
    def general(
        version: bool = typer.Option(
            False, "--version", callback=answer, is_eager=True, help="Show the version."
        ),
    ) -> None:
        pass

    wanted = next((word for word in words if not word.startswith("-")), "")
    # Shell completion needs the options of every command, and sets a variable of this form.
    completing = any(name.startswith("_LOOPWRIGHT") for name in os.environ)
    for command in COMMANDS:
        needed = completing or command.name == wanted
        app.command(
            command.name,
            help=None if needed else command.summary,
            short_help=command.summary,
        )(command.load() if needed else _placeholder)
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    for one in (group, *group.commands.values()):
        one.get_params = partial(_parameters, one.get_params)  # type: ignore[method-assign]
    return group


def _parameters(every: Callable[[Any], list[Any]], context: Any) -> list[Any]:
    """Return the parameters of a command, which convert only the values that do not have their type yet.

    The parser converts also defaults and texts through pydantic, and to load it takes a fourth of a short command.
    """
    parameters = every(context)
    for parameter in parameters:
        parameter.process_value = partial(_value, parameter)
    return parameters


def _value(parameter: Any, context: Any, value: Any) -> Any:
    described = getattr(parameter, "type_descriptor", None)  # earlier parsers load no pydantic
    absent = value is None and not (parameter.required or parameter.multiple)
    if described is None or not (absent or type(value) is described.annotation):
        return type(parameter).process_value(parameter, context, value)
    return parameter.callback(context, parameter, value) if parameter.callback else value


def _placeholder() -> None:
    """Stand in for a command that is not called."""


def _version() -> int:
    from importlib.metadata import version

    sys.stdout.write(f"loopwright {version('loopwright')}\n")
    return 0
