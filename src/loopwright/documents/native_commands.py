"""The native document: what is said of commands."""

from __future__ import annotations

from pydantic import Field

from .fields import Part

__all__ = ["CommandFields"]


class CommandFields(Part):
    """What a command is given."""

    env: dict[str, str] = Field(
        {}, description="Environment variables of the command, with templates."
    )
    stdin: str | None = Field(
        None, description="Standard input of the command, a template; default: the input."
    )
    cwd: str | None = Field(None, description="Folder of the command, inside the project.")
    allow_exit: list[int] = Field([0], description="Exit codes that are no failure.")
