"""The checks of `until` before any work: each problem is one sentence that names the option."""

from __future__ import annotations

import contextlib
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from ..._home import HOME
from ..._regex import PatternError
from ...coding.agents.manifest import load_manifest
from ...coding.until_document import KNOWN, MetricOption, known_agent
from ...coding.workspace.store import Git, GitError, is_branch_name
from ...coding.workspace.tree import WorkspaceSource
from ...errors import ConfigurationError, DocumentError, Problem, nearest
from ...evaluators.metric import number_pattern
from ...tools.sandbox import HIDDEN, Sandbox, sandbox_problem

__all__ = ["check_environment", "check_values", "ignored", "with_option_names"]

SHELL = "/bin/sh"  # of the check and of an agent that is a command
# The keys of the printed document, and the options that they come from; the first match counts.
_KEYS = (
    (r"\.evaluate\..*timeout", "--check-timeout"),
    (r"\.guards\[\d+\]\.timeout", "--max-time"),
    (r"\.guards\[\d+\]\.budget", "--max-usd"),
    (r"\.until\[\d+\]", "--max"),
    (r"\.on_stall", "--patience"),
    (r"\.evaluate\.judge", "--judge"),
    (r"\.evaluate\.metric", "--metric"),
    (r"\.evaluate\.check", "--score"),
    (r"\.evaluate\.tests", "CHECK"),
    (r"\.execute\.agent\.price", "--price"),
    (r"\.execute", "AGENT"),
    (r"workspace\.link", "--link"),
    (r"workspace\.branch", "--branch"),
    (r"workspace", "--workspace"),
)
# Keys that a message begins with, after those of its place.
_OPTIONS = {
    "calls": "--max-calls", "tokens": "--max-total-tokens", "effects": "--max-effects", "usd": "--max-usd",
    "held_out": "--held-out", "protect": "--protect", "allow": "--allow", "on_tamper": "--on-tamper",
    "report": "--report",
}  # fmt: skip
_LEAD = re.compile(r"((?:\w+: )*)(?:(\w+) )?")
_IN_DOCUMENTS = "set model: provider:model here or in the document, use --model"


class CheckedOptions(Protocol):
    """The options of `until` that are checked; `UntilCommandOptions` explains them."""

    @property
    def max_usd(self) -> float | None: ...

    @property
    def metric(self) -> str: ...

    @property
    def score(self) -> str: ...

    @property
    def branch(self) -> str: ...

    @property
    def held_out(self) -> str: ...

    @property
    def link(self) -> list[str] | None: ...

    @property
    def setup(self) -> str: ...

    @property
    def workspace(self) -> str: ...

    @property
    def sandbox(self) -> str: ...

    @property
    def show(self) -> list[str] | None: ...


def check_values(options: CheckedOptions, check: str) -> None:
    """Check the values alone.

    Raises:
        ConfigurationError: naming the option.
    """
    usd = options.max_usd
    if usd is not None and not 0 < usd < math.inf:
        raise ConfigurationError(f"--max-usd: {usd:g} is out of range; use a number above 0")
    patterns = {
        "--metric": MetricOption.parse(options.metric).pattern if options.metric else "",
        "--score": options.score,
    }
    for option, pattern in patterns.items():
        try:
            number_pattern(option, pattern)
        except PatternError as error:
            raise ConfigurationError(f"{option}: {error}") from None
    # `-n` reads the script and runs nothing.
    read = subprocess.run([SHELL, "-n", "-c", check], capture_output=True, text=True, check=False)
    if read.returncode:
        reason = read.stderr.strip().rpartition("\n")[2].rpartition(": ")[2]
        raise ConfigurationError(f"CHECK: the shell cannot read {check!r}: {reason}")


def check_environment(
    options: CheckedOptions, agent: Sequence[str], *, git: bool, resumed: bool
) -> None:
    """Check the values with the folder and the programs of this machine.

    Args:
        options: the options.
        agent: the words of the agent.
        git: whether the result becomes a branch of a repository.
        resumed: whether the run may exist, with its branch.

    Raises:
        ConfigurationError: naming the option.
    """
    _check_agent(agent, may_be_made=bool(options.setup))
    if options.workspace != "here":
        _check_outside(agent)
    _check_hidden(options, agent)
    for name in options.link or ():
        if not Path(name).is_dir():
            raise ConfigurationError(f"--link: there is no folder {name!r} in {Path.cwd()}")
    if options.branch:
        _check_branch(options.branch, git=git, resumed=resumed)
    if options.held_out:
        folder = Path(options.held_out).expanduser().resolve()
        _check_held_out(folder, options.held_out, copied=options.workspace != "here")


def _check_agent(agent: Sequence[str], *, may_be_made: bool) -> None:
    known = known_agent(agent)
    manifest = load_manifest(known.cli) if known else None
    program = manifest.program[0] if manifest else agent[0]
    if "/" in program and may_be_made:
        return
    if manifest:
        # As the step finds it.
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        found = shutil.which(program, path=path) is not None
    else:
        # By the shell, which has commands of its own.
        words = [SHELL, "-c", 'command -v -- "$1"', "sh", program]
        found = not subprocess.run(words, capture_output=True, check=False).returncode
    if not found:
        hint = f"; install it with: {manifest.install}" if manifest and manifest.install else ""
        hint = (
            hint
            or nearest(program, KNOWN)
            or (
                "; write the check as one word in quotes and the agent after --, such as: "
                'loopwright until "pytest -q" -- claude'
            )
        )
        raise ConfigurationError(f"AGENT: there is no program {program!r}{hint}")


def _check_outside(agent: Sequence[str]) -> None:
    """Refuse a relative word that is a file outside of the project: the copy is at another place."""
    root = WorkspaceSource.of(Path.cwd()).root.resolve()
    for word in agent:
        file = None
        with contextlib.suppress(OSError, ValueError):  # a text that is no path
            file = Path(word).resolve() if word[:1] != "/" and Path(word).is_file() else None
        if file is not None and not file.is_relative_to(root):
            raise ConfigurationError(
                f"AGENT: {word} is a word of the command and exists here, but not beside the copy in which the agent "
                f"works; use its absolute path with --show, as in --show {shlex.quote(str(file))}, or move it into the "
                "project"
            )


def _check_hidden(options: CheckedOptions, agent: Sequence[str]) -> None:
    """Refuse a word that is a file here and that the agent could not read."""
    if options.sandbox not in ("auto", "bubblewrap") or sandbox_problem():
        return
    known, here = known_agent(agent), options.workspace == "here"
    words = [*load_manifest(known.cli).program, *known.words] if known else agent
    sandbox = Sandbox("auto", show=options.show or ())
    if not here:
        sandbox = sandbox.within(project=[WorkspaceSource.of(Path.cwd()).root])
    if hidden := sandbox.hidden_word(words, Path.cwd() / ("" if here else HOME)):
        raise ConfigurationError(
            f"AGENT: {HIDDEN.format(hidden)} use --show {shlex.quote(hidden)}, or move it"
        )


def _check_branch(branch: str, *, git: bool, resumed: bool) -> None:
    if not git:
        raise ConfigurationError("--branch: the result is no branch here; remove the option")
    name = branch.replace("{run}", "run")
    if not is_branch_name(name):
        raise ConfigurationError(f"--branch: {branch!r} is not a name for a branch")
    refs = (
        Git(cwd=Path.cwd())
        .text("for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads")
        .splitlines()
    )
    for other in () if resumed or name != branch else refs:
        # Git keeps a branch as a file, so that `a` and `a/b` exclude each other.
        if f"{name}/".startswith(f"{other}/") or other.startswith(f"{name}/"):
            raise ConfigurationError(
                f"--branch: the branch {other!r} exists; use another name, or {{run}} in it"
            )


def _check_held_out(folder: Path, written: str, *, copied: bool) -> None:
    if not folder.is_dir():
        raise ConfigurationError(f"--held-out: there is no folder {written!r}")
    # The sandbox hides the folder, and the agent must read the project.
    if Path.cwd().resolve().is_relative_to(folder):
        raise ConfigurationError(
            f"--held-out: {written!r} contains the project; use a folder with tests only"
        )
    if copied and folder.is_relative_to(Path.cwd().resolve()) and not ignored(str(folder)):
        raise ConfigurationError(
            f"--held-out: {written!r} is inside the project, and the agent would read it in its copy; move it "
            "outside, or let git ignore it"
        )


def with_option_names(error: DocumentError) -> ConfigurationError:
    """Return the problems of the printed document as those of the options."""
    return ConfigurationError("\n".join(_sentences(error.problems)))


def _sentences(problems: Sequence[Problem]) -> Iterator[str]:
    for problem in problems:
        option = next((option for key, option in _KEYS if re.search(key, problem.path)), "until")
        message = problem.message.replace(_IN_DOCUMENTS, "use --model")
        if lead := _LEAD.match(message):
            keys = [*lead[1].split(": "), lead[2] or ""]
            named = [_OPTIONS[key] for key in keys if key in _OPTIONS]
            option = named[-1] if named else option
            message = message[lead.end(1) :]
            if keys[-1] in _OPTIONS:
                message = message[len(keys[-1]) :].lstrip()
        yield f"{option}: {message}"


def ignored(folder: str) -> bool:
    """Return whether git ignores a folder, so that a copy lacks it."""
    try:
        return not Git(cwd=Path.cwd()).run("check-ignore", "--quiet", "--", folder).returncode
    except GitError:  # also without git or a repository
        return False
