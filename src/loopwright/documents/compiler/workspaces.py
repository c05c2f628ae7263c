"""Workspaces of documents and loops."""

from __future__ import annotations

from ...coding.workspace import Workspace
from ..schema.workspace import WorkspaceKind, WorkspaceSpec
from ..yaml.source import Location
from .compilation import Compilation

__all__ = ["compile_workspace"]


def compile_workspace(
    compilation: Compilation, spec: WorkspaceSpec | WorkspaceKind | None, at: Location
) -> Workspace | None:
    """Return the workspace of a document or loop; None without one, or with problems."""
    if spec is None:
        return None
    value = WorkspaceSpec(kind=spec) if isinstance(spec, str) else spec
    path = compilation.inside(value.path, (*at, "path"))
    options = {
        name: getattr(value, name)
        for name in WorkspaceSpec.model_fields
        if name not in ("path", "merge")
    }
    return compilation.attempt(at, lambda: Workspace(path, merge=value.merge or "", **options))
