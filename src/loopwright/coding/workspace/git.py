"""Git as a program: its environment, its calls and its errors. Nothing else in the package starts git.

No configuration of the user or the system reaches these calls. That of a repository does, so no call of ours
converts the files of a repository that is not ours, and every other key that names a program is set here.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...errors import StepError

__all__ = ["GIT_VERSION", "Git", "GitError", "is_branch_name", "problem_with_git"]

GIT_VERSION = (2, 32)  # the first with GIT_CONFIG_GLOBAL
_NO_BRANCH = re.compile(
    r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|//|@\{|(?:^|/)\.|\.lock(?:/|$)|^[-/]|[/.]$|^@$"
)
# Of every call: names of any form are allowed, and bytes and modes stay as they are.
_SETTINGS = {
    # A hook, a file monitor or another program of a repository would run without approval.
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "core.alternateRefsCommand": "true",
    "core.sshCommand": "false",
    "core.pager": "cat",
    "log.showSignature": "false",
    # The default places of these files do not depend on the configuration.
    "core.attributesFile": os.devnull,
    "core.excludesFile": os.devnull,
    "core.untrackedCache": "false",
    # Conversion of line ends would make a restored file differ from the captured one.
    "core.autocrlf": "false",
    "core.fileMode": "true",
    "core.symlinks": "true",
    "core.ignoreCase": "false",
    "core.precomposeUnicode": "false",
    "core.protectNTFS": "false",
    "core.protectHFS": "false",
    "core.quotePath": "false",
    "core.checkStat": "default",
    # Garbage collection could delete objects of a capture before a ref names them.
    "gc.auto": "0",
    "maintenance.auto": "false",
    "submodule.recurse": "false",
    "advice.detachedHead": "false",
    "protocol.allow": "never",
    "commit.gpgSign": "false",
    # In a container the folder often belongs to another user, which git refuses by default.
    "safe.directory": "*",
}
# Commands that read another repository, as a path of this machine. The program that serves it has no settings of
# ours, and must not fetch objects that the other repository lacks.
_TRANSFERS = ("clone", "fetch")
_SERVE = "GIT_ALLOW_PROTOCOL= git -c safe.directory='*' upload-pack"
_WHO = {
    # Fixed, so that equal trees with equal parents are equal commits.
    **{f"GIT_{role}_NAME": "Loopwright" for role in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{role}_EMAIL": "loopwright@localhost" for role in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{role}_DATE": "2000-01-01T00:00:00Z" for role in ("AUTHOR", "COMMITTER")},
}


class GitError(StepError):
    """A call of git failed."""

    def __init__(self, message: str) -> None:
        super().__init__(message, kind="workspace", retryable=False)


def is_branch_name(name: str) -> bool:
    """Return whether a branch can have a name, by the rules of git-check-ref-format(1).

    >>> is_branch_name("loopwright/run-1"), is_branch_name("a..b"), is_branch_name("-x")
    (True, False, False)
    """
    return bool(name) and name != "HEAD" and _NO_BRANCH.search(name) is None


def problem_with_git() -> str:
    """Return a sentence if git is missing or too old, or the system cannot open folders, else ""."""
    if os.open not in os.supports_dir_fd:
        return "This system cannot open folders. A workspace needs Linux, macOS or WSL."
    program = shutil.which("git")
    needed = ".".join(map(str, GIT_VERSION))
    if program is None:
        return f"git is not installed. A workspace needs git {needed} or newer."
    words = subprocess.run(
        [program, "--version"], capture_output=True, text=True, check=False
    ).stdout.split()
    version = words[2] if len(words) > 2 else ""
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers >= GIT_VERSION:
        return ""
    return f"git {version} is too old. A workspace needs git {needed} or newer."


@dataclass(frozen=True)
class Git:
    """Calls of git with the same repository, folder and index.

    Args:
        folder: the repository (GIT_DIR), or None to let git find it from `cwd`.
        work_tree: the folder of the files.
        index: the private index file.
        objects: the folder of objects, if it is not that of the repository.
        cwd: the working directory.
        settings: further settings.
        keep_open: descriptors that the calls inherit, such as that of a lock.
    """

    folder: Path | None = None
    work_tree: Path | None = None
    index: Path | None = None
    objects: Path | None = None
    cwd: Path | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    keep_open: tuple[int, ...] = ()

    def __call__(self, *words: str, stdin: bytes | None = None, ok: Sequence[int] = (0,)) -> bytes:
        """Run git and return its output.

        Raises:
            GitError: if it exits with another code than those in `ok`.
        """
        return self.run(*words, stdin=stdin, ok=ok).stdout

    def text(self, *words: str, ok: Sequence[int] = (0,)) -> str:
        """Run git and return its output as text without white space around it."""
        return os.fsdecode(self(*words, ok=ok)).strip()

    def run(
        self, *words: str, stdin: bytes | None = None, ok: Sequence[int] = (0,)
    ) -> subprocess.CompletedProcess[bytes]:
        """Run git and return the completed process."""
        return self._ended(self.start(*words), words, stdin, ok)

    def together(self, *calls: Sequence[str]) -> list[bytes]:
        """Run several calls at once and return their outputs, in the order of the calls.

        Two walks through a large folder take half the time. The calls must not depend on each other.
        """
        started = [(self.start(*words), words) for words in calls]
        return [self._ended(process, words, None, (0,)).stdout for process, words in started]

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """Start a call of git."""
        transfers = words[0] in _TRANSFERS
        served = [f"--upload-pack={_SERVE}"] if transfers else []
        command = ["git"]
        for name, value in {**_SETTINGS, **self.settings}.items():
            command += ["-c", f"{name}={value}"]
        try:
            return subprocess.Popen(
                [*command, words[0], *served, *words[1:]],
                # Also above the configuration of a repository, which may allow a protocol by its name.
                env={**self._environment(), "GIT_ALLOW_PROTOCOL": "file" if transfers else ""},
                cwd=self._working_directory,
                # Never our own standard input, for which a call could wait.
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                # A call that outlives our process keeps the lock of its tree.
                pass_fds=self.keep_open,
            )
        except FileNotFoundError as error:
            raise GitError(problem_with_git() or f"git cannot be started: {error}") from None

    @staticmethod
    def _ended(
        process: subprocess.Popen[bytes],
        words: Sequence[str],
        stdin: bytes | None,
        ok: Sequence[int],
    ) -> subprocess.CompletedProcess[bytes]:
        """Wait for a call, and return it completed."""
        out, err = process.communicate(stdin or b"")
        if process.returncode not in ok:
            # The end has the cause; git prints hints and progress before it.
            text = err.decode(errors="replace").strip()[-500:]
            raise GitError(f"git {words[0]} failed with {process.returncode}: {text}")
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    @property
    def _working_directory(self) -> Path | None:
        # `ls-files` lists nothing outside a working directory that is below the files, as the store is.
        if self.work_tree is not None and self.work_tree.is_dir():
            return self.work_tree
        return self.cwd or self.folder

    def _environment(self) -> dict[str, str]:
        # GIT_DIR or GIT_INDEX_FILE of a hook that started us would redirect every call.
        env = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
        env |= _WHO
        env |= {
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_ATTR_NOSYSTEM": "1",
            # A question for a password would block the run without a sign.
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_OPTIONAL_LOCKS": "0",
            # Errors quote git, and must not depend on the user's language.
            "LC_ALL": "C",
        }
        places = {
            "GIT_DIR": self.folder,
            "GIT_WORK_TREE": self.work_tree,
            "GIT_INDEX_FILE": self.index,
            "GIT_OBJECT_DIRECTORY": self.objects,
        }
        return env | {name: str(place) for name, place in places.items() if place is not None}
