"""The parser of the command line: a tree of commands, each of which is loaded when it is called.

What the docstring of a command has below `Examples:` is the last part of its help.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import typer
from typer.completion import completion_init  # type: ignore[attr-defined]
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from . import COMMANDS, DEBUG, FAMILIES, GROUPS, Command, version

__all__ = ["documented", "leaf", "parser"]


_ARGUMENTS = f"{__name__}.arguments"  # of the command whose help is shown


class _Leaf(TyperCommand):
    """A command whose examples are lines to copy, which no narrow terminal breaks."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _quick(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta[_ARGUMENTS] = list(args)
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        super().format_options(ctx, formatter)
        if all(parameter.name != "sets" for parameter in self.params):
            return
        given, _, _ = self.make_parser(ctx).parse_args(ctx.meta.get(_ARGUMENTS, []))
        if isinstance(file := given.get("file"), str):
            from ..sources import input_rows

            with formatter.section(f"Inputs of {file}"):
                formatter.write_dl(input_rows(file))

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Examples"):
            for line in (self.epilog or "").splitlines():
                formatter.write(f"{'':{formatter.current_indent}}{line}\n")


class _Branch(TyperGroup):
    """All commands, or those of a family, in groups. Each is a name with a summary until it is called."""

    def __init__(self, *, name: str, **options: Any) -> None:
        self.groups = {"Commands": _family(name)} if name in FAMILIES else _groups()
        rows = [row for group in self.groups.values() for row in group.items()]
        options["commands"] = {word: TyperCommand(word, short_help=text) for word, text in rows}
        super().__init__(name=name, **options)

    def get_params(self, ctx: Any) -> list[Any]:
        return _quick(super().get_params(ctx))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        if name in FAMILIES:
            title = f"{FAMILIES[name]}."
            return name, _Branch(name=name, help=title, rich_markup_mode=None), rest
        full = f"{self.name} {name}" if self.name in FAMILIES else name
        known = next((one for one in COMMANDS if command and one.name == full), None)
        return name, known and leaf(known), rest

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        width = max(map(len, self.commands))
        for title, rows in self.groups.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:{width}}", text) for name, text in rows.items()])


def _groups() -> dict[str, dict[str, str]]:
    """Return the summaries of all commands in their groups; a family of commands is one row."""
    groups: dict[str, dict[str, str]] = {}
    for title, commands in GROUPS.items():
        groups[title] = {}
        for command in commands:
            first, _, second = command.name.partition(" ")
            text = f"{FAMILIES[first]}: {', '.join(_family(first))}." if second else command.summary
            groups[title][first] = text
    return groups


def _family(name: str) -> dict[str, str]:
    """Return the summaries of the commands with the same first word, by their second."""
    words = ((command.name.partition(" "), command.summary) for command in COMMANDS)
    return {second: text for (first, _, second), text in words if first == name}


def documented(command: Callable[..., int]) -> tuple[str, list[str]]:
    """Return the help of a command, and its examples."""
    text, _, examples = (inspect.getdoc(command) or "").partition("\nExamples:\n")
    return text.strip(), [line.strip() for line in examples.splitlines()]


def leaf(command: Command) -> TyperCommand:
    """Load a command, and return its parser."""
    function = command.load()
    text, examples = documented(function)
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    name = command.name.split()[-1]
    app.command(name, cls=_Leaf, help=text, epilog="\n".join(examples))(function)
    made = get_command(app)
    assert isinstance(made, TyperCommand)
    return made


def parser() -> TyperGroup:
    """Return the parser of the command line."""
    app = typer.Typer(
        name="loopwright",
        cls=_Branch,
        add_completion=False,  # a command prints what shells need
        help="Run loops until they are satisfied: execute, evaluate, adapt, repeat.",
        epilog=f"LOOPWRIGHT_JOURNAL sets the journal URL. {DEBUG}=1 prints tracebacks.",
        rich_markup_mode=None,
        # Its tracebacks show the values of variables, and with them keys and inputs.
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    def answer(wanted: bool) -> None:
        if wanted:
            raise typer.Exit(version())

    @app.callback()
    def general(
        version: bool = typer.Option(
            False, "--version", callback=answer, is_eager=True, help="Show the version."
        ),
    ) -> None:
        pass

    if any(name.startswith("_LOOPWRIGHT") for name in os.environ):  # a shell asks for words
        completion_init()
        if (words := os.environ.get("COMP_WORDS")) is not None:
            from .completion import joined

            words, index = joined(words, int(os.environ["COMP_CWORD"]))
            os.environ |= {"COMP_WORDS": words, "COMP_CWORD": str(index)}
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    return group


def _quick(parameters: list[Any]) -> list[Any]:
    """Let parameters convert only the values that do not have their type yet.

    The parser converts also defaults and texts through pydantic, and to load it takes a fourth of a short command.
    """
    for parameter in parameters:
        parameter.process_value = partial(_value, parameter)
    return parameters


def _value(parameter: Any, context: Any, value: Any) -> Any:
    described = getattr(parameter, "type_descriptor", None)  # earlier parsers load no pydantic
    absent = value is None and not parameter.required
    if described is None or not (absent or type(value) is described.annotation):
        return type(parameter).process_value(parameter, context, value)
    if absent and parameter.multiple:
        value = ()  # as the parser converts it
    return parameter.callback(context, parameter, value) if parameter.callback else value
