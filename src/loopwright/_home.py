"""The folder `.loopwright` of a project, and whether this user made it.

A repository or an archive can bring such a folder, and what is in it would be used: a store is configuration
of git, a journal names folders and answers. So its random identifier must be known outside of the project. A
clone cannot know it; a move or a copy by the user keeps it.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shlex
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from .errors import ConfigurationError

__all__ = ["HOME", "TRUST", "Home", "state_folder", "user_secret"]

HOME = ".loopwright"  # the folder of journals, stores and trees
TRUST = "LOOPWRIGHT_TRUST"  # `all`: everything is approved, for dedicated machines
_ID = "id"
_NO_STATE = "set XDG_STATE_HOME to a folder of yours that can be written"
# Not through a link, which could lead to the identifier of another folder, and not from a pipe.
_NOT_THROUGH = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_TOKEN = re.compile(r"[0-9a-f]{32}")
# What is read or written through its name. Files of runs are named by their digests, and need no trust.
_USED = frozenset({
    "runs.db", "runs.db-wal", "runs.db-journal", "store.git", "store.new", "store.lock", "trees", "sources",
    "patches", "detached",
})  # fmt: skip


def state_folder() -> Path | None:
    """Return `$XDG_STATE_HOME/loopwright` (by default in `~/.local/state`); None without a home folder."""
    state = Path(os.environ.get("XDG_STATE_HOME", ""))
    try:
        # The XDG specification says that relative paths are invalid and ignored.
        folder = state if state.is_absolute() else Path.home() / ".local" / "state"
    except RuntimeError:
        return None
    return folder / "loopwright"


@dataclass(frozen=True)
class Home:
    """A folder `.loopwright`.

    Args:
        folder: the folder; it need not exist.
    """

    folder: Path

    @property
    def known(self) -> bool:
        """Whether this user made it, or has adopted it; everything is known where everything is trusted."""
        return self.recognised or (os.environ.get(TRUST) == "all" and self.folder.is_dir())

    @property
    def foreign(self) -> bool:
        """Whether it has contents that this user did not make."""
        if self.known or not (self._token() or any(map(self._is_used, self.names()))):
            return False
        # Again: another process may have made it in between.
        return not self.known

    def names(self) -> list[str]:
        """Return the names in it; none if it does not exist."""
        with suppress(FileNotFoundError, NotADirectoryError):
            return sorted(place.name for place in self.folder.iterdir())
        return []

    def refuse_foreign(self) -> None:
        """Refuse contents that this user did not make.

        Raises:
            ConfigurationError: with the commands that remove it or make it known.
        """
        if not self.foreign:
            return
        state = state_folder()
        blind = "" if state is not None and _can_be_written(state) else f" ({_NO_STATE})"
        raise ConfigurationError(
            f"{self.folder} is not known as a folder of yours, so nothing in it is used: it may come from elsewhere{blind}; "
            f"{self.ways_out}"
        )

    @property
    def ways_out(self) -> str:
        """The commands that remove it, or make it known."""
        place = shlex.quote(str(self.folder))
        adopt = "loopwright journal adopt" + ("" if self.folder == Path(HOME) else f" {place}")
        return f"remove it with: rm -r {place}, or look at its contents and make it known with: {adopt}"

    def make(self, *, required: bool = False) -> None:
        """Create it, private to its owner and ignored by version control, and make it known.

        Args:
            required: whether later processes must know it.

        Raises:
            ConfigurationError: if it has foreign contents, or if what is required cannot be stored.
            OSError: if it cannot be created.
        """
        self.refuse_foreign()
        # Inputs and outputs may be confidential.
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        ignore = self.folder / ".gitignore"
        if not os.path.lexists(ignore):
            # It may stand in the user's repository, and must not appear in his `git status`.
            ignore.write_text("*\n", "utf-8")
        if not self.recognised:
            self.identify(required=required)
        elif (place := self.folder.resolve()) not in self.places and (state := state_folder()):
            # Where the state cannot be written, a run that began there stays where it was.
            with suppress(OSError), (state / "folders" / self._token()).open("a") as file:
                file.write(f"{place}\n")

    def identify(self, *, required: bool = True) -> None:
        """Make it known under a new identifier: the maker of foreign contents may know the present one.

        Raises:
            ConfigurationError: if that cannot be stored, and is required.
        """
        token, state = secrets.token_hex(16), state_folder()
        try:
            if state is None:
                raise FileNotFoundError(errno.ENOENT, "there is no home folder", "HOME")
            # Before the identifier is seen: another process would refuse it until then.
            _write_private(state / "folders" / token, f"{self.folder.resolve()}\n")
        except OSError as error:
            if required and os.environ.get(TRUST) != "all":
                raise ConfigurationError(
                    f"{error.filename}: {error.strerror}: {self.folder} keeps files only if it is known later; {_NO_STATE}"
                ) from error
            return
        place, draft = self.folder / _ID, self.folder / f"{_ID}.{token}"
        if self._token() and not self.recognised:
            place.unlink(missing_ok=True)
        _write_private(draft, token)
        try:
            os.link(draft, place)
        except FileExistsError:  # another process was first
            (state / "folders" / token).unlink()
        except OSError:  # no links on this file system
            draft.replace(place)
        finally:
            draft.unlink(missing_ok=True)

    @property
    def recognised(self) -> bool:
        """Whether its identifier is known."""
        state, token = state_folder(), self._token()
        return state is not None and len(token) > 1 and (state / "folders" / token).is_file()

    @property
    def places(self) -> list[Path]:
        """Where it was made or used: before a move or a copy by the user, too."""
        state = state_folder()
        if state is None or not self.recognised:
            return []
        return [Path(line) for line in (state / "folders" / self._token()).read_text().splitlines()]

    def private_file(self, name: str) -> Path:
        """Return a file of the user's that belongs to this folder and is outside of it, where no repository brings it.

        Raises:
            ConfigurationError: if the folder is not known by an identifier, such as where no state can be stored.
        """
        state = state_folder()
        if state is None or not self.recognised:
            raise ConfigurationError(f"{self.folder} has no identifier; {_NO_STATE}")
        return state / "private" / f"{self._token()}.{name}"

    def secret(self, name: str, make: Callable[[], str] = secrets.token_urlsafe) -> str:
        """Return a secret of this folder, which `make` makes at its first use. Its file is readable by the user only.

        Raises:
            ConfigurationError: if it cannot be stored.
        """
        return _secret(self.private_file(name), make)

    def is_copy_of(self, other: Home) -> bool:
        """Whether both have one identifier: a move or a copy by the user keeps it."""
        return self._token() == other._token() != ""

    def _token(self) -> str:
        """Return the identifier, "" without one, or "?"."""
        try:
            file = os.open(self.folder / _ID, os.O_RDONLY | _NOT_THROUGH)
            with os.fdopen(file, encoding="ascii", errors="replace") as stream:
                text = stream.read(64)
        except (FileNotFoundError, NotADirectoryError):
            return ""
        except OSError:
            return "?"
        # It becomes the name of a file.
        return text if _TOKEN.fullmatch(text) else "?"

    def _is_used(self, name: str) -> bool:
        return name in _USED or (self.folder / name).is_symlink()


def _can_be_written(folder: Path) -> bool:
    """Whether a folder, or the first one above it that exists, can be written."""
    while not os.path.lexists(folder):
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK)


def user_secret(name: str) -> str:
    """Return a secret of the user for all folders, made at its first use: 32 random bytes as text.

    Raises:
        ConfigurationError: if it cannot be stored.
    """
    if (state := state_folder()) is None:
        raise ConfigurationError(f"there is no home folder; {_NO_STATE}")
    return _secret(state / "private" / name, secrets.token_urlsafe)


def _secret(file: Path, make: Callable[[], str]) -> str:
    """Return the secret in a file of the user's, which `make` makes first."""
    try:
        # Linked when it is complete: another process reads it at once.
        draft = file.with_name(f"{file.name}.{secrets.token_hex(4)}")
        if not file.exists():
            _write_private(draft, make())
            try:
                os.link(draft, file)
            except FileExistsError:  # another process was first
                pass
            except OSError:  # no links on this file system
                draft.replace(file)
            draft.unlink(missing_ok=True)
        return file.read_text("ascii")
    except OSError as error:
        raise ConfigurationError(f"{error.filename}: {error.strerror}; {_NO_STATE}") from error


def _write_private(file: Path, text: str) -> None:
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
        stream.write(text)
