"""Waits of documents. A command and a URL are looked at by the same objects as in Python."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from ...engine.context import Context
from ...engine.step import Step
from ...engine.waiting import PROBE_TIMEOUT, Probe, Wait, WaitForm
from ...records.codec import Json
from ...templates.variables import rendered
from ..schema.document import Action, WaitedSpec
from ..yaml.reader import Location
from .compilation import Compilation

__all__ = ["compile_wait"]

_COMMAND = ("cwd", "env", "pass_env", "probe_timeout")
# A template must not decide which host is asked: a person agreed to that one.
_HOST = re.compile(r"https?://[^/{}@\s]+(/.*)?", re.DOTALL)
_Make = Callable[[Mapping[str, Any]], Probe]


def compile_wait(compilation: Compilation, spec: Action, name: str, at: Location) -> Step | None:
    """Compile a wait; None if it has problems."""
    assert spec.wait is not None
    path = (*at, "wait")
    options = spec.wait.model_dump(by_alias=True, exclude_unset=True)
    parts: dict[str, tuple[WaitedSpec, Location]] = {"": (spec.wait, path)}
    for member, part in (spec.wait.first_of or {}).items():
        parts[member] = part, (*path, "first_of", member)
    makes: dict[str, _Make] = {}
    problems = len(compilation.problems)
    for member, (part, place) in parts.items():
        if part.command is not None:
            makes[member] = _command(compilation, part, name, place)
        elif part.url is not None:
            makes[member] = _url(compilation, part, place)
        for field in _COMMAND:
            if field in part.model_fields_set and part.command is None:
                compilation.problem((*place, field), f"{field} belongs to command")
    filled = compilation.template(path, options)
    if len(compilation.problems) > problems:
        return None

    def fill(ctx: Context, value: Json) -> Mapping[str, Any]:
        return _probed(rendered(filled, ctx, value), makes)

    if compilation.attempt(path, lambda: WaitForm.of(_probed(options, makes), "wait")) is None:
        return None
    return Wait(name, options, fill)


def _probed(options: Mapping[str, Any], makes: Mapping[str, _Make]) -> Mapping[str, Any]:
    """Return options with the objects that look at commands and URLs."""
    result = _one(options, makes.get(""))
    if "first_of" in options:
        result["first_of"] = {
            name: _one(part, makes.get(name)) for name, part in options["first_of"].items()
        }
    return result


def _one(options: Mapping[str, Any], make: _Make | None) -> dict[str, Any]:
    kept = {name: value for name, value in options.items() if name not in _COMMAND}
    if make is not None:
        kept["command" if options.get("command") is not None else "url"] = make(options)
    return kept


def _command(compilation: Compilation, part: WaitedSpec, name: str, at: Location) -> _Make:
    from ...tools.commands import shell
    from .tools import is_constant, record_variables

    words, names = part.command or [], part.pass_env
    record_variables(compilation, names, f"the command of {name}")
    is_constant(compilation, words, (*at, "command"))
    # A document of somebody else must not run commands in other folders.
    cwd = compilation.inside(part.cwd or ".", (*at, "cwd"))
    limit = part.probe_timeout or PROBE_TIMEOUT
    return lambda options: shell(
        words, name=name, env=options.get("env"), pass_env=names, stdin="", cwd=cwd, timeout=limit
    )


def _url(compilation: Compilation, part: WaitedSpec, at: Location) -> _Make:
    from ...tools.probes import UrlProbe

    written = part.url if isinstance(part.url, str) else part.url.url if part.url else ""
    if not _HOST.fullmatch(written):
        compilation.problem(
            (*at, "url"),
            f"{written!r:.120} has no constant host; write http(s)://HOST/… without a user",
        )

    def make(options: Mapping[str, Any]) -> Probe:
        given = options["url"] if isinstance(options["url"], Mapping) else {"url": options["url"]}
        return UrlProbe(
            given["url"], given.get("status"), given.get("pattern", ""), given.get("is", "there")
        )

    return make
