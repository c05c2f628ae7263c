"""The command line: what other programs rely on, and what people watch.

Rules:

1. A command is one line of `COMMANDS`; its module is loaded only when it is called, so that help
   and short commands start at once.
2. Results go to stdout, everything else to stderr; `--json` prints exactly one object.
3. The exit code is the status of the run; 2 is a wrong command line or document.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer

from ...errors import ConfigurationError
from .. import formatting as texts
from .options import with_collector
from .output import DEBUG, tell

__all__ = ["COMMANDS", "Command", "main"]


class Command(NamedTuple):
    """A command: its name, the module whose function of that name it is, and what it does."""

    name: str
    module: str
    summary: str

    def load(self) -> Callable[..., Any]:
        """Return its function, with its module loaded."""
        # The page stands above the command line, which knows it by this name only.
        found: Callable[..., Any] = getattr(import_module(f".{self.module}", __name__), self.name)
        return found


COMMANDS = (
    Command("run", "run", "Run a document, or a step of a Python module, to its end."),
    Command("check", "check", "Every problem of a document, or what it would run."),
    Command("convert", "convert", "The native form of a document of another dialect."),
    Command("runs", "runs", "The runs in the journal, newest first."),
    Command("show", "show", "What a run did, and why it ended."),
    Command("resume", "run", "Go on with a run that was interrupted or suspended."),
    Command("watch", "watch", "Follow a run of another process to its end."),
    Command("approve", "approve", "What a run asks people, and the answers."),
    Command("cancel", "cancel_rewind", "Ask a running run to end."),
    Command("rewind", "cancel_rewind", "Set aside what a run did from a path on."),
    Command("memory", "memory", "What runs remember from one to the next."),
    Command("export", "export", "A run as JSON, CSV, JSON lines or an HTML report."),
    Command("ui", "ui", "The page: runs in a browser, live, and what to do next."),
    Command("schema", "check", "JSON Schema of documents, for editors."),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; `arguments` default to the process's own."""
    given = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if wrong := _unwritable(given):
        return tell(ConfigurationError(wrong), _command(given))
    if "--otel" in given:
        given = with_collector(given)
    try:
        code = _app(given)(given, prog_name="loopwright", standalone_mode=False)
    except KeyboardInterrupt:
        return 130
    except SystemExit as leaving:  # shell completion leaves like this
        return leaving.code if isinstance(leaving.code, int) else 1
    except BaseException as error:  # every error ends as a sentence
        return tell(error, _command(given))
    return code if isinstance(code, int) else 0


def _unwritable(given: Sequence[str]) -> str:
    """Return what is wrong with words that no record and no path can hold, or nothing."""
    for word in (*given, os.environ.get("LOOPWRIGHT_JOURNAL", "")):
        if "\0" in word:
            return f"{texts.clean(word)[:80]!r}: it has a NUL byte in it; leave that out"
        try:
            word.encode()
        except UnicodeEncodeError:
            shown = word.encode("utf-8", "backslashreplace").decode()[:80]
            return f"'{shown}': it is not UTF-8 text; rename the file, or write the text in UTF-8"
    return ""


def _command(given: Sequence[str]) -> str:
    """Return the command that a command line names, or nothing."""
    wanted = next((word for word in given if not word.startswith("-")), "")
    return wanted if any(command.name == wanted for command in COMMANDS) else ""


def _app(given: Sequence[str]) -> typer.Typer:
    app = typer.Typer(
        name="loopwright",
        help="Loops that run until they are satisfied: execute, evaluate, adapt, again.",
        epilog=f"LOOPWRIGHT_JOURNAL says where runs are kept; {DEBUG}=1 shows tracebacks.",
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback()
    def general(
        version: Annotated[
            bool,
            typer.Option("--version", callback=_version, is_eager=True, help="Show the version."),
        ] = False,
    ) -> None:
        pass

    wanted = next((word for word in given if not word.startswith("-")), "")
    completing = any(name.startswith("_LOOPWRIGHT") for name in os.environ)
    for command in COMMANDS:
        known = completing or command.name == wanted
        app.command(
            command.name,
            help=None if known else command.summary,
            short_help=command.summary,
        )(command.load() if known else _elsewhere)
    return app


def _elsewhere() -> None:
    """Stand for a command that this call does not name."""


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"loopwright {version('loopwright')}")
        raise typer.Exit
