"""`until`: an agent works until a check passes, by the document that --print-yaml prints.

The options are checked before any work, and each problem is one sentence that names the option. With `--detach` the
same command runs again, in a process that outlives the terminal.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
import yaml

from ..._home import HOME
from ..._platform import new_group
from ..._regex import PatternError
from ...coding.agents.manifest import load_manifest
from ...coding.until_document import (
    GOAL,
    KNOWN,
    MetricOption,
    UntilOptions,
    known_agent,
    until_document,
)
from ...coding.workspace.store import Git, GitError, is_branch_name
from ...coding.workspace.tree import WorkspaceSource
from ...engine.run import new_run_id
from ...errors import (
    ConfigurationError,
    DocumentError,
    LoopwrightError,
    Problem,
    StepError,
    nearest,
)
from ...evaluators.metric import number_pattern
from ...records.codec import Json
from ...tools.process import tail
from ...tools.sandbox import HIDDEN, Sandbox, sandbox_problem
from .. import formatting as texts
from ..consent import approved
from ..finding import tags_of
from ..journals import PROGRAM, command_line, create_folder, opened
from ..read_limits import seconds
from ..run_summary import UNTIL_DOCUMENT
from ..sources import SourceSettings, load_source
from .options import RunCommandOptions, RunId, Tags, expanded
from .output import Output
from .run import Job, drive
from .telemetry_options import TelemetryOptions

__all__ = [
    "check_environment",
    "check_values",
    "ignored",
    "with_option_names",
]

FOLDER = Path(".loopwright", "detached")  # of the logs
WAIT = 60.0  # seconds until the run is in the journal
_NAME = 60  # characters of the name of a run
CHECK = 0.05  # seconds between two looks at the journal


def start_detached(run_id: str, journal: str, output: Output) -> int:
    """Start the present command in the background, wait until its run is in the journal, and report both.

    Raises:
        LoopwrightError: if it ends before that, with the end of its log.
    """
    create_folder(FOLDER.parent)
    FOLDER.mkdir(exist_ok=True)
    log = FOLDER / f"{re.sub(r'[^A-Za-z0-9._-]', '_', run_id)}.log"
    words = [*PROGRAM, *background_words(sys.argv[1:], run_id)]
    with log.open("ab") as file:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, **new_group()
        )
    deadline = time.monotonic() + WAIT
    while not asyncio.run(_recorded(journal, run_id)):
        # A run that is satisfied at once may end before it is seen, so the exit code counts too.
        if process.poll() not in (None, 0, 3) or time.monotonic() > deadline:
            text = tail(log.read_text("utf-8", "replace"))
            raise StepError(f"the run did not start: {text or f'see {log}'}")
        time.sleep(CHECK)
    if output.as_json:
        output.write_json({"run_id": run_id, "pid": process.pid, "log": str(log)})
    else:
        output.write(f"Run {run_id} continues in the background, its log is {log}.")
        output.write(f"Watch it: {command_line('watch', run_id, journal)}")
    return 0


def background_words(arguments: Sequence[str], run_id: str) -> list[str]:
    """Return a command line without `--detach` and with the ID of its run.

    >>> background_words(["until", "pytest", "--detach", "--", "claude"], "a1")
    ['until', '--run-id=a1', 'pytest', '--', 'claude']
    """
    words = list(arguments)
    # Words after "--" belong to the agent.
    end = words.index("--") if "--" in words else len(words)
    own = [word for word in words[:end] if word != "--detach"]
    if not any(word.startswith("--run-id") for word in own):
        own.insert(1, f"--run-id={run_id}")
    return [*own, *words[end:]]


async def _recorded(journal: str, run_id: str) -> bool:
    try:
        async with opened(journal) as store:
            return (await store.find(run_id)).run_id == run_id
    except LoopwrightError:  # the process is creating the database at this moment
        return False


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
    (r"\.evaluate\.check", "--score-pattern"),
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


def check_values(options: UntilCommandOptions, check: str) -> None:
    """Check the values alone.

    Raises:
        ConfigurationError: naming the option.
    """
    usd = options.max_usd
    if usd is not None and not 0 < usd < math.inf:
        raise ConfigurationError(f"--max-usd: {usd:g} is out of range; use a number above 0")
    patterns = {
        "--metric": MetricOption.parse(options.metric).pattern if options.metric else "",
        "--score-pattern": options.score,
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
    options: UntilCommandOptions, agent: Sequence[str], *, git: bool, resumed: bool
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


def _check_hidden(options: UntilCommandOptions, agent: Sequence[str]) -> None:
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


INSTALLED = ("node_modules", ".venv", "venv")


class OnStallWord(StrEnum):
    """What happens after iterations without progress."""

    BEST = "best"
    LAST = "last"
    FRESH = "fresh"
    ASK = "ask"
    STOP = "stop"


class WorkspaceOption(StrEnum):
    """Where the agent works."""

    COPY = "copy"
    WORKTREE = "worktree"
    SNAPSHOT = "snapshot"
    HERE = "here"


class Keep(StrEnum):
    """The files that remain without success."""

    BEST = "best"
    LAST = "last"


class SessionWord(StrEnum):
    """The conversation of a coding agent."""

    FRESH = "fresh"
    LOOP = "loop"


class Permissions(StrEnum):
    """The actions that a coding agent permits."""

    READ = "read"
    EDIT = "edit"
    FULL = "full"


class OnTamper(StrEnum):
    """What follows a change of protected files."""

    PUT_BACK = "put_back"
    REJECT = "reject"
    STOP = "stop"


class SandboxWord(StrEnum):
    """The isolation of the agent and the check."""

    AUTO = "auto"
    BUBBLEWRAP = "bubblewrap"
    OWN = "own"
    NONE = "none"


@dataclass(frozen=True)
class UntilCommandOptions(RunCommandOptions):
    """Options of `until`."""

    name: Annotated[
        str,
        typer.Option(
            "--name", metavar="NAME", help="Name of the run; by default the folder and the check."
        ),
    ] = ""
    prompt: Annotated[
        str, typer.Option("--prompt", metavar="TEXT|@FILE", help="Task of the agent.")
    ] = GOAL
    iterations: Annotated[
        int,
        typer.Option("--max", "--max-iterations", metavar="N", min=1, help="Limit on iterations."),
    ] = 10
    time: Annotated[
        str,
        typer.Option(
            "--max-time", "--timeout", metavar="DURATION", help="Limit on time, such as 30m."
        ),
    ] = "2h"
    metric: Annotated[
        str,
        typer.Option(
            "--metric",
            metavar="NAME:min|max=PATTERN",
            help="Keep only changes that improve a number in the output of the check.",
        ),
    ] = ""
    score: Annotated[
        str,
        typer.Option(
            "--score-pattern",
            metavar="PATTERN",
            help="Regular expression for a score in the check's output.",
        ),
    ] = ""
    patience: Annotated[
        int | None,
        typer.Option(
            "--patience",
            metavar="N",
            min=1,
            help="Iterations that neither raise the score nor change what fails, until a stall; by default 3. "
            "With --metric: iterations without an accepted one, until the end; by default no limit.",
        ),
    ] = None
    on_stall: Annotated[
        OnStallWord,
        typer.Option(
            "--on-stall",
            help="First stall: begin anew from the best iteration, from the last one, or fresh from the start; ask, or stop. "
            "The second stall stops.",
        ),
    ] = OnStallWord.BEST
    report: Annotated[
        str,
        typer.Option(
            "--report",
            metavar="FILE",
            help="Report of the check: auto, none, stdout, or the files that it writes.",
        ),
    ] = "auto"
    check_timeout: Annotated[
        str, typer.Option("--check-timeout", metavar="DURATION", help="Most time of one check.")
    ] = "10m"
    pass_env: Annotated[
        list[str] | None,
        typer.Option("--pass-env", metavar="NAME", help="Variable for the agent; repeatable."),
    ] = None
    keep: Annotated[Keep, typer.Option("--keep", help="Result of a run without success.")] = (
        Keep.BEST
    )
    workspace: Annotated[
        WorkspaceOption,
        typer.Option(
            "--workspace",
            help="Where the agent works: a copy, a worktree, a copy without git, or the folder itself.",
        ),
    ] = WorkspaceOption.COPY
    branch: Annotated[
        str, typer.Option("--branch", metavar="NAME", help="Branch of the result; {run} is its ID.")
    ] = ""
    patch: Annotated[bool, typer.Option("--patch", help="Write a patch instead of a branch.")] = (
        False
    )
    apply: Annotated[
        bool, typer.Option("--apply", help="Change your files if the check passes.")
    ] = False
    no_merge: Annotated[bool, typer.Option("--no-merge", help="Keep the result in the copy.")] = (
        False
    )
    setup: Annotated[
        str, typer.Option("--setup", metavar="COMMAND", help="Prepares the copy, such as 'npm ci'.")
    ] = ""
    link: Annotated[
        list[str] | None,
        typer.Option(
            "--link", metavar="FOLDER", help="Folder of yours in the copy, as a link; repeatable."
        ),
    ] = None
    judge: Annotated[
        list[str] | None,
        typer.Option(
            "--judge",
            metavar="TEXT",
            help="Sentence that a model must confirm too, from the changes and the output of the check; "
            "repeatable. --model is its model.",
        ),
    ] = None
    session: Annotated[
        SessionWord,
        typer.Option("--session", help="New conversation in each iteration, or one for all."),
    ] = SessionWord.FRESH
    permissions: Annotated[
        Permissions, typer.Option("--permissions", help="Actions that a coding agent permits.")
    ] = Permissions.EDIT
    waits: Annotated[
        str,
        typer.Option(
            "--waits",
            metavar="DURATION",
            help="Let a coding agent wait for events, files, times and commands, each wait at most this long.",
        ),
    ] = ""
    price: Annotated[
        str,
        typer.Option(
            "--price",
            metavar="INPUT,OUTPUT",
            help="US dollars per million tokens, for an agent that reports none.",
        ),
    ] = ""
    sandbox: Annotated[
        SandboxWord,
        typer.Option(
            "--sandbox",
            help="Isolation of agent and check: bubblewrap where it works (auto), required, the agent's own, "
            "or none.",
        ),
    ] = SandboxWord.AUTO
    show: Annotated[
        list[str] | None,
        typer.Option(
            "--show",
            metavar="PATH",
            help="File or folder that the agent can read although the sandbox hides what is around it; repeatable.",
        ),
    ] = None
    protect: Annotated[
        list[str] | None,
        typer.Option(
            "--protect",
            metavar="GLOB",
            help="Files that the agent must not change, besides the tests; repeatable.",
        ),
    ] = None
    allow: Annotated[
        list[str] | None,
        typer.Option(
            "--allow", metavar="GLOB", help="Protected files that may change; repeatable."
        ),
    ] = None
    on_tamper: Annotated[
        OnTamper,
        typer.Option(
            "--on-tamper",
            help="After a change of protected files: put them back, reject the iteration too, or stop.",
        ),
    ] = OnTamper.PUT_BACK
    held_out: Annotated[
        str,
        typer.Option(
            "--held-out",
            metavar="FOLDER",
            help="Tests that run at the end, and that a sandbox hides from the agent.",
        ),
    ] = ""
    detach: Annotated[
        bool,
        typer.Option("--detach", help="Start in the background and print the ID of the run."),
    ] = False
    print_yaml: Annotated[
        bool, typer.Option("--print-yaml", help="Print the equivalent document and do nothing.")
    ] = False

    def of(self, check: str, agent: list[str]) -> UntilOptions:
        """Return the options of the document.

        Raises:
            ConfigurationError: for a prompt or a duration that cannot be read.
        """
        return UntilOptions(
            check,
            agent,
            goal=_prompt(self.prompt),
            iterations=self.iterations,
            seconds=seconds("--max-time", self.time),
            usd=self.max_usd,
            calls=self.max_calls,
            tokens=self.max_total_tokens,
            effects=self.max_effects,
            patience=self.patience,
            on_stall=self.on_stall.value,
            report=self.report,
            check_timeout=seconds("--check-timeout", self.check_timeout),
            pass_env=tuple(self.pass_env or ()),
            keep=self.keep.value,
            workspace=self.workspace.value,
            merge=self._merge(),
            branch=self.branch,
            setup=self.setup,
            link=self._links(check),
            judges=tuple(self.judge or ()),
            model=(self.model or "") if self.judge else "",
            model_url=(self.model_url or "") if self.judge else "",
            session=self.session.value,
            permissions=self.permissions.value,
            price=_price(self.price),
            sandbox=self.sandbox.value,
            metric=MetricOption.parse(self.metric) if self.metric else None,
            score=self.score,
            protect=tuple(self.protect or ()),
            allow=tuple(self.allow or ()),
            on_tamper=self.on_tamper.value,
            held_out=self.held_out,
            show=tuple(self.show or ()),
            waits=seconds("--waits", self.waits) if self.waits else None,
        )

    def _merge(self) -> str:
        chosen = {"patch": self.patch, "apply": self.apply, "none": self.no_merge}
        words = [word for word, wanted in chosen.items() if wanted]
        if len(words) + bool(self.branch) > 1:
            raise ConfigurationError(
                "until: choose one of --branch, --patch, --apply and --no-merge"
            )
        return words[0] if words else ""

    def _links(self, check: str) -> tuple[str, ...]:
        """Return the folders that the copy has as links: installed packages are not in the repository."""
        if self.link is not None or self.setup or self.workspace is WorkspaceOption.HERE:
            return tuple(self.link or ())
        # uv would install the copy into the linked environment.
        names = ("node_modules",) if re.search(r"\buv (run|sync)\b", check) else INSTALLED
        return tuple(name for name in names if Path(name).is_dir() and ignored(name))


@expanded
def until(
    check: Annotated[str, typer.Argument(metavar="CHECK", help="Command that must exit with 0.")],
    agent: Annotated[
        list[str],
        typer.Argument(
            metavar="-- AGENT…",
            help="Command of the agent. It reads the prompt from standard input, or from a word {prompt}, "
            "{feedback}, {feedback_file} or {iteration}.",
        ),
    ],
    options: UntilCommandOptions,
    run_id: RunId = "",
    tag: Tags = None,
) -> int:
    """Let an agent work until a check passes.

    The check runs first. While it fails, the agent runs with the output of the check, and the check runs
    again. The agent works in a copy of the current folder; the result is a branch of your repository.

    Exit codes: 0 satisfied, 3 exhausted, 1 failed, 4 suspended, 130 cancelled or interrupted, 2 wrong
    command line.

    Examples:
        loopwright until 'pytest -q' -- claude
        loopwright until 'make test' --max 5 --branch fixed -- codex
        loopwright until 'test -e done' --yes -- touch done
    """
    with Output(as_json=options.as_json) as output:
        tags = tags_of(tag)
        document = until_document(options.of(check, agent))
        check_values(options, check)
        text = yaml.dump(
            document,
            Dumper=_Dumper,
            sort_keys=False,
            allow_unicode=True,
            width=1000,
        )
        if options.print_yaml:
            sys.stdout.write(text)
            return 0
        here = options.workspace is WorkspaceOption.HERE
        git = not (here or options.workspace is WorkspaceOption.SNAPSHOT or options.patch)
        git = git and bool(options.branch) and WorkspaceSource.of(Path.cwd()).git
        check_environment(options, agent, git=git, resumed=bool(run_id))
        file = str(Path.cwd() / UNTIL_DOCUMENT)
        settings = SourceSettings.of(options)
        # The document is recorded with the run, as if its file had been deleted.
        settings = replace(settings, documents={"files": {file: text}, "calls": []})
        load = functools.partial(load_source, file, settings)
        output.note(_summary(options))
        try:
            source = approved(load, output, yes=options.yes)
        except DocumentError as error:
            raise with_option_names(error) from None
        run_id = run_id or new_run_id()
        if options.detach:
            return start_detached(run_id, options.journal, output)
        telemetry_options = TelemetryOptions(options.otel, options.log, options.capture_content)
        name = options.name or texts.fit(f"{Path.cwd().name}: {texts.one_line(check)}", _NAME)
        recorded: dict[str, Json] = {"name": name, "agent": shlex.join(agent)}
        job = Job(source, None, run_id, options, telemetry_options, recorded=recorded, tags=tags)
        return drive(job, output)


def _summary(options: UntilCommandOptions) -> str:
    """Return where the agent works, its sandbox and its limits, which a person approves."""
    sandbox = options.sandbox.value
    if options.sandbox is SandboxWord.AUTO:
        sandbox = "none, see loopwright agents" if sandbox_problem() else "bubblewrap"
    place = "" if options.workspace is WorkspaceOption.HERE else f"{options.workspace.value} of "
    limits = [f"at most {texts.plural(options.iterations, 'iteration')}", options.time]
    if options.max_usd is not None:
        limits.append(f"{options.max_usd:g} USD")
    spent = {
        "model calls": options.max_calls,
        "tokens": options.max_total_tokens,
        "effects": options.max_effects,
    }
    limits += [f"{limit} {unit}" for unit, limit in spent.items() if limit is not None]
    return f"{place}{Path.cwd()} · sandbox: {sandbox} · {', '.join(limits)}"


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def _prompt(text: str) -> str:
    if not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"--prompt: {text[1:]} cannot be read: {error}") from None


def _price(text: str) -> tuple[float, float] | None:
    if not text:
        return None
    parts = text.split(",")
    try:
        price = float(parts[0]), float(parts[1])
    except (ValueError, IndexError):
        price = -1.0, -1.0
    if len(parts) != 2 or not all(0 <= part < math.inf for part in price):
        raise ConfigurationError(
            f"--price: {text!r} is not INPUT,OUTPUT in US dollars per million tokens, such as 3,15"
        )
    return price
