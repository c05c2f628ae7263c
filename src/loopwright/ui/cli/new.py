"""`new`: copy a template that runs at once, or its twin that cheats.

A template is a folder of `templates_new`. Its README has the command that runs it, and its headings describe it and its twin. A
folder below `twins` has the files in which a twin differs.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from ...errors import ConfigurationError, listed, nearest
from .output import Output

__all__ = ["KINDS", "TEMPLATES", "command_of", "new", "twins_of"]

TEMPLATES = Path(__file__).parents[2] / "templates_new"
KINDS = ("text", "tests", "wait", "list", "agent", "python", "metric")  # in the order of the list
_README = "README.md"


def kinds(incomplete: str) -> list[tuple[str, str]]:
    """Return the kinds that begin so, for a shell."""
    return [(kind, _headings(kind)[0]) for kind in KINDS if kind.startswith(incomplete)]


def twins(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the twins of the kind that the command line names, for a shell."""
    kind = ctx.params.get("kind") or next(iter(ctx.args), "")
    return [twin for twin in twins_of(kind) if twin.startswith(incomplete)]


def new(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="[KIND]", help=f"Template: {', '.join(KINDS)}.", autocompletion=kinds
        ),
    ] = "",
    folder: Annotated[
        str, typer.Argument(metavar="[FOLDER]", help="Folder to make.  [default: KIND]")
    ] = "",
    twin: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="TWIN",
            help="Copy the twin of the template, in which somebody cheats.",
            autocompletion=twins,
        ),
    ] = "",
) -> int:
    """Copy a template that runs at once without a key. Without KIND, list the templates.

    Each template has a twin that cheats, such as an agent that deletes the tests: its README says how the run ends then.
    No file is overwritten.

    Examples:
        loopwright new
        loopwright new text
        loopwright new tests cheating --from deleted-tests
    """
    with Output() as output:
        if not kind:
            _list(output)
            return 0
        files = _files(kind, twin)
        target = Path(folder or kind)
        written = _copied(files, target)
        output.write(f"{target}: {', '.join(written)}", wrap=True)
        output.write(("run: ", "dim"), f"cd {shlex.quote(str(target))} && {command_of(kind)}")
    return 0


def twins_of(kind: str) -> list[str]:
    """Return the names of the twins of a template; none for an unknown one."""
    folder = TEMPLATES / kind / "twins"
    return sorted(one.name for one in folder.iterdir()) if kind in KINDS else []


def command_of(kind: str) -> str:
    """Return the command that runs a template, in its folder."""
    lines = (TEMPLATES / kind / _README).read_text("utf-8").splitlines()
    return next(line.strip() for line in lines if line.startswith("    "))


def _headings(kind: str) -> list[str]:
    """Return what a template is, and what its twins are."""
    lines = (TEMPLATES / kind / _README).read_text("utf-8").splitlines()
    return [line.lstrip("# ").removeprefix("Twin: ") for line in lines if line.startswith("#")]


def _list(output: Output) -> None:
    width = max(map(len, KINDS))
    for kind in KINDS:
        title, *of_twins = _headings(kind)
        output.write((f"{kind:{width}}  ", "bold"), title)
        for twin, text in zip(twins_of(kind), of_twins, strict=True):
            output.write(" " * width, f"  --from {twin}: {text}")
    output.write(
        "copy one: loopwright new KIND; its twin that cheats: loopwright new KIND --from TWIN"
    )


def _files(kind: str, twin: str) -> dict[str, Path]:
    """Return the files of a template or of its twin, by name. Raises ConfigurationError."""
    if kind not in KINDS:
        hint = nearest(kind, KINDS) or listed(kind, KINDS, lead="use one of")
        raise ConfigurationError(f"KIND: there is no template {kind!r}{hint}")
    if twin and twin not in twins_of(kind):
        hint = nearest(twin, twins_of(kind)) or listed(twin, twins_of(kind), lead="it has")
        raise ConfigurationError(f"--from: {kind} has no twin {twin!r}{hint}")
    folders = [TEMPLATES / kind, *([TEMPLATES / kind / "twins" / twin] if twin else [])]
    return {
        file.name: file for folder in folders for file in sorted(folder.iterdir()) if file.is_file()
    }


def _copied(files: dict[str, Path], target: Path) -> list[str]:
    """Copy files into a folder, with the schema that editors need beside documents, and return their names."""
    # Documents take a moment to load, which the list does not need.
    from ...documents.schema.export import EDITOR_SCHEMA, MODELINE, editor_schema

    contents = {name: file.read_bytes() for name, file in files.items()}
    if any(content.startswith(MODELINE.encode()) for content in contents.values()):
        contents[EDITOR_SCHEMA] = editor_schema().encode()
    there = next((target / name for name in contents if (target / name).exists()), None)
    there = target if target.exists() and not target.is_dir() else there
    if there is not None:
        raise ConfigurationError(
            f"{there} exists, and nothing is overwritten. Name another folder: loopwright new KIND FOLDER"
        )
    try:
        target.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            (target / name).write_bytes(content)
    except OSError as error:
        raise ConfigurationError(f"{target} cannot be written: {error.strerror}") from error
    return sorted(contents)
