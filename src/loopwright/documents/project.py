"""What one load of documents is about, as data: its settings, its project folder, and what came of it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..conditions import Budget
from ..engine.step import Step
from ..errors import DocumentError, Problem
from ..prompts.prompt import PromptSettings
from ..records.codec import Json
from .recorded import Recorded
from .schema.document import Document
from .schema.partial import Gaps
from .schema.traverse import functions_in
from .yaml.reader import Source

__all__ = ["LoadedDocument", "Project", "Settings", "shown_path"]


@dataclass(frozen=True)
class Settings:
    """What the caller of a document decides.

    `sets` are variables by name, `model` overrides `provider:model` of the document, `replies` is a
    file of scripted replies and `transcript` one that model calls are appended to, `environ` is where
    keys are looked up, `allowed_hosts` are hosts that are not public and may be called, `root` is the
    folder that nothing leaves (default: the document's own), `project` the one that other documents are
    looked for in after the caller's (default: the current one, if it is around the root), `execute` imports functions (without it
    they are only looked up), `agents` names functions for step types that need an outside backend.
    `agreed` are the files that a person agreed to, with their contents: documents and the modules beside
    them are made of these, and of nothing that is on disk by now.
    `strict` makes problems of what is only noted in foreign documents, `lenient` takes fragments of
    them and leaves unknown placeholders as they are. `recorded` are the documents of a run on record, for
    files that are gone.
    """

    sets: Mapping[str, str] = field(default_factory=dict)
    model: str | None = None
    model_url: str | None = None
    replies: str | None = None
    transcript: str | None = None
    max_usd: float | None = None
    max_calls: int | None = None
    max_total_tokens: int | None = None
    max_effects: int | None = None
    environ: Mapping[str, str] = field(default_factory=dict)
    allowed_hosts: tuple[str, ...] = ()
    providers: tuple[str, ...] = ()
    root: Path | None = None
    project: Path | None = None
    execute: bool = True
    agents: Mapping[str, str] = field(default_factory=dict)
    agreed: Mapping[Path, bytes] | None = None
    strict: bool = False
    lenient: bool = False
    recorded: Recorded = field(default_factory=Recorded)


@dataclass(frozen=True)
class LoadedDocument:
    """A document that is ready to run.

    `source` says how to load it again and is kept with the run, `resources` go to `run`, `documents` are the native forms
    of this document and of all that it calls, by file; `sources` have their places, `calls` the file that a file means
    by a name, `asks` how models are asked and where in the document that is. `contents` are the files that
    it was made of, `keys` which variable goes to which host.
    """

    name: str
    step: Step
    source: dict[str, Json]
    default_input: Json = None
    budget: Budget | None = None
    resources: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[Problem, ...] = ()
    documents: Mapping[str, Document] = field(default_factory=dict)
    sources: Mapping[str, Source] = field(default_factory=dict)
    calls: Mapping[tuple[str, str], str] = field(default_factory=dict)
    agents: Mapping[str, str] = field(default_factory=dict)
    asks: tuple[tuple[Problem, PromptSettings], ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)
    contents: Mapping[Path, bytes] = field(default_factory=dict)
    keys: tuple[str, ...] = ()
    agreed: Mapping[Path, bytes] | None = None

    @property
    def needs_python(self) -> bool:
        """Whether a document names a function, which is imported before it can run."""
        return any(True for document in self.documents.values() for _ in functions_in(document))


@dataclass
class Project:
    """The documents of one load: the root folder that nothing leaves, and what is already compiled.

    `project` is the folder that other documents are looked for in after the caller's own.
    """

    settings: Settings
    root: Path
    project: Path
    problems: list[Problem] = field(default_factory=list)
    notes: list[Problem] = field(default_factory=list)
    documents: dict[str, Document] = field(default_factory=dict)
    sources: dict[str, Source] = field(default_factory=dict)
    calls: dict[tuple[str, str], str] = field(default_factory=dict)
    contents: dict[Path, bytes] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)
    open: list[Path] = field(default_factory=list)
    settable: frozenset[str] = frozenset()  # the names by which the document takes variables
    dialect: str = ""  # of the document itself
    asks: list[tuple[Problem, PromptSettings]] = field(
        default_factory=list
    )  # models, and where they are asked
    gaps: dict[str, Gaps] = field(default_factory=dict)  # what is left out of documents, by file

    @property
    def execute(self) -> bool:
        """Whether functions are imported: not for a document that is wrong, which never runs."""
        return self.settings.execute and not self.gaps

    def leave_out(self, file: str, problems: list[Problem], gaps: Gaps) -> None:
        """Keep what is wrong in a document, and what it lacks for that."""
        self.problems += problems
        if problems:
            self.gaps[file] = gaps

    def agreed(self, reference: str) -> Mapping[Path, bytes] | None:
        """Return what a function's module is made of; None reads it from its file.

        That is so before anyone was asked, and for functions that the caller named himself.
        """
        own = reference in self.settings.agents.values()
        return None if own else self.settings.agreed

    def root_of(self, folder: Path) -> Path:
        """Return the folder that a document in `folder` does not leave: the root, or its own outside of that."""
        below = Path(os.path.realpath(folder)).is_relative_to(os.path.realpath(self.root))
        return self.root if below else folder

    def content(self, path: Path) -> bytes:
        """Return what a document's file holds: once, so that what is shown, kept and run is the same."""
        agreed, recorded = self.settings.agreed, self.settings.recorded
        gone = recorded.has(path)
        if gone:
            told = "is gone; the run goes on with the document that is on record"
            self.notes.append(Problem(shown_path(path), 0, 0, "", told))
        if agreed is not None:
            if path not in agreed:
                what = "is not among the files that were agreed to; run it again to be asked"
                raise DocumentError([Problem(shown_path(path), 0, 0, "", what)])
            return agreed[path]
        try:
            return recorded.files[str(path)] if gone else path.read_bytes()
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise DocumentError(
                [Problem(shown_path(path), 0, 0, "", f"cannot be read: {why}")]
            ) from error


def shown_path(path: Path) -> str:
    """Return a path as the user would write it: relative to where he is, if it is below."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
