"""A sandbox for commands: bubblewrap, on Linux, where it works.

Rules:

1. A command can change the folders that a call names, the package caches of the user and private folders that end
   with it. Everything else is read-only or absent.
2. The home folders, the folders of temporary files, `/run` and the user's folder behind a workspace are empty but for
   what is shown: a list of secrets could never be complete. A file that a command could have changed never decides
   what is shown.
3. A command has no capabilities, also as root, and a user namespace where the system permits one.
4. The network is a setting of the call: an agent needs its model, a check does not.
5. Whether a sandbox works is tried with the same options and with attempts to leave it, because containers and
   kernels forbid parts of it.
6. An interrupt reaches the command. The sandbox ignores it, and ends with the command or with its parent.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import shutil
import site
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from ..engine.context import Context
from ..errors import ConfigurationError, StepError, nearest

__all__ = ["HIDDEN", "MODES", "Sandbox", "SandboxMode", "sandbox_problem", "sandbox_words"]

SandboxMode = Literal["auto", "bubblewrap", "own", "none"]
MODES: tuple[SandboxMode, ...] = ("auto", "bubblewrap", "own", "none")
FOLDER = "{folder}"  # in `wrap`: the working folder
HIDDEN = "{} is a word of the command and exists, but the sandbox hides it;"
TRIAL = 10.0  # seconds for the trial of a sandbox
PACKAGE = Path(__file__).parents[1]  # of Loopwright, which an environment may only point to
# Writable, in the home folder: without them uv, npm, go and cargo end with an error or load every package again.
CACHES = (
    *(f".cache/{name}" for name in (
        "Cypress", "bazel", "bazelisk", "ccache", "composer", "coursier", "deno", "go-build", "golangci-lint", "hatch",
        "huggingface/hub", "ms-playwright", "node", "node-gyp", "pdm", "pip", "pipenv", "pnpm", "pre-commit",
        "puppeteer", "pypoetry", "sccache", "torch", "turbo", "typescript", "uv", "yarn", "zig",
    )),
    ".npm", "go/pkg", ".cargo/registry", ".cargo/git", ".local/share/pnpm", ".gradle/caches", ".gradle/wrapper",
    ".m2/repository", ".bun/install/cache", ".nuget/packages", ".ivy2/cache",
)  # fmt: skip
# Made if they are missing, because what a command makes in the home folder is gone with it.
MADE = (".cache/uv", ".cache/pip", ".npm")
# Readable, in the home folder: programs and libraries whose folder on PATH has only a part of them.
TOOLCHAINS = (
    ".local/lib", ".local/share/uv/python", ".local/share/uv/tools", ".local/share/pipx", ".local/share/mise",
    ".local/share/fnm", ".local/share/virtualenvs", ".pyenv", ".rbenv", ".nvm", ".volta", ".asdf", ".rustup",
    ".sdkman", ".cargo/bin", ".cargo/env", ".deno/bin", ".bun/bin", "go/bin",
)  # fmt: skip
# Variables that name such folders elsewhere.
CACHE_VARIABLES = ("UV_CACHE_DIR", "PIP_CACHE_DIR", "GOMODCACHE", "GOCACHE", "npm_config_cache")
TOOL_VARIABLES = (
    "UV_PYTHON_INSTALL_DIR", "UV_TOOL_DIR", "PYENV_ROOT", "RUSTUP_HOME", "NVM_DIR", "VOLTA_HOME", "ASDF_DATA_DIR",
    "MISE_DATA_DIR", "SDKMAN_DIR",
)  # fmt: skip
BIN = ("bin", "sbin", "shims", "Scripts")
INSTALLED = ("lib", "lib64", "libexec", "installs", "pyvenv.cfg")  # beside a folder of programs
# Folders of a home folder that have the files of many programs.
SHARED = (
    ".local",
    ".local/share",
    ".local/state",
    ".config",
    ".cache",
    "Desktop",
    "Documents",
    "Downloads",
)
# What root owns there can be changed by root without any capability; `core_pattern` starts a program outside.
PROC = ("acpi", "bus", "fs", "irq", "mtrr", "scsi", "sys", "sysrq-trigger")
NOBODY = "65534"  # an account that every system has
XDG = ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR")
LINKS = 40  # links on the way to a file, as in the kernel
# It leaves nothing behind if it succeeds. A first attempt as it is, and one with the capabilities of a namespace.
ESCAPES = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
if any(int(line.split()[1], 16) for line in open("/proc/self/status") if line.startswith(("CapEff", "CapPrm"))):
    sys.exit("a command in it has capabilities")
for attempt in range(2):
    libc.mount(None, b"/", None, 0x1020, None)
    libc.umount2(os.fsencode(sys.argv[1]), 2)
    if not os.statvfs("/").f_flag & os.ST_RDONLY:
        sys.exit("a command in it can make the system writable")
    if os.listdir(sys.argv[1]):
        sys.exit("a command in it can read what is hidden")
    if os.access("/proc/sys/kernel/core_pattern", os.W_OK):
        sys.exit("a command in it can change the settings of the kernel")
    libc.unshare(0x10020000)
"""
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
        readable: Files and folders that the command can read although the sandbox hides what is around them; of a
            program, its installation too. A call names them.
        read_only: Files and folders inside of writable ones that the command can read and not change. They must
            exist; what they link to is not protected.
        show: The same, named by a user. `~` is the home folder.
        project: Folders of the user that are empty but for what is shown: the one that a workspace stands for, and
            that of its stores.
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
    show: Sequence[str | Path] = field(default=(), kw_only=True)
    project: Sequence[str | Path] = field(default=(), kw_only=True)
    changes_folder: bool = field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ConfigurationError(
                f"sandbox: {self.mode!r:.60} is not one of {', '.join(MODES)}{nearest(str(self.mode), MODES)}"
            )
        for name in ("wrap", "hide", "writable", "readable", "read_only", "show", "project"):
            value = getattr(self, name)
            if isinstance(value, str) or not all(isinstance(item, str | Path) for item in value):
                raise ConfigurationError(f"{name}: {value!r:.60} is not a list of words")
            object.__setattr__(self, name, tuple(value))

    @property
    def used(self) -> bool:
        """Whether a command is isolated at all, if that is possible."""
        return bool(self.wrap) or self.mode in ("auto", "bubblewrap")

    def within(
        self,
        *writable: str | Path,
        readable: Iterable[str | Path] = (),
        project: Iterable[str | Path] = (),
    ) -> Sandbox:
        """Return the sandbox with more files and folders that the command can change or read."""
        return replace(
            self,
            writable=(*self.writable, *writable),
            readable=(*self.readable, *readable),
            project=(*self.project, *project),
        )

    async def prefix(
        self,
        folder: str | Path | None,
        ctx: Context | None,
        *,
        name: str,
        command: Sequence[str] = (),
        has_own: bool = False,
    ) -> list[str]:
        """Return the words before a command; none without a sandbox.

        Args:
            folder: The working folder of the command.
            ctx: Receives the warning that there is no sandbox.
            name: The name of the step, for messages.
            command: The words of the command, where they are known: of its program the installation is shown.
            has_own: Whether the program has a sandbox, which `auto` uses where bubblewrap does not work.

        Raises:
            StepError: Of kind `no_sandbox`, if bubblewrap is required and does not work; of kind `cannot_start`, if
                a word of the command is a file that the sandbox hides.
        """
        place = Path(folder or ".").absolute()
        if self.wrap:
            return [str(word).replace(FOLDER, str(place)) for word in self.wrap]
        if self.mode not in ("auto", "bubblewrap"):
            return []
        problem = await asyncio.to_thread(sandbox_problem, network=self.network)
        if not problem:
            if hidden := self.hidden_word(command, place):
                raise StepError(
                    f"{name}: {HIDDEN.format(hidden)} name it in `show` of the sandbox, or move it",
                    kind="cannot_start",
                    retryable=False,
                )
            return sandbox_words(self.within(readable=_programs(command)), place)
        if self.mode == "bubblewrap":
            raise StepError(
                f"{name}: there is no sandbox: {problem}", kind="no_sandbox", retryable=False
            )
        if not has_own and ctx is not None:
            ctx.warn(f"{name} runs without a sandbox: {problem}", code="no_sandbox")
        return []

    def hidden_word(self, command: Sequence[str], folder: Path) -> str:
        """Return the first word of a command that is a file which the sandbox hides, or ""."""
        files = [word for word in command if _is((folder / word).is_file)]
        if not files or self.wrap or self.mode not in ("auto", "bubblewrap"):
            return ""
        view = _View(self.within(readable=_programs(command)), folder)
        return next((word for word in files if not view.sees(folder / word)), "")


def _programs(command: Sequence[str]) -> Iterator[str]:
    """Iterate over the program of a command."""
    if command and (found := shutil.which(command[0], path=_search_path())):
        yield found


def _search_path() -> str:
    """Return PATH as a command receives it."""
    return os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))


class _View:
    """What a command sees of the folders that its sandbox covers.

    Args:
        sandbox: The sandbox.
        folder: The working folder.
    """

    def __init__(self, sandbox: Sandbox, folder: Path) -> None:
        self.covers: tuple[Path, ...] = ()
        self.shown: dict[Path, None] = {}  # real files and folders
        self.links: dict[Path, str] = {}  # the links in covered folders on the way to them
        self._programs: set[Path] = set()
        homes = _homes()
        self._wide = {home / name for home in homes for name in SHARED}
        places = (
            *homes, "/home", "/root", "/tmp", tempfile.gettempdir(), "/run", "/var/run", *_named(XDG), *sandbox.project,  # noqa: S108
        )  # fmt: skip
        folders = {Path(place).resolve() for place in places}
        # Outer ones first.
        self.covers = tuple(sorted(p for p in folders if _is(p.is_dir) and len(p.parts) > 1))
        self.project = {Path(place).resolve() for place in sandbox.project}
        named = [_absolute(item) for item in (folder, *sandbox.writable)]
        # An agent can make a folder of its workspace a link to anything.
        inside = {item: [above for above in named if above in item.parents] for item in named}
        self.changed = [
            real for place, above in inside.items()
            if (real := self.walk(place)) and all(real.is_relative_to(self.walk(item)) for item in above)
        ]  # fmt: skip
        caches = (*_named(CACHE_VARIABLES), *(place for home in homes for place in _caches(home)))
        self.caches = [self.walk(place) for place in caches]
        if not sandbox.changes_folder:
            self.changed = [
                place for place in self.changed if place != self.walk(_absolute(folder))
            ]
            self.show(folder)
        self.hidden = [self.walk(_absolute(item)) for item in sandbox.hide]
        own = (
            folder
            for folder in _editable()
            if self._is_narrow(folder)
            and not any(folder.is_relative_to(place) for place in self.project)
        )
        environment: tuple[str | Path, ...] = (
            *(home / name for home in homes for name in TOOLCHAINS), *_named(TOOL_VARIABLES), *own,
            sys.prefix, sys.base_prefix, PACKAGE, "/etc/resolv.conf", "/run/current-system",
        )  # fmt: skip
        for item in environment:
            self.show(item)
        self._search()
        for item in (*sandbox.readable, *sandbox.show):
            self.show(item)
            self._program(_absolute(item))

    def walk(self, place: Path) -> Path:
        """Return the real path of a file, and keep the links on the way to it that the sandbox must have."""
        done, rest, count = Path("/"), list(place.parts[1:]), 0
        while rest:
            part = rest.pop(0)
            here = done.parent if part == ".." else done / part
            if count < LINKS and _is(here.is_symlink):
                target, count = Path(os.readlink(here)), count + 1  # noqa: PTH115 the text of the link
                if self._covered(here):
                    self.links[here] = str(target)
                here = Path("/") if target.is_absolute() else done
                rest[:0] = target.parts[1:] if target.is_absolute() else target.parts
            done = here
        return done

    def show(self, item: str | Path) -> None:
        """Show a file or folder with what is in it."""
        real = self.walk(_absolute(item))
        if (
            real in self.shown
            or not self._covered(real)
            or not _is(real.exists)
            or self._is_changed(real)
        ):
            return
        self.shown[real] = None
        if _is((real / "pyvenv.cfg").is_file):
            self._program(real / "bin" / "python")

    def sees(self, place: Path) -> bool:
        """Return whether a command can read a file."""
        real = self.walk(place)
        if any(real.is_relative_to(item) for item in self.hidden):
            return False
        visible = (*self.shown, *self.changed, *self.caches)
        return not self._covered(real) or any(real.is_relative_to(item) for item in visible)

    def _covered(self, real: Path) -> bool:
        return any(real.is_relative_to(cover) for cover in self.covers)

    def _is_changed(self, real: Path) -> bool:
        """Whether a command can change a file: it may be what an earlier command made of it."""
        return any(real.is_relative_to(item) for item in (*self.changed, *self.caches))

    def _search(self) -> None:
        """Show the folders of PATH, with the installations that their links lead to."""
        for text in dict.fromkeys(_search_path().split(os.pathsep)):
            if text[:1] != "/":
                continue
            real = self.walk(Path(text))
            if not self._covered(real) or self._is_changed(real) or not _is(real.is_dir):
                continue
            if self._is_narrow(real) and os.access(real, os.R_OK):
                self.show(self._installation(real / "program"))
                with os.scandir(real) as entries:
                    for entry in entries:
                        if entry.is_symlink():
                            self._program(Path(entry.path))

    def _program(self, place: Path) -> None:
        """Show a program with its installation, those of the links that lead to it, and its interpreter."""
        if not (_is(place.is_file) and os.access(place, os.X_OK)):
            return
        for _ in range(LINKS):
            here = self.walk(place.parent) / place.name
            if here in self._programs or self._is_changed(here):
                return
            self._programs.add(here)
            if self._covered(here):
                self.show(self._installation(here))
            if not _is(here.is_symlink):
                break
            place = here.parent / os.readlink(here)  # noqa: PTH115 one link and not all of them
        with contextlib.suppress(OSError), here.open("rb") as file:
            line = file.readline(1024)
            # `#!/usr/bin/env -S node` too: each word that is a program.
            for word in os.fsdecode(line[2:]).split() if line[:2] == b"#!" else ():
                if found := shutil.which(word, path=_search_path()):
                    self._program(Path(found).absolute())

    def _installation(self, file: Path) -> Path:
        """Return the folder with the parts of a program; only its file where that folder has other files too."""
        if "node_modules" in file.parts:
            return Path(*file.parts[: file.parts.index("node_modules") + 1])
        folder, prefix = file.parent, file.parent.parent
        if (
            folder.name in BIN
            and self._is_narrow(prefix)
            and any(_is((prefix / n).exists) for n in INSTALLED)
        ):
            return prefix
        return folder if self._is_narrow(folder) else file

    def _is_narrow(self, folder: Path) -> bool:
        """Whether a folder can be shown as a whole: it contains no covered folder."""
        return folder not in self._wide and not any(c.is_relative_to(folder) for c in self.covers)


def sandbox_words(sandbox: Sandbox, folder: Path, *, namespace: bool | None = None) -> list[str]:
    """Return the words that run a command in bubblewrap, with its working folder.

    Later words hide or show parts of earlier ones, so their order matters.

    Args:
        sandbox: The sandbox.
        folder: The working folder.
        namespace: Whether the command has a user namespace. Default: as it was tried.
    """
    if namespace is None:
        namespace = _tried(shutil.which("bwrap") or "", sandbox.network)[1]
    view = _View(sandbox, folder)
    root = os.geteuid() == 0
    words = [*IGNORE, "bwrap"]
    if namespace:
        # Under the name of an ordinary account, so that a sandbox inside of it knows that it is none of root.
        words += ["--unshare-user", *(["--uid", NOBODY, "--gid", NOBODY] if root else [])]
    words += [
        "--cap-drop", "ALL", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc",
        "--unshare-pid", "--unshare-ipc", "--die-with-parent",
        *([] if sandbox.network else ["--unshare-net"]),
    ]  # fmt: skip
    # For others nothing is writable there, and with mounts in it no sandbox inside can have a /proc of its own.
    kernel = (place for name in PROC if root and (place := Path("/proc", name)).exists())
    words += _bound("--ro-bind", kernel)
    for cover in view.covers:
        words += ["--tmpfs", str(cover)]
    whole = [*view.shown, *view.changed, *view.caches]
    for link, target in view.links.items():
        if not any(link.is_relative_to(place) for place in whole):
            words += ["--symlink", target, str(link)]
    words += _bound(
        "--ro-bind", (p for p in view.shown if not any(a in view.shown for a in p.parents))
    )
    words += _bound("--bind", view.caches)
    # Outer ones first, so that what is hidden inside of them can contain the inner ones.
    for place in sorted(filter(Path.exists, view.changed)):
        words += _bound("--bind", [place])
        words += _guarded(place)
        words += _hidden(item for item in view.project if place in item.parents)
    words += _bound("--ro-bind", [_absolute(item) for item in sandbox.read_only])
    words += _hidden(view.hidden)
    return [*words, "--chdir", str(folder), "--", *RESTORE]


def sandbox_problem(*, network: bool = True) -> str:
    """Return why bubblewrap cannot isolate a command on this machine, or "" if it can.

    Args:
        network: Whether the command keeps the network.
    """
    if not sys.platform.startswith("linux"):
        return "bubblewrap needs Linux"
    # The path is a part of the key: a program may be installed while this process runs.
    return _tried(shutil.which("bwrap") or "", network)[0]


@functools.lru_cache(maxsize=8)
def _tried(program: str, network: bool) -> tuple[str, bool]:
    """Return why bubblewrap does not work, or "", and whether it has a user namespace."""
    if not program:
        return "bubblewrap is not installed; install the package bubblewrap", False
    problem = ""
    with tempfile.TemporaryDirectory(prefix="loopwright-sandbox-") as text:
        folder = Path(text).resolve()
        hidden = folder / "hidden"
        hidden.mkdir()
        (hidden / "file").touch()
        sandbox = Sandbox("bubblewrap", network=network, hide=[hidden])
        for namespace in (True, False):
            words = sandbox_words(sandbox, folder, namespace=namespace)
            try:
                done = subprocess.run(
                    [*words, sys.executable, "-I", "-S", "-c", ESCAPES, str(hidden)], capture_output=True, text=True,
                    errors="replace", timeout=TRIAL, check=False, stdin=subprocess.DEVNULL,
                )  # fmt: skip
            except (OSError, subprocess.TimeoutExpired) as error:
                return f"bubblewrap does not work here: {error}", False
            if not done.returncode:
                return "", namespace
            problem = problem or " ".join(done.stderr.split())[-200:]
    return f"bubblewrap does not work here: {problem}", False


def _homes() -> list[Path]:
    """Return the home folder of the environment and that of the account."""
    import pwd  # not on Windows, where there is no sandbox

    homes = []
    for find in (Path.home, lambda: Path(pwd.getpwuid(os.getuid()).pw_dir)):
        with contextlib.suppress(RuntimeError, KeyError):
            homes.append(find().resolve())
    return homes


def _absolute(item: str | Path) -> Path:
    return Path(os.path.abspath(os.path.expanduser(item)))  # noqa: PTH100, PTH111 `..` without its links


def _guarded(place: Path) -> list[str]:
    """Return the words for what programs outside read in a folder: the settings and hooks of git, and our journal.

    The sandbox of an agent makes files of its own in `.git`, so that folder is private, with entries that are not.
    """
    git, own = place / ".git", place / ".loopwright"
    # A link may be the work of an agent, and would be followed.
    words = [] if own.is_symlink() else _hidden([own])
    if git.is_symlink() or not git.exists():
        return words
    if git.is_file():
        return [*words, *_bound("--ro-bind", [git])]
    entries = (item for item in git.iterdir() if not item.is_symlink())
    return [*words, "--tmpfs", str(git), *_bound("--ro-bind", entries)]


def _named(variables: Iterable[str]) -> Iterator[Path]:
    """Iterate over the folders that environment variables name."""
    for name in variables:
        place = Path(os.environ.get(name, ""))
        if place.is_absolute() and _is(place.is_dir):
            yield place


def _editable() -> Iterator[Path]:
    """Iterate over the folders outside of this environment that it imports from."""
    for folder in map(Path, site.getsitepackages()):
        for file in folder.glob("*.pth"):
            for line in file.read_text("utf-8", "replace").splitlines():
                if line[:1] == "/" and _is(Path(line).is_dir):
                    yield Path(line).resolve()


def _caches(home: Path) -> Iterator[Path]:
    for name in CACHES:
        place = home / name
        if name in MADE and home.is_dir():
            with contextlib.suppress(OSError):  # a home folder that is read-only has no caches
                place.mkdir(parents=True, exist_ok=True)
        if _is(place.is_dir):
            yield place


def _is(test: Callable[[], bool]) -> bool:
    """Whether a test of a path holds; one that this account cannot reach does not exist for a command either."""
    try:
        return test()
    except OSError:
        return False


def _bound(word: str, places: Iterable[Path]) -> list[str]:
    return [part for place in places for part in (word, str(place), str(place))]


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
