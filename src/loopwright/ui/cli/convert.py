"""`convert`: the native form of a document of another dialect."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ...documents import Settings, load
from ...documents.check.convert import to_native_yaml
from ..sources import Given
from .options import Agents, Lenient, Model, Sets
from .output import Output

__all__ = ["convert"]


def convert(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A document of any dialect.")],
    into: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", metavar="FOLDER", help="Write it, and all that it calls, there."
        ),
    ] = None,
    sets: Sets = None,
    model: Model = None,
    agents: Agents = None,
    lenient: Lenient = False,
) -> int:
    """Print the native form of a document, which runs the same; what it calls goes along with --output."""
    with Output(as_json=False) as output:
        given = Given.of(sets, agents, model=model, lenient=lenient)
        loaded = load(
            file,
            Settings(
                sets=given.sets, agents=given.agents, model=model, lenient=lenient, execute=False
            ),
        )
        for note in loaded.notes:
            output.note(f"note: {note}")
        if into is None:
            output.say(to_native_yaml(next(iter(loaded.documents.values()))).rstrip("\n"))
            return 0
        folder = Path(into)
        folder.mkdir(parents=True, exist_ok=True)
        for name, document in loaded.documents.items():
            target = folder / f"{Path(name).stem}.yaml"
            target.write_text(to_native_yaml(document), encoding="utf-8")
            output.say(str(target))
    return 0
