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

from .problems import DEBUG, tell

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
    Command("run", "running", "Run a document, or a step of a Python module, to its end."),
    Command("check", "checking", "Every problem of a document, or what it would run."),
    Command("convert", "converting", "The native form of a document of another dialect."),
    Command("runs", "listing", "The runs in the journal, newest first."),
    Command("show", "showing", "What a run did, and why it ended."),
    Command("resume", "running", "Go on with a run that was interrupted or suspended."),
    Command("watch", "watching", "Follow a run of another process to its end."),
    Command("approve", "answering", "What a run asks people, and the answers."),
    Command("cancel", "changing", "Ask a running run to end."),
    Command("rewind", "changing", "Set aside what a run did from a path on."),
    Command("memory", "remembering", "What runs remember from one to the next."),
    Command("export", "exporting", "A run as JSON, CSV, JSON lines or an HTML report."),
    Command("ui", ".web.command", "The page: runs in a browser, live, and what to do next."),
    Command("schema", "checking", "JSON Schema of documents, for editors."),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; `arguments` default to the process's own."""
    given = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if "--otel" in given:
        from .observing import with_collector

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
