"""What `run FILE` names: a document, or a step of a Python module as `package.module:attribute`.

Both load to the same facts, and both say how to load them again, which is kept with the run so that
`resume RUN` needs no file name.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ..conditions import UNITS, Budget
from ..engine.step import Step, as_step
from ..errors import ConfigurationError, Problem, nearest
from ..journal import RunInfo
from ..records.codec import Json, text_of
from ..records.redaction import Redactor, secrets_in
from .inputs import variables

if TYPE_CHECKING:
    from ..documents.check.trust import LocalActions

__all__ = ["Given", "PythonStep", "RunSource", "load_again", "load_source"]

_PYTHON = re.compile(r"([^\W\d]\w*(?:\.[^\W\d]\w*)*):([^\W\d]\w*(?:\.[^\W\d]\w*)*)")


class RunSource(Protocol):
    """What was loaded; `loopwright.documents.Loaded` is one."""

    @property
    def name(self) -> str: ...
    @property
    def step(self) -> Step: ...
    @property
    def default_input(self) -> Json: ...
    @property
    def resources(self) -> Mapping[str, Any]: ...
    @property
    def budget(self) -> Budget | None: ...
    @property
    def source(self) -> dict[str, Json]: ...
    @property
    def notes(self) -> tuple[Problem, ...]: ...
    @property
    def needs_python(self) -> bool: ...
    def deeds(self) -> LocalActions | None: ...
    def lints(self) -> list[Problem]: ...
    def missing(self, *, offline: bool = False) -> list[Problem]: ...
    def plan(self) -> dict[str, Json]: ...


@dataclass(frozen=True)
class Given:
    """What the command line says about a document: see `loopwright.documents.Settings`."""

    sets: Mapping[str, str] = field(default_factory=dict)
    model: str | None = None
    model_url: str | None = None
    replies: str | None = None
    transcript: str | None = None
    max_usd: float | None = None
    max_calls: int | None = None
    max_total_tokens: int | None = None
    max_effects: int | None = None
    agents: Mapping[str, str] = field(default_factory=dict)
    lenient: bool = False
    documents: Json = None  # of a run on record, for files that are gone

    @classmethod
    def of(
        cls, sets: Sequence[str] | None = None, agents: Sequence[str] | None = None, **given: Any
    ) -> Given:
        """Return what options say, with `NAME=VALUE` texts taken apart."""
        return cls(variables(sets or ()), agents=variables(agents or (), "--agent"), **given)

    def limits(self) -> dict[str, Any]:
        """Return what bounds the run, by the names of the options."""
        return {name: getattr(self, name) for name in UNITS}

    def named(self) -> list[str]:
        """Return the options that only a document knows and that were given."""
        told = {"--set": self.sets, "--agent": self.agents, "--lenient": self.lenient}
        return [option for option, value in told.items() if value]


@dataclass(frozen=True)
class PythonStep:
    """A step of a Python module."""

    name: str
    step: Step
    source: dict[str, Json]
    budget: Budget | None = None
    default_input: Json = None
    resources: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[Problem, ...] = ()
    needs_python: bool = True

    def deeds(self) -> None:
        """Return nothing to agree to: who names a module's attribute means to run it."""

    def lints(self) -> list[Problem]:
        """Return no remarks: those are on documents."""
        return []

    def missing(self, *, offline: bool = False) -> list[Problem]:
        """Return nothing: which models a step of Python asks is known when it asks."""
        del offline
        return []

    def plan(self) -> dict[str, Json]:
        """Return what is known of it before it runs: Python says no more."""
        limit = getattr(self.step, "limit", None)
        bounds = [f"{self.name}: at most {limit} iterations"] if isinstance(limit, int) else []
        return {"name": self.name, "steps": [repr_of(self.step)], "bounds": bounds}


def repr_of(step: Step) -> str:
    """Return a step's name and kind."""
    return f"{step.name} ({type(step).__name__})"


def load_source(
    what: str,
    given: Given,
    *,
    execute: bool = True,
    root: str = "",
    contents: Mapping[Path, bytes] | None = None,
) -> RunSource:
    """Load a document by its file, or a step of Python as `package.module:attribute`.

    `execute` false looks a document's functions up without running their modules; `root` is the
    folder that Python modules are looked for in first, the current one by default; `contents` are the
    files that a person agreed to: nothing else is loaded then.

    Raises:
        DocumentError, ConfigurationError: if it cannot be loaded.
    """
    named = _PYTHON.fullmatch(what)
    if named and not Path(what).exists():
        return _python(named[1], named[2], given, root or str(Path.cwd()))
    if not Path(what).is_file() and given.documents is None:
        raise ConfigurationError(_missing(what))
    if what.endswith(".py"):
        raise ConfigurationError(
            f"{what} is Python, not a document; name the step in it: {Path(what).stem}:NAME"
        )
    from .documents import document_of  # a step of Python needs none of it

    return document_of(what, given, execute, root, contents)


def load_again(
    info: RunInfo,
    given: Given,
    *,
    execute: bool = True,
    contents: Mapping[Path, bytes] | None = None,
) -> RunSource:
    """Load what a recorded run was started from; what is given now overrides what was given then.

    Raises:
        ConfigurationError: if the run was started from a program of its own.
        DocumentError: if the document is gone or wrong by now.
    """
    then = info.source
    root = text_of(then.get("root"))
    if "python" in then:
        names = (*UNITS, "model", "model_url", "replies")
        kept: dict[str, Any] = {name: getattr(given, name) or then.get(name) for name in names}
        return load_source(then["python"], replace(given, **kept), root=root)
    if "file" not in then:
        raise ConfigurationError(
            f"{info.run_id}: it was started by a Python program, which alone can load it again; "
            f"there: resume(step, {info.run_id!r}, journal=…)"
        )
    merged = Given(
        sets={**then.get("sets", {}), **given.sets},
        model=given.model or then.get("model"),
        model_url=given.model_url or then.get("model_url"),
        replies=given.replies or then.get("replies"),
        transcript=given.transcript,
        agents={**then.get("agents", {}), **given.agents},
        lenient=given.lenient or bool(then.get("lenient")),
        documents=then.get("documents"),
        **{name: value or then.get(name) for name, value in given.limits().items()},
    )
    return load_source(then["file"], merged, execute=execute, root=root, contents=contents)


def _python(module: str, attribute: str, given: Given, root: str) -> PythonStep:
    name = f"{module}:{attribute}"
    if options := given.named():
        raise ConfigurationError(f"{options[0]} is for documents; {name} is a step of Python")
    made = as_step(_attribute(_imported(module, root), name, attribute))
    source: dict[str, Json] = {"python": name, "root": root}
    caps = {name: value for name, value in given.limits().items() if value is not None}
    source |= caps
    budget = Budget(**{UNITS[name]: value for name, value in caps.items()}) if caps else None
    replies = given.replies and os.path.realpath(given.replies)  # to be found from any folder again
    told = {"model": given.model, "model_url": given.model_url, "replies": replies}
    source |= {key: value for key, value in told.items() if value}
    models = _Models(given)
    if given.replies:  # a file that is not there is told whether or not the step asks a model
        models.read()
    return PythonStep(made.name, made, source, budget, resources=models)


class _Models(Mapping[str, Any]):
    """The models of a step of Python, made when a prompt first asks: who has none pays nothing."""

    def __init__(self, given: Given) -> None:
        self._given = given
        self._made: Mapping[str, Any] | None = None

    def read(self) -> Mapping[str, Any]:
        """Make them now, if they are not there yet."""
        if self._made is None:
            from .documents import models_of

            self._made = models_of(self._given)
        return self._made

    def __getitem__(self, name: str) -> Any:
        if name == "redactor":  # asked for by every run, whether or not it asks a model
            return Redactor(secrets_in(os.environ))
        return self.read()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.read())

    def __len__(self) -> int:
        return 1  # some: how many is not worth loading them for


def _imported(module: str, root: str) -> Any:
    if root not in sys.path:
        sys.path.insert(0, root)  # a console script's path lacks the folder it is called in
    try:
        return importlib.import_module(module)
    except (Exception, SystemExit) as error:  # the module is the user's: anything can come
        why = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise ConfigurationError(f"{module} cannot be imported: {why}") from error


def _attribute(module: Any, name: str, attribute: str) -> Any:
    found = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            public = [word for word in dir(found) if not word.startswith("_")]
            raise ConfigurationError(f"{name}: there is no {part!r}{nearest(part, public)}")
        found = getattr(found, part)
    if isinstance(found, type) or not (callable(found) or hasattr(found, "fingerprint")):
        kind = "a class" if isinstance(found, type) else f"a {type(found).__name__}"
        raise ConfigurationError(
            f"{name}: {kind} is no step; name a Loop, a Workflow or a function"
        )
    return found


def _missing(what: str) -> str:
    path = Path(what)
    if path.is_dir():
        return f"{what} is a folder; name a document in it"
    folder = path.parent
    beside = [str(folder / entry.name) for entry in folder.iterdir()] if folder.is_dir() else []
    hint = nearest(str(path), beside)
    return f"there is no file {what!r}{hint or '; name a document, or package.module:attribute'}"
