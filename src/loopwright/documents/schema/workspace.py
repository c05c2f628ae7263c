"""The model of `workspace:`, of documents and loops."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from .fields import Part

__all__ = ["WorkspaceKind", "WorkspaceSpec"]

WorkspaceKind = Literal["copy", "worktree", "snapshot", "here"]


class WorkspaceSpec(Part):
    """The folder in which commands run: its files are captured in each iteration, and the best ones stay in place."""

    kind: WorkspaceKind = Field(
        "copy",
        description="`copy`: a clone. `worktree`: one that git lists. `snapshot`: a folder without git. `here`: the folder "
        "itself. A copy of a folder without git is a snapshot.",
    )
    path: str = Field(".", description="The folder, relative to the document.")
    dirty: Literal["include", "refuse", "leave"] = Field(
        "include",
        description="Whether uncommitted changes are copied, are an error, or are left out.",
    )
    history: Literal["full", "base"] = Field(
        "full", description="`base`: one commit, without the history of the repository."
    )
    include: list[str] = Field(
        [], description="Patterns of files that are captured although they are ignored."
    )
    exclude: list[str] = Field(
        [], description="Patterns, as in .gitignore, of files that are never captured."
    )
    max_file: int | str = Field("100 MB", description="Size of the largest file that is captured.")
    setup: list[str] | str = Field(
        [], description="A command that prepares each new copy, such as [uv, sync]."
    )
    reset: list[str] | str = Field(
        [],
        description="A command that puts a database or a service into the state of the files. It runs whenever files were "
        "put in place for an iteration.",
    )
    link: list[str] = Field(
        [], description="Folders that the copy contains as links, such as node_modules."
    )
    refine_from: Literal["last", "best", "accepted"] = Field(
        "last",
        description="The iteration from which the next one continues, with its files and its record.",
    )
    on_cancel: Literal["best", "leave"] = Field(
        "best", description="The files of a cancelled loop: the best, or as they are."
    )
    merge: Literal["branch", "patch", "apply", "none"] | None = Field(
        None,
        description="What the end makes of the result: a branch, a patch, or changes in your folder. Default: branch, without "
        "git patch, and none for `here`.",
    )
    branch: str = Field("loopwright/{run}", description="Name of the branch; {run} is the run ID.")
    commits: Literal["squash", "iterations"] = Field(
        "squash", description="One commit, or one for each iteration that led to the result."
    )
    secrets: Literal["warn", "drop"] = Field(
        "warn",
        description="Whether a changed file with a key is handed over with a warning, or left out.",
    )
    retain: str = Field(
        "7d", description="How long the folder stays after the end, for `workspace prune`."
    )
