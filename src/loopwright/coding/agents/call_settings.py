"""The settings of an agent's calls, and what follows from them: variables, home folder, state, secrets, version."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ...engine.context import Context
from ...engine.step import digest_of
from ...errors import StepError
from ...models.registry import Price
from ...records import codec
from ...records.codec import Json
from ...records.redaction import Redactor
from ...tools.process import inherited, run_command
from ...tools.sandbox import Sandbox
from .manifest import Manifest
from .program import StreamMode
from .sessions import sessions_of

__all__ = ["CallSettings", "environment", "is_missing", "redactor_of", "state_of", "version_of"]

VERSION_SECONDS = 10.0
HOME_SECONDS = 7 * 86_400.0  # that the home folder of a run stays, as long as its workspace
_VERSION = re.compile(r"\d+(?:\.\d+)+")
_SECRETS = re.compile(r"KEY|TOKEN|SECRET|PASS|CREDENTIAL", re.IGNORECASE)


@dataclass(frozen=True)
class CallSettings:
    """The settings of an agent's calls, which `agent` explains."""

    manifest: Manifest
    model: str = ""
    permissions: Literal["read", "edit", "full"] = "edit"
    max_turns: int | None = None
    max_usd: float | None = None
    timeout: float | None = 1800.0
    idle_timeout: float | None = 600.0
    pass_env: tuple[str, ...] | None = None
    env: Mapping[str, Json] = field(default_factory=dict)
    home: Literal["user", "run"] = "user"
    args: tuple[str, ...] = ()
    billing: Literal["metered", "subscription"] = "metered"
    count_notional: bool = False
    price: Price | None = None
    stream: StreamMode = "tail"
    sandbox: Sandbox = field(default_factory=Sandbox)

    @property
    def fingerprint(self) -> str:
        """A digest of what a call does; limits and the way it is watched may change between runs."""
        m = self.manifest
        return digest_of(
            "agent", " ".join(m.program), m.events, self.model, self.permissions, " ".join(self.args),
            codec.canonical(sorted(self.env)),
        )  # fmt: skip


def is_missing(program: str, env: Mapping[str, str]) -> bool:
    """Return whether a program is not on the path of a call."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{env.get('PATH', os.environ.get('PATH', ''))}"
    return shutil.which(program, path=path) is None


def state_of(manifest: Manifest, env: Mapping[str, str]) -> Iterator[Path]:
    """Return the files and folders in which a program keeps its state."""
    home = Path(env.get("HOME") or os.environ.get("HOME") or Path.home())
    if env.get("HOME"):  # a home folder of the run
        yield home
    for name in manifest.state:
        place = home / name
        # A sandbox can show an existing folder only, and a program makes its folder at its first use.
        if not place.exists() and not place.suffix:
            with contextlib.suppress(OSError):
                place.mkdir(mode=0o700, parents=True)
        yield place
    yield from (Path(env[variable]) for variable in manifest.home_env if env.get(variable))


def environment(settings: CallSettings, env: Mapping[str, str], ctx: Context) -> dict[str, str]:
    """Return the variables of a call besides PATH, HOME and the like."""
    manifest = settings.manifest
    names = manifest.keys if settings.pass_env is None else settings.pass_env
    result = {**manifest.env, **inherited(names)}
    if settings.home == "run":
        result |= home_of(manifest, ctx.run.token)
    result |= {"LOOPWRIGHT_RUN": ctx.run_id, "LOOPWRIGHT_ITERATION": str(ctx.iteration)}
    return {**result, **env}


def home_of(manifest: Manifest, token: str) -> dict[str, str]:
    """Return the variables of the home folder of a run, which is empty before the first call.

    It is not in the folder of temporary files, where some programs refuse to keep their state.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    homes = cache / "loopwright" / "homes"
    home = homes / token
    if not home.is_dir():
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        _remove_old(homes)
    # The age of a home folder counts from its last call: a suspended run still needs its sessions.
    os.utime(home)
    for name, content in manifest.home.items():
        path = home / name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
    result = {"HOME": str(home)}
    for variable, name in manifest.home_env.items():
        (home / name).mkdir(parents=True, exist_ok=True)
        result[variable] = str(home / name)
    return result


def _remove_old(homes: Path) -> None:
    """Remove the home folders of runs that were not used for HOME_SECONDS."""
    for place in homes.iterdir():
        with contextlib.suppress(OSError):  # another process removes it too
            if time.time() - place.stat().st_mtime > HOME_SECONDS:
                shutil.rmtree(place, ignore_errors=True)


def redactor_of(settings: CallSettings, env: Mapping[str, str]) -> Redactor:
    """Return a filter for the values that the call receives, which the run may not know as secrets."""
    manifest = settings.manifest
    names = manifest.keys if settings.pass_env is None else settings.pass_env
    # An address among the passed variables is no secret, and is part of many messages.
    passed = {
        k: v
        for k, v in inherited(names).items()
        if settings.pass_env is not None or _SECRETS.search(k)
    }
    own = {k: v for k, v in env.items() if _SECRETS.search(k)}
    return Redactor({**passed, **own})


async def version_of(manifest: Manifest, ctx: Context) -> str:
    """Return the version of a program, asked once in a run; an untested version is a warning."""
    versions = sessions_of(ctx.run).versions
    key = " ".join(manifest.program)
    if key in versions or not manifest.version or not manifest.tested:
        return versions.get(key, "")
    try:
        result = await run_command(
            [*manifest.program, *manifest.version], timeout=VERSION_SECONDS, token=ctx.run.token
        )
    except StepError:
        return ""
    match = _VERSION.search(result.stdout)
    versions[key] = version = match[0] if match is not None else ""
    if version and not any(f"{version}.".startswith(f"{tested}.") for tested in manifest.tested):
        ctx.warn(
            f"{manifest.title or manifest.name} {version} was not tested with this version of Loopwright; tested: "
            f"{', '.join(manifest.tested)}",
            code="untested_version",
        )
    return version
