"""A sandbox for commands: bubblewrap, on Linux, where it works.

Rules:

1. All files are readable and none is writable, except for the folders that a call names, the package
   caches of the user and an empty folder for temporary files.
2. Credentials in the home folder, and sockets that lead out of the sandbox, are hidden.
3. The network is a setting of the call: an agent needs its model, a check does not.
4. Whether a sandbox works is tried with the same options, because containers and kernels forbid parts of it.
5. An interrupt reaches the command. The sandbox ignores it, and ends with the command or with its parent.
"""

from __future__ import annotations

import asyncio
import functools
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from ..engine.context import Context
from ..errors import ConfigurationError, StepError, nearest

__all__ = ["MODES", "Sandbox", "SandboxMode", "sandbox_problem", "sandbox_words"]

SandboxMode = Literal["auto", "bubblewrap", "own", "none"]
MODES: tuple[SandboxMode, ...] = ("auto", "bubblewrap", "own", "none")
FOLDER = "{folder}"  # in `wrap`: the working folder
TRIAL = 10.0  # seconds for the trial of a sandbox
# In the home folder. Keys of agents are passed by name, so an agent needs none of these.
CREDENTIALS = (
    ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".netrc", ".npmrc", ".pypirc", ".git-credentials",
    ".config/git/credentials", ".config/gcloud", ".config/gh", ".config/op", ".config/rclone",
    ".cargo/credentials", ".cargo/credentials.toml", ".gem/credentials", ".m2/settings.xml", ".terraform.d",
    ".vault-token", ".password-store", ".local/share/keyrings", ".mozilla", ".config/google-chrome",
    ".config/chromium",
)  # fmt: skip
# A connection to one of them starts programs outside of the sandbox, also if the file is read-only.
SOCKETS = (
    "/run/docker.sock",
    "/run/podman",
    "/run/containerd",
    "/run/user",
    "/run/dbus",
    "/run/systemd/private",
)
# Without them uv, npm, go and cargo end with an error or load every package again.
CACHES = (
    ".cache",
    ".npm",
    "go/pkg",
    ".cargo/registry",
    ".cargo/git",
    ".local/share/pnpm",
    ".gradle",
    ".m2/repository",
)
MADE = (
    ".cache",
    ".npm",
)  # made if they are missing, because a program cannot make them in the sandbox
# SIGINT and SIGTERM are sent to the group: bubblewrap would end at once, and kill the command before its grace period.
IGNORE = ("env", "--ignore-signal=INT,TERM")
RESTORE = ("env", "--default-signal=INT,TERM")


@dataclass(frozen=True)
class Sandbox:
    """The isolation of a command.

    Args:
        mode: `auto` uses bubblewrap where it works, else the program's own sandbox, else none with a warning;
            `bubblewrap` fails where it does not work; `own` is the sandbox of the program; `none` is no
            sandbox. Default: `none`.
        network: Whether the command can use the network. Default: True.
        wrap: Words before the command, such as those of a container. `{folder}` is the working folder.
        hide: Files and folders that the command cannot read; a folder is empty and private instead. `~` is the
            home folder.
        writable: Files and folders that the command can change, besides its working folder.
        readable: Folders that the command can read although they are below the folder of temporary files.
        read_only: Files and folders inside of writable ones that the command can read and not change. They must
            exist; what they link to is not protected.
        changes_folder: Whether the command can change its working folder. Default: True.

    Raises:
        ConfigurationError: For an unknown mode, or `wrap` that is not a list of words.

    Example:
        >>> Sandbox("auto", network=False).used
        True
    """

    mode: SandboxMode = "none"
    network: bool = field(default=True, kw_only=True)
    wrap: Sequence[str] = field(default=(), kw_only=True)
    hide: Sequence[str | Path] = field(default=(), kw_only=True)
    writable: Sequence[str | Path] = field(default=(), kw_only=True)
    readable: Sequence[str | Path] = field(default=(), kw_only=True)
    read_only: Sequence[str | Path] = field(default=(), kw_only=True)
    changes_folder: bool = field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ConfigurationError(
                f"sandbox: {self.mode!r:.60} is not one of {', '.join(MODES)}{nearest(str(self.mode), MODES)}"
            )
        for name in ("wrap", "hide", "writable", "readable", "read_only"):
            value = getattr(self, name)
            if isinstance(value, str) or not all(isinstance(item, str | Path) for item in value):
                raise ConfigurationError(f"{name}: {value!r:.60} is not a list of words")
            object.__setattr__(self, name, tuple(value))

    @property
    def used(self) -> bool:
        """Whether a command is isolated at all, if that is possible."""
        return bool(self.wrap) or self.mode in ("auto", "bubblewrap")

    def within(self, *writable: str | Path, readable: Sequence[str | Path] = ()) -> Sandbox:
        """Return the sandbox with more files and folders that the command can change or read."""
        return replace(
            self,
            writable=(*self.writable, *writable),
            readable=(*self.readable, *readable),
        )

    async def prefix(
        self, folder: str | Path | None, ctx: Context | None, *, name: str, has_own: bool = False
    ) -> list[str]:
        """Return the words before a command; none without a sandbox.

        Args:
            folder: The working folder of the command.
            ctx: Receives the warning that there is no sandbox.
            name: The name of the step, for messages.
            has_own: Whether the program has a sandbox, which `auto` uses where bubblewrap does not work.

        Raises:
            StepError: Of kind `no_sandbox`, if bubblewrap is required and does not work.
        """
        place = Path(folder or ".").absolute()
        if self.wrap:
            return [str(word).replace(FOLDER, str(place)) for word in self.wrap]
        if self.mode not in ("auto", "bubblewrap"):
            return []
        problem = await asyncio.to_thread(sandbox_problem, network=self.network)
        if not problem:
            return sandbox_words(self, place)
        if self.mode == "bubblewrap":
            raise StepError(
                f"{name}: there is no sandbox: {problem}", kind="no_sandbox", retryable=False
            )
        if not has_own and ctx is not None:
            ctx.warn(f"{name} runs without a sandbox: {problem}", code="no_sandbox")
        return []


def sandbox_words(sandbox: Sandbox, folder: Path) -> list[str]:
    """Return the words that run a command in bubblewrap, with its working folder.

    Later words hide or show parts of earlier ones, so their order matters.
    """
    home = _home()
    shown = [folder, *(Path(item).absolute() for item in sandbox.writable)]
    writes = shown if sandbox.changes_folder else shown[1:]
    words = [
        *IGNORE, "bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc",
        "--unshare-pid", "--unshare-ipc", "--die-with-parent",
        *([] if sandbox.network else ["--unshare-net"]),
    ]  # fmt: skip
    temporary = dict.fromkeys(
        place.resolve()
        for place in (Path("/tmp"), Path(tempfile.gettempdir()))  # noqa: S108
    )
    for place in temporary:
        words += ["--tmpfs", str(place)]
    # The user's folder is the target of links in a copy, and the interpreter may be in a temporary environment.
    for item in (sys.prefix, *sandbox.readable):
        place = Path(item).absolute()
        if any(place.is_relative_to(above) for above in temporary) and place.exists():
            words += ["--ro-bind", str(place), str(place)]
    if home is not None:
        words += _bound(_caches(home))
    words += _hidden(_secrets(home))
    words += _bound(writes)
    if not sandbox.changes_folder:
        # The temporary folder, which is replaced, may contain it.
        words += ["--ro-bind", str(folder), str(folder)]
    for item in sandbox.read_only:
        words += ["--ro-bind", *[str(Path(item).absolute())] * 2]
    words += _hidden(Path(item).expanduser().absolute() for item in sandbox.hide)
    return [*words, "--chdir", str(folder), "--", *RESTORE]


def sandbox_problem(*, network: bool = True) -> str:
    """Return why bubblewrap cannot isolate a command on this machine, or "" if it can.

    Args:
        network: Whether the command keeps the network.
    """
    if not sys.platform.startswith("linux"):
        return "bubblewrap needs Linux"
    # The path is a part of the key: a program may be installed while this process runs.
    return _tried(shutil.which("bwrap") or "", network)


@functools.lru_cache(maxsize=8)
def _tried(program: str, network: bool) -> str:
    if not program:
        return "bubblewrap is not installed; install the package bubblewrap"
    with tempfile.TemporaryDirectory(prefix="loopwright-sandbox-") as folder:
        words = [*sandbox_words(Sandbox("bubblewrap", network=network), Path(folder)), "true"]
        try:
            done = subprocess.run(
                words, capture_output=True, text=True, errors="replace", timeout=TRIAL, check=False,
                stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"bubblewrap does not work here: {error}"
    last = " ".join(done.stderr.split())[-200:]
    return f"bubblewrap does not work here: {last}" if done.returncode else ""


def _home() -> Path | None:
    try:
        return Path.home()
    except RuntimeError:
        return None


def _caches(home: Path) -> Iterator[Path]:
    for name in CACHES:
        place = home / name
        if name in MADE:
            try:
                place.mkdir(exist_ok=True)
            except OSError:  # a home folder that is read-only has no caches
                continue
        if place.is_dir():
            yield place


def _secrets(home: Path | None) -> Iterator[Path]:
    yield from map(Path, SOCKETS)
    if home is not None:
        yield from (home / name for name in CREDENTIALS)


def _bound(places: Iterable[Path]) -> list[str]:
    return [
        word for place in places if place.exists() for word in ("--bind", str(place), str(place))
    ]


def _hidden(places: Iterable[Path]) -> list[str]:
    """Return the words that put something empty in the place of files and folders."""
    words: list[str] = []
    for place in places:
        # A link would be followed to its target, which has a mount of its own then.
        target = place.resolve()
        if target.is_dir():
            words += ["--tmpfs", str(target)]
        elif target.exists():
            words += ["--ro-bind", "/dev/null", str(target)]
    return words
