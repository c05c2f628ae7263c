"""The data of one load of documents: the settings, the project and its documents."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ..conditions import Budget, RunLimits
from ..engine.budgets import Limits
from ..engine.step import Step
from ..errors import DocumentError, Problem
from ..records.codec import Json
from .schema.document import Document
from .schema.inputs import DeclaredInputs
from .schema.traverse import functions_in
from .schema.validate import Gaps
from .yaml.reader import Source

if TYPE_CHECKING:
    from ..coding.agents import AgentStep
    from ..prompts.settings import PromptSettings

__all__ = ["LoadedDocument", "Project", "Recorded", "Sent", "Settings", "shown_path"]


GENERATED = ".loopwright-"  # the beginning of the name of a document that no file holds
MAX_RECORDED = 1_000_000  # bytes of all documents of a run; larger ones are not recorded


@dataclass(frozen=True)
class Recorded:
    """The documents of a recorded run: their contents, and the file for each name that a file calls.

    A run continues from them if a file was deleted. A file that exists is read again, so that an edited document can
    continue too. With `only`, no document on disk is read: a replay decides as the run did.
    """

    files: Mapping[str, bytes] = field(default_factory=dict)
    calls: Mapping[tuple[str, str], str] = field(default_factory=dict)
    only: bool = False

    @classmethod
    def from_json(cls, data: Json, *, only: bool = False) -> Recorded:
        """Return the documents in the JSON of `to_json`; none for a run without them."""
        if not isinstance(data, Mapping):
            return cls()
        files = {
            # The journal stores text; `surrogateescape` restores any byte.
            name: text.encode("utf-8", "surrogateescape")
            for name, text in data["files"].items()
        }
        return cls(files, {(file, name): result for file, name, result in data["calls"]}, only)

    def to_json(self) -> Json:
        """Return the documents as JSON; None if they are too large or not UTF-8."""
        # Every run stores its documents, so large ones would make the journal grow quickly.
        if sum(map(len, self.files.values())) > MAX_RECORDED:
            return None
        try:
            texts = {name: raw.decode("utf-8") for name, raw in self.files.items()}
        except UnicodeDecodeError:
            return None
        calls: list[Json] = [[file, name, result] for (file, name), result in self.calls.items()]
        return {"files": texts, "calls": calls}

    def has(self, file: Path) -> bool:
        """Return whether a file is read from the record, because it no longer exists."""
        return str(file) in self.files and (self.only or not file.is_file())

    def called(self, caller: Path, name: str) -> Path | None:
        """Return the file that a document calls by a name, if it is recorded and no longer exists."""
        result = self.calls.get((str(caller), name))
        return Path(result) if result is not None and self.has(Path(result)) else None


@dataclass(frozen=True)
class Settings(RunLimits):
    """The decisions of the caller of a document.

    Attributes:
        sets: Values of variables by name; of a document that declares inputs, the texts of inputs.
        model: `provider:model` instead of the models of the document.
        model_url: The address of an OpenAI-compatible server for models without one.
        replies: A file of scripted replies, used instead of models.
        cache: `store` or `off`: whether calls that say nothing keep replies for equal requests, or no call does.
            Default: as the document says.
        transcript: A file to which each model call is appended as a line of JSON.
        max_usd: Budget in US dollars. Default: that of the document, as for the next three.
        max_calls: Budget in model calls.
        max_total_tokens: Budget in input and output tokens together.
        max_effects: Budget in effects: functions, commands, calls of tools and of models.
        environ: The environment in which keys are looked up. Default: empty.
        allowed_hosts: Private hosts that may be called.
        providers: The providers that may be used; None for those of Loopwright. Default: all.
        root: The folder that files must be in. Default: the folder of the document.
        project: The folder to search for other documents. Default: the current folder if it contains `root`.
        execute: Import Python functions. Default: True. Without it they are only checked.
        agents: Functions for agents of other types, as `type: package.module:function`.
        agreed: The approved files with their contents. If set, documents and Python modules beside them are read from
            these contents only.
        strict: Treat notes on documents of other dialects as problems. Default: False.
        lenient: Accept fragments of other dialects and keep unknown placeholders. Default: False.
        evaluation: What to change in the evaluation of a data set: `use`, `sample`, `repeat`, `at_once`, `most` (the
            share of errors), limits of its `gate`, and the `baseline`. Default: nothing.
        recorded: The documents of a recorded run, for files that no longer exist.
        former: Compile loops as the versions did for which a sentence of `until` was an evaluator. Only the
            fingerprint of the result is of use: that of a run which such a version recorded.

    Example:
        >>> from loopwright.documents import Settings
        >>> Settings(model="openai:gpt-4o-mini", max_usd=0.5).max_usd
        0.5
    """

    sets: Mapping[str, str] = field(default_factory=dict)
    model: str | None = None
    model_url: str | None = None
    replies: str | None = None
    cache: str | None = None
    transcript: str | None = None
    environ: Mapping[str, str] = field(default_factory=dict)
    allowed_hosts: tuple[str, ...] = ()
    providers: tuple[str, ...] | None = ()
    root: Path | None = None
    project: Path | None = None
    execute: bool = True
    agents: Mapping[str, str] = field(default_factory=dict)
    agreed: Mapping[Path, bytes] | None = None
    strict: bool = False
    lenient: bool = False
    evaluation: Mapping[str, Json] = field(default_factory=dict)
    recorded: Recorded = field(default_factory=Recorded)
    former: bool = False


@dataclass(frozen=True, slots=True)
class Sent:
    """What the steps of a document read on this machine, and what a model may therefore receive.

    `written` is its text in the document, `path` the real path; None for files of a workspace. With `folder`, a template
    chooses any file in that folder. `models` receive it, with their addresses; empty if any model of the document can.
    """

    written: str
    path: Path | None = None
    folder: bool = False
    models: tuple[tuple[str, str], ...] = ()

    def missing(self) -> str:
        """Return the sentence on a file that does not exist, or ""."""
        there = self.path is None or self.folder or self.path.is_file()
        return "" if there else f"there is no file {self.written}"


# What a document needs on this machine, such as a program or a folder: returns a sentence if it is missing, else "".
LocalNeed = Callable[[], str]


SCRIPTED = "scripted:replies"  # the model of a document without one, with scripted replies
_OF_MODELS = ("models", "model")


class LateModels(Mapping[str, Json]):
    """The resources of a run whose document names no model: those for models are made when a step asks for them.

    A function of Python in the document may.
    """

    def __init__(self, own: Mapping[str, Json], make: Callable[[], Mapping[str, Json]]) -> None:
        self._own = own
        self._make = make
        self._made: Mapping[str, Json] = {}

    def __getitem__(self, name: str) -> Json:
        if name not in _OF_MODELS:
            return self._own[name]
        self._made = self._made or self._make()
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter((*_OF_MODELS, *self._own))

    def __len__(self) -> int:
        return len(_OF_MODELS) + len(self._own)


@dataclass(frozen=True)
class LoadedDocument:
    """A document that is ready to run. `Loaded` adds methods that examine it.

    `cases` are how many cases of a data set are run at most, by its file.
    `sources` hold the positions of the documents' parts, `calls` the file for each name that a file calls. `asks` are the
    settings of model calls with their places, `needs` what says that a program, a folder, a file of a list or git is
    missing, with its place, `models` the models with their addresses, `contents` the files with their bytes, `keys` the
    variables and the hosts that receive them, `sent` the files of this machine that a model may receive. `inputs` are
    those that the document declares; None if it declares none.
    """

    name: str
    step: Step
    source: dict[str, Json]
    default_input: Json = None
    budget: Budget | None = None
    limits: Mapping[str, Limits] = field(default_factory=dict)
    resources: Mapping[str, Json] = field(default_factory=dict)
    notes: tuple[Problem, ...] = ()
    documents: Mapping[str, Document] = field(default_factory=dict)
    sources: Mapping[str, Source] = field(default_factory=dict)
    calls: Mapping[tuple[str, str], str] = field(default_factory=dict)
    agents: Mapping[str, str] = field(default_factory=dict)
    asks: tuple[tuple[Problem, PromptSettings], ...] = ()
    needs: tuple[tuple[Problem, LocalNeed], ...] = ()
    models: tuple[tuple[str, str], ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)
    contents: Mapping[Path, bytes] = field(default_factory=dict)
    keys: tuple[str, ...] = ()
    agreed: Mapping[Path, bytes] | None = None
    sent: tuple[Sent, ...] = ()
    inputs: DeclaredInputs | None = None
    cases: Mapping[Path, int] = field(default_factory=dict)

    @property
    def needs_python(self) -> bool:
        """Whether a document uses a Python function, which a run imports."""
        return any(True for document in self.documents.values() for _ in functions_in(document))


@dataclass
class Project:
    """The documents of one load, their problems, and the results of their compilation.

    `root` is the folder that files must be in, `project` the folder to search for other documents. `open` are the
    documents that are being compiled, the caller first.
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
    sent: list[Sent] = field(default_factory=list)
    cases: dict[Path, int] = field(default_factory=dict)
    open: list[Path] = field(default_factory=list)
    settable: frozenset[str] = frozenset()  # the variables that the document uses
    dialect: str = ""  # of the first document
    asks: list[tuple[Problem, PromptSettings]] = field(default_factory=list)
    needs: list[tuple[Problem, LocalNeed]] = field(default_factory=list)
    coding: list[tuple[Problem, AgentStep]] = field(default_factory=list)  # with their places
    gaps: dict[str, Gaps] = field(default_factory=dict)  # the parts that were left out, by file

    @property
    def execute(self) -> bool:
        """Whether functions are imported: not for a document with problems, which does not run."""
        return self.settings.execute and not self.gaps

    def leave_out(self, file: str, problems: list[Problem], gaps: Gaps) -> None:
        """Record the problems of a document and the parts that were left out for them."""
        self.problems += problems
        if problems:
            self.gaps[file] = gaps

    def agreed(self, reference: str) -> Mapping[Path, bytes] | None:
        """Return the approved contents for a function; None reads its file.

        Files are read before the approval, and for functions of the caller, which need none.
        """
        # The caller chose these functions in code, so the approval of the document does not cover them.
        own = reference in self.settings.agents.values()
        return None if own else self.settings.agreed

    @property
    def recorded(self) -> bool:
        """Whether the document that is compiled is the one recorded with a run: keys of earlier versions are valid."""
        path = self.open[-1]
        content = self.settings.recorded.files.get(str(path))
        return content is not None and content == self.contents.get(path)

    def root_of(self, folder: Path) -> Path:
        """Return the folder that the files of a document must be in: the root, or its folder if that is elsewhere."""
        # A called document may be in the project folder but outside the root of its caller.
        below = Path(os.path.realpath(folder)).is_relative_to(os.path.realpath(self.root))
        return self.root if below else folder

    def content(self, path: Path) -> bytes:
        """Return the contents of a document. They are read once, so the display, the record and the run agree."""
        agreed, recorded = self.settings.agreed, self.settings.recorded
        gone = recorded.has(path)
        if gone and not path.name.startswith(GENERATED):
            message = "no longer exists; the run continues with the recorded document"
            self.notes.append(Problem(shown_path(path), 0, 0, "", message, code="document_gone"))
        # Approved contents are never read again: the file may have changed since the approval.
        if agreed is not None:
            if path not in agreed:
                what = "is not among the approved files; run it again to approve it"
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
    """Return a path relative to the current folder if it is inside, else the path itself."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
