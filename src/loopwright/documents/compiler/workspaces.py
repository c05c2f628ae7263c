"""Workspaces of documents and loops."""

from __future__ import annotations

from pathlib import Path

from ...coding.workspace import Workspace
from ..schema.workspace import WorkspaceKind, WorkspaceSpec
from ..yaml.source import Location
from .compilation import Compilation
from .tools import is_constant

__all__ = ["compile_workspace"]


def compile_workspace(
    compilation: Compilation, spec: WorkspaceSpec | WorkspaceKind | None, at: Location
) -> Workspace | None:
    """Return the workspace of a document or loop; None without one, or with problems."""
    if spec is None:
        return None
    value = WorkspaceSpec(kind=spec) if isinstance(spec, str) else spec
    path = compilation.inside(value.path, (*at, "path"))
    here = at if isinstance(spec, str) else (*at, "path")
    compilation.project.needs += [
        (compilation.source.problem(at, ""), "git"),
        (compilation.source.problem(here, ""), Path(path)),
    ]
    for name in ("setup", "reset"):
        command = getattr(value, name)
        if command and not is_constant(compilation, command, (*at, name)):
            return None
    options = {
        name: getattr(value, name)
        for name in WorkspaceSpec.model_fields
        if name not in ("path", "merge")
    }
    return compilation.attempt(at, lambda: Workspace(path, merge=value.merge or "", **options))
