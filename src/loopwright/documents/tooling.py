"""Tools and servers of a document, and what its steps do with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..agents.steps import Selected, ToolStep
from ..errors import listed, nearest
from ..tools.base import NAME, Tool
from ..tools.command import command_tool
from ..tools.function import tool
from ..tools.mcp import mcp_server
from .native import Action, Document
from .native_tools import ServerSpec, ToolSpec

if TYPE_CHECKING:
    from .compiling import Compiler, Path_

__all__ = ["compile_tool_step", "compile_tools", "tools_named"]


def compile_tools(document: Document, compiler: Compiler) -> dict[str, Any]:
    """Return the tools and servers of a document by name; those that are wrong are problems."""
    made: dict[str, Any] = {}
    for name, spec in document.servers.items():
        if _named(compiler, ("servers", name), name):
            made[name] = _server(compiler, name, spec, ("servers", name))
    for name, one in document.tools.items():
        at: Path_ = ("tools", name)
        if name in document.servers:
            compiler.problem(at, f"{name!r} is a server already; give the tool another name")
        elif _named(compiler, at, name):
            made[name] = _tool(compiler, name, one, at)
    return made


def _named(compiler: Compiler, at: Path_, name: str) -> bool:
    if NAME.fullmatch(name):
        return True
    compiler.problem(at, f"{name!r} cannot be called; use 1 to 64 letters, digits, - and _")
    return False


def _server(compiler: Compiler, name: str, spec: ServerSpec, at: Path_) -> Any:
    cwd = compiler.project.inside(compiler.folder, spec.cwd or ".", compiler, (*at, "cwd"))
    return compiler.attempt(
        at,
        lambda: mcp_server(
            name, spec.command or (), url=spec.url or "", env=spec.env, pass_env=spec.pass_env,
            cwd=cwd if spec.command else None, headers=spec.headers,
            token_env=spec.token_env or "", only=spec.only, idempotent=spec.idempotent,
            approve=spec.approve, timeout=spec.timeout, start_timeout=spec.start_timeout,
        ),
    )  # fmt: skip


def _tool(compiler: Compiler, name: str, spec: ToolSpec, at: Path_) -> Any:
    told: dict[str, Any] = {
        "idempotent": spec.idempotent, "approve": spec.approve, "timeout": spec.timeout,
        "description": spec.description or "",
    }  # fmt: skip
    if spec.commands is not None:
        allowed = spec.commands
        cwd = compiler.project.inside(compiler.folder, spec.cwd or ".", compiler, (*at, "cwd"))
        return compiler.attempt(
            at,
            lambda: command_tool(name, allowed, exact=spec.exact, env=spec.env, cwd=cwd, **told),
        )
    found = compiler.function((*at, "python"), spec.python or "")
    if found is None or not compiler.project.execute:
        return found and Tool(name)  # only looked at: it is never called
    return compiler.attempt((*at, "python"), lambda: tool(found, name=name, **told))


def tools_named(
    compiler: Compiler, names: list[str], at: Path_, *, alone: bool = False
) -> list[Any] | None:
    """Return the tools that a step names: a tool, a server, or `server.tool`; None with a problem.

    `alone` says that `at` holds one name, not a list of them.
    """
    found: list[Any] = []
    chosen: dict[str, list[str]] = {}
    before = len(compiler.problems)
    for i, name in enumerate(names):
        place = at if alone else (*at, i)
        owner, dot, inner = name.partition(".")
        one = compiler.tools.get(owner if dot else name)
        if one is None:
            if (owner if dot else name) not in compiler.declared:
                hint = nearest(name, compiler.declared) or _known(name, compiler.declared)
                compiler.problem(place, f"there is no tool or server {name!r}{hint}")
        elif not dot:
            found.append(one)
        elif not hasattr(one, "tools"):
            compiler.problem(place, f"{owner!r} is a tool; only servers have tools inside")
        else:
            chosen.setdefault(owner, []).append(inner)
    found += [Selected(compiler.tools[owner], inner) for owner, inner in chosen.items()]
    return None if len(compiler.problems) > before else found


def _known(name: str, names: Mapping[str, Any] | frozenset[str]) -> str:
    return listed(name, sorted(names), lead="there are") or "; declare it in tools:"


def compile_tool_step(
    compiler: Compiler, spec: Action, name: str, path: Path_, at: Path_
) -> ToolStep | None:
    """Compile one call of a tool; None with a problem."""
    assert spec.tool is not None
    found = tools_named(compiler, [spec.tool], path, alone=True)
    if not found:
        return None
    (one,) = found
    if hasattr(one, "tools") and not isinstance(one, Selected):
        compiler.problem(path, f"{spec.tool!r} is a server; name a tool of it: {spec.tool}.NAME")
        return None
    arguments = None
    if spec.arguments is not None:
        arguments = compiler.filled((*at, "arguments"), spec.arguments)
    return ToolStep(one, name=name, arguments=arguments)
