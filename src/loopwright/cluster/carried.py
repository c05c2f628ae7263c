"""Documents that travel with a submitted run: their contents, and the worker's consent to what they do.

Rules:

1. A submitted run carries the text of its document and of every file that the document uses, with one digest. A
   worker writes them to a folder of its own, named after the digest, and never reads a path of the submitter.
2. A document that runs commands or Python, or sends variables of the environment, runs only on a worker that trusts
   this digest. The digest covers the name of the document, relative names, contents and settings, so it is the same on
   all machines.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ..documents import Loaded, Settings, load
from ..documents.project import LoadedDocument, Recorded
from ..documents.steps import FILE
from ..errors import ConfigurationError
from ..records.codec import Json
from .shared_runs import CARRIED
from .trust import TrustedDigests

__all__ = ["Carried", "carry", "unpacked"]

MAX_BYTES = 4_000_000  # of all files of a run
_DOCUMENTS = (".yaml", ".yml", ".json")

Trust = Callable[[str], bool]
"""Whether a worker trusts the documents with a digest."""


@dataclass(frozen=True)
class Carried:
    """The files of a submitted document.

    Args:
        main: the relative name of the document.
        files: the texts by relative name.
        acts: whether the document runs commands or Python, or sends variables of the environment.
        digest: the digest of the document's name, names, contents and settings.
    """

    main: str
    files: Mapping[str, str]
    acts: bool
    digest: str

    def to_json(self) -> dict[str, Json]:
        """Return the files as JSON."""
        return {
            "main": self.main,
            "files": dict(self.files),
            "acts": self.acts,
            "digest": self.digest,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> Carried:
        """Return the files that `to_json` wrote."""
        return cls(data["main"], data["files"], bool(data["acts"]), data["digest"])


# Settings that change what a document does.
_SETTINGS = (
    "sets", "model", "model_url", "cache", "agents", "lenient", "strict", "max_usd", "max_calls", "max_total_tokens",
    "max_effects",
)  # fmt: skip


def carry(loaded: LoadedDocument, contents: Mapping[Path, bytes], *, acts: bool) -> dict[str, Json]:
    """Return the source of a submitted run, with the contents of its files instead of their paths.

    Args:
        loaded: the document.
        contents: the files that it uses beside the documents, by their real paths.
        acts: whether it runs commands or Python, or sends variables of the environment.

    Raises:
        ConfigurationError: if the files are too large, not text, unknown or not in one folder.
    """
    source = dict(loaded.source)
    main = Path(str(source["file"]))
    files = {**loaded.contents, **contents, **_sent(loaded)}
    if replies := source.pop("replies", None):
        file = Path(str(replies))
        files[file] = file.read_bytes()
    total = sum(map(len, files.values()))
    if total > MAX_BYTES:
        raise ConfigurationError(
            f"{main.name}: its files have {total:,} bytes, and a run carries at most {MAX_BYTES:,}. Install large "
            "files on the workers instead."
        )
    # Relative to one folder, because the paths of the submitter do not exist on a worker.
    folder = Path(os.path.commonpath([file.parent for file in files]))
    texts = {}
    for file, raw in files.items():
        try:
            texts[str(file.relative_to(folder))] = raw.decode("utf-8")
        except UnicodeDecodeError:
            raise ConfigurationError(
                f"{file.name} is not UTF-8 text, and a run carries text only. Install it on the workers."
            ) from None
    kept = {key: source[key] for key in _SETTINGS if key in source}
    if replies:
        kept["replies"] = str(Path(str(replies)).relative_to(folder))
    name = str(main.relative_to(folder))
    carried = Carried(name, texts, acts, _digest(name, texts, kept))
    return {**kept, CARRIED: carried.to_json()}


def _sent(loaded: LoadedDocument) -> dict[Path, bytes]:
    """Return the files of lists and prompts, which a worker does not have."""
    files = {}
    for one in loaded.sent:
        if one.folder and one.written.startswith(FILE):
            raise ConfigurationError(
                f"{loaded.name}: {one.written} is known only when the list starts, and a worker does not have the file. "
                "Name the file without a placeholder, or submit the items as input"
            )
        if one.folder or one.path is None:
            continue
        try:
            files[one.path] = one.path.read_bytes()
        except OSError as error:
            raise ConfigurationError(
                f"{loaded.name}: {one.written} cannot be read: {error.strerror}"
            ) from None
    return files


def _digest(main: str, files: Mapping[str, str], settings: Mapping[str, Json]) -> str:
    parts = [main, files, settings] if main else [files, settings]
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def unpacked(source: Mapping[str, Json], *, trust: Trust, environ: Mapping[str, str]) -> Loaded:
    """Load the document that a run carries, from a folder of this machine.

    Raises:
        ConfigurationError: if its contents do not match the digest, or if this worker does not trust it.
        DocumentError: if it cannot be loaded here.
    """
    carried = Carried.from_json(source[CARRIED])
    kept = {key: source[key] for key in (*_SETTINGS, "replies") if key in source}
    replies = kept.get("replies")
    # Earlier versions submitted runs with a digest without the name of the document.
    mains = [carried.main, ""] if carried.main.endswith(_DOCUMENTS) else [carried.main]
    # The trust of a worker is in a digest, so the files must be those that have it, and no others may be read.
    if (
        carried.digest not in [_digest(main, carried.files, kept) for main in mains]
        or carried.main not in carried.files
        or replies not in (None, *carried.files)
    ):
        raise ConfigurationError(
            "the files of this run do not match their digest. Submit it again."
        )
    folder = _written(carried)
    kept.pop("replies", None)
    settings = Settings(
        **kept,
        replies=str(folder / replies) if replies else None,
        environ=environ,
        providers=() if replies else None,
        root=folder,
        project=folder,
        recorded=Recorded(),
        # Nothing of the document is imported or run before the check of trust below.
        execute=False,
    )
    loaded = load(folder / carried.main, settings)
    # The submitter's word is not enough: what the document does is read from its contents.
    actions = loaded.local_actions()
    # Functions of the caller are not among them, and here the caller is whoever submitted the run.
    if (actions.acts or loaded.agents) and not trust(carried.digest):
        nearest = trust.nearest(carried.digest) if isinstance(trust, TrustedDigests) else ""
        raise ConfigurationError(
            f"this worker does not trust the commands and Python code of {loaded.name}. Start it with "
            f"--trust {carried.digest[:16]}"
            + (f"; of the digests that it trusts, {nearest} is the nearest" if nearest else "")
        )
    if not loaded.needs_python:
        return loaded
    return load(folder / carried.main, replace(settings, execute=True, agreed=actions.contents))


def _written(carried: Carried) -> Path:
    """Return a private folder with the files; it is created once for each digest."""
    base = Path(tempfile.gettempdir()) / f"loopwright-{os.getuid() if hasattr(os, 'getuid') else 0}"
    base.mkdir(mode=0o700, exist_ok=True)
    if base.is_symlink() or (hasattr(os, "getuid") and base.stat().st_uid != os.getuid()):
        raise ConfigurationError(
            f"{base} belongs to another user. Set TMPDIR to a folder of yours."
        )
    folder = base / carried.digest[:32]
    complete = folder.with_suffix(".complete")
    if not complete.exists():
        for name, text in carried.files.items():
            file = Path(os.path.normpath(folder / name))
            # The names come from the journal, and a name like `../x` would overwrite files of this user.
            if not file.is_relative_to(folder):
                raise ConfigurationError(f"{name!r} is outside the folder of the run's files")
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Written whole and renamed, because several workers of this machine may do the same.
            partial = file.with_name(f"{file.name}.{os.getpid()}")
            partial.write_text(text, "utf-8", newline="")
            partial.replace(file)
        # Last: after a crash the files are written again.
        complete.touch()
    return folder
