"""Commands of a document: a list or a constant script, into which values go by environment and standard input only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..tools.shell import shell
from ..variables import Filled, rendered
from .native import Action

if TYPE_CHECKING:
    from .compiling import Compiler

__all__ = ["command_value", "compile_command"]

Path_ = tuple[str | int, ...]


def compile_command(compiler: Compiler, spec: Action, name: str, path: Path_, at: Path_) -> Any:
    """Return the step of a command, or None with a problem."""
    command = spec.shell or []
    texts = [command] if isinstance(command, str) else list(command)
    for i, text in enumerate(texts):
        if "{{" in text or "{%" in text:
            place = path if isinstance(command, str) else (*path, i)
            compiler.problem(
                place,
                "a template inside command text would let a value become a command; "
                "pass values by env or stdin",
            )
            return None
    env = {k: command_value(compiler, (*at, "env", k), v) for k, v in spec.env.items()}
    stdin = None if spec.stdin is None else command_value(compiler, (*at, "stdin"), spec.stdin)
    cwd = compiler.project.inside(compiler.folder, spec.cwd or ".", compiler, (*at, "cwd"))
    if spec.output not in (None, "text", "json", "result"):
        compiler.problem((*at, "output"), f"{spec.output!r} is none of text, json, result")
        return None
    return compiler.attempt(
        path,
        lambda: shell(
            command,
            name=name,
            env=env,
            stdin=stdin,
            cwd=cwd,
            output=spec.output or "text",
            idempotent=bool(spec.idempotent),
            allow_exit=tuple(spec.allow_exit),
        ),
    )


def command_value(compiler: Compiler, path: Path_, text: Any) -> Any:
    """Compile a templated value to a function of (value, ctx), as commands take them."""
    found = compiler.filled(path, text)
    if not found.names and found.source == text and "{" not in str(text):
        return text
    return _Value(found)


class _Value:
    """A templated value of a command: called with (value, ctx)."""

    def __init__(self, part: Filled) -> None:
        self.part = part
        self.source = part.source

    def __call__(self, value: Any, ctx: Any) -> Any:
        return rendered(self.part, ctx, value)
