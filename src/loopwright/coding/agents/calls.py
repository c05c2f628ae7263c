"""One call of a coding agent as an effect: its settings, the words, the events, and the record of its end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NotRequired, TypedDict

from ..._platform import temporary_folder
from ...engine.context import Context
from ...engine.step import Leaf, digest_of
from ...errors import StepError
from ...models.registry import Price, cost
from ...records import NOTHING, Usage, codec
from ...records.codec import Json
from ...records.display import excerpt_line
from ...records.redaction import Redactor
from ...tools.process import inherited, run_command
from ...tools.sandbox import Sandbox
from .events import AgentFailure, EventReader, classified, failure_of, reader_of
from .interruptions import Interruptions
from .manifest import ARGUMENT_BYTES, Manifest
from .program import AgentProcess, Ended, RawStream, Session, StreamMode, sessions_of

if TYPE_CHECKING:
    from .waits import Waits

__all__ = [
    "AgentCall",
    "AgentRecord",
    "CallSettings",
    "environment",
    "is_missing",
    "outcome",
    "redactor_of",
    "state_of",
    "version_of",
]

VERSION_SECONDS = 10.0
HOME_SECONDS = 7 * 86_400.0  # that the home folder of a run stays, as long as its workspace
_ACP_CLIENT = Path(__file__).with_name("acp_client.py")
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
    waits: Waits | None = None

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
        # Those of other runs that were not used for long.
        for place in homes.iterdir():
            with contextlib.suppress(OSError):  # another process removes it too
                if time.time() - place.stat().st_mtime > HOME_SECONDS:
                    shutil.rmtree(place, ignore_errors=True)
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


LIVE_READ = 4_000  # characters of a text that are prepared for a live line
LIVE_CHARS = 160  # of a live line


class AgentRecord(TypedDict):
    """The record of one call, as the journal holds it."""

    text: str
    session: str
    session_key: str
    turns: int
    usage: Json
    session_usage: Json
    changed: list[str]
    denials: list[dict[str, Json]]
    stop: str
    seconds: float
    program: str
    version: str
    stream: str
    failure: Json
    missing_session: bool
    request: NotRequired[Json]  # with `stop: waits`: what it asks to wait for
    hints: NotRequired[list[Json]]  # with `stop: steered`: the hints of the next prompt


class AgentCall(Leaf):
    """The effect of one call.

    Args:
        settings: the settings of the step.
        prompt: the text for the agent.
        session: the session to continue, or a new one with the ID that the program is to use.
        key: the key under which later calls find the session, "" for a fresh one.
        resumed: whether the session exists.
        folder: the working folder.
        env: the rendered variables of the step.
        idempotent: whether it may run twice.
        limit: the cost in US dollars at which the program is stopped.
        interruptions: what people ask of the call.
        schema: a JSON Schema for the program's own option.
        waited: the result of the wait before it, if there was one.
    """

    name = "call"
    in_folder = True
    stub = "coding agent"
    fingerprint: str
    idempotent: bool
    reserve: Callable[[Json], Usage | None] | None

    def __init__(
        self,
        settings: CallSettings,
        *,
        prompt: str,
        session: Session,
        key: str,
        resumed: bool,
        folder: Path,
        env: Mapping[str, str],
        idempotent: bool,
        limit: float | None,
        interruptions: Interruptions,
        schema: Mapping[str, Json] | None = None,
        waited: Json = None,
    ) -> None:
        self.settings, self.prompt, self.session, self.resumed = settings, prompt, session, resumed
        self.folder, self.env, self.idempotent, self.limit = folder, env, idempotent, limit
        self.schema, self.key, self.waited, self.interruptions = schema, key, waited, interruptions
        self.process: AgentProcess | None = None
        self.fingerprint = settings.fingerprint
        amount = Usage(usd=limit) if limit else None
        self.reserve = None if amount is None else lambda _: amount

    @property
    def asks(self) -> Json:
        """The request for the journal: the session is known there before the program starts."""
        return {
            "agent": self.settings.manifest.name,
            "prompt": self.prompt,
            "session": self.session.id,
            "resumed": self.resumed,
            # None: it cannot be interrupted, because its program has no sessions.
            "hints_of": self.interruptions.loop if self.settings.manifest.resumable else None,
        }

    def stubbed(self, output: Json) -> Json:
        """Return the record of a call that printed the output of a stub."""
        data = output if isinstance(output, dict) else {"text": codec.text_of(output)}
        return {**_empty(self.settings.manifest.name), "session": self.session.id, **data}

    async def act(self, value: Json, ctx: Context) -> Json:
        """Run the program and return the record of its end; a failure is a part of the record."""
        settings, manifest = self.settings, self.settings.manifest
        redactor = redactor_of(settings, self.env)
        reader, raw = reader_of(manifest), RawStream(settings.stream)
        listener = ctx.run.resources.get("on_text")
        title = manifest.title or manifest.name

        def clean(text: str) -> str:
            return ctx.run.redact(redactor.text(text))

        def shown(text: str) -> str:
            # Cut only after the secrets are removed; a part of one would not be recognised.
            visible = "".join(c if c.isprintable() else " " for c in clean(text[:LIVE_READ]))
            return excerpt_line(visible, LIVE_CHARS) + "\n"

        lines = ctx.run.resources["live_lines"].writer(ctx.run.run_id, ctx.path, title, shown)
        # Beside the call: some programs take seconds to print their version.
        version, started = asyncio.create_task(version_of(manifest, ctx)), True
        with contextlib.closing(raw), temporary_folder("agent") as scratch, lines as live:

            def interrupt() -> None:
                if (
                    self.process is not None
                    and self.interruptions.requests() > self.interruptions.seen
                    and manifest.resumable
                    # A session that the program names can be continued once its name is known.
                    and (reader.session or self.session.id or not manifest.names_sessions)
                ):
                    self.process.tell("steered")

            def on_line(line: str) -> bool:
                for text in reader.feed(line):
                    live.add(text, reader.session or self.session.id)
                    if listener is not None:
                        listener(ctx.path, shown(text))
                interrupt()
                # Not every program has a limit of its own.
                return self.limit is not None and self._usage(reader).usd >= self.limit

            if settings.waits is not None:
                self.env = {**self.env, **settings.waits.files(scratch, self.waited)}
            try:
                ctx.run.interruptible[ctx.path] = interrupt
                prefix = await self._prefix(scratch, ctx)
                sandboxed = bool(prefix) and not settings.sandbox.wrap
                words, stdin = self._arguments(scratch, sandboxed=sandboxed)
                words = [*prefix, *words]
                ended = await self._run(words, stdin, ctx, on_line=on_line, raw=raw)
                reader.finish()
                number = await version
            except StepError as error:
                started = error.kind != "cannot_start"
                raise
            finally:
                version.cancel()
                ctx.run.interruptible.pop(ctx.path, None)
                # Also after a failure or a cancel: the tokens are paid for.
                if started:
                    usage = self._usage(reader)
                    # Without a last event the report is incomplete, and the reservation is the better figure.
                    # An interruption is no reason to count all that the budgets have left.
                    cut = self.process is not None and self.process.stop == "steered"
                    if reader.counts and not (reader.ended or cut) and self.limit:
                        usage = usage.settled_at(Usage(calls=1, usd=self.limit))
                    # The program reports the price that metered use would have; nothing of it is charged.
                    if settings.billing == "subscription" and not settings.count_notional:
                        usage = replace(usage, usd=0.0, unpriced=0)
                    ctx.spend(usage)
            digest = raw.store(ctx.run.resources["file_store"], clean)
            request = settings.waits and settings.waits.request(reader.text, scratch)
        if ended.skipped:
            ctx.warn(
                f"{manifest.name}: {ended.skipped} lines of its output were longer than 16 MiB and left out",
                code="lines_omitted",
            )
        record = self._record(reader, ended)
        record["version"], record["stream"] = number or reader.version, digest
        # Not of a call that failed or reached a limit.
        if request and record["failure"] is None and record["stop"] == "completed":
            record["stop"], record["request"] = "waits", request
        result: Json = redactor.clean(record)
        return result

    async def _run(
        self, words: Sequence[str], stdin: bytes | None, ctx: Context, **options: object
    ) -> Ended:
        settings, manifest = self.settings, self.settings.manifest
        try:
            if manifest.events == "acp" and is_missing(manifest.program[0], self.env):
                # Our client would start, and the program below it would not.
                raise StepError(
                    f"{manifest.program[0]} cannot be started: there is no such program",
                    kind="cannot_start",
                    retryable=False,
                )
            self.process = AgentProcess(
                words, env=environment(settings, self.env, ctx), cwd=self.folder,
                interrupt=manifest.interrupt, token=ctx.run.token, has_input=stdin is not None,
                **options,  # type: ignore[arg-type]
            )  # fmt: skip
            return await self.process.run(
                stdin, timeout=settings.timeout, idle=settings.idle_timeout
            )
        except StepError as error:
            if (
                error.kind != "cannot_start"
                or not manifest.install
                or shutil.which(manifest.program[0])
            ):
                raise
            raise StepError(
                f"{manifest.title or manifest.name} is not installed: there is no program "
                f"{manifest.program[0]!r} on PATH. Install it with: {manifest.install}",
                kind="cannot_start",
                retryable=False,
            ) from None

    async def _prefix(self, scratch: Path, ctx: Context) -> list[str]:
        settings, manifest = self.settings, self.settings.manifest
        env = environment(settings, self.env, ctx)
        # Without a program the sandbox would start and fail; the error of a start without it is exact.
        if not settings.sandbox.used or is_missing(manifest.program[0], env):
            return []
        files = None if ctx.scope is None else ctx.scope.files
        sandbox = settings.sandbox.within(scratch, *state_of(manifest, env))
        if files is not None:
            state, edits = files.state, settings.permissions != "read"
            sandbox = sandbox.within(
                *([files.root] if edits else []),
                readable=(files.root, *state.shown),
                project=state.covered,
            )
        if settings.permissions == "read":
            sandbox = replace(sandbox, changes_folder=False)
        return await sandbox.prefix(
            self.folder,
            ctx,
            name=manifest.title or manifest.name,
            command=(*manifest.program, *settings.args),
            has_own=manifest.own_sandbox,
        )

    def _arguments(self, folder: Path, *, sandboxed: bool) -> tuple[list[str], bytes | None]:
        """Return the words of the call and its standard input; files are written to `folder`."""
        settings, manifest, stdin = self.settings, self.settings.manifest, None
        values = {"session": self.session.id, "model": settings.model}
        values |= {"max_turns": "" if settings.max_turns is None else str(settings.max_turns)}
        values |= {"max_usd": "" if self.limit is None else f"{self.limit:g}"}
        values = {name: value for name, value in values.items() if value}
        data = self.prompt.encode("utf-8", "replace")
        # The system refuses longer arguments, and ends an argument at NUL.
        if len(data) <= ARGUMENT_BYTES and b"\0" not in data:
            values["prompt"] = data.decode()
        elif manifest.prompt.stdin is not None:
            stdin = data
        elif manifest.prompt.file is not None:
            values["prompt_file"] = str(folder / "prompt.txt")
            (folder / "prompt.txt").write_bytes(data)
        else:
            raise StepError(
                f"the prompt has {len(data):,} bytes, and {manifest.name} takes at most {ARGUMENT_BYTES:,}; "
                "shorten it, or name prompt.stdin or prompt.file in its manifest",
                kind="bad_argument",
                retryable=False,
            )
        if self.schema is not None and "schema_file" in manifest.optional:
            values["schema_file"] = str(folder / "schema.json")
            (folder / "schema.json").write_text(codec.encode(dict(self.schema)), encoding="utf-8")
        # Programs have different options for a new session and an existing one.
        session = manifest.resume if self.resumed else manifest.session
        if manifest.events == "acp":
            client = [sys.executable, "-P", str(_ACP_CLIENT)]
            words = manifest.words(values, session, settings.permissions)
            return [*client, *words, "--", *manifest.program, *settings.args], stdin
        words = manifest.words(
            values, session, settings.permissions, settings.args, sandboxed=sandboxed
        )
        return [*manifest.program, *words], stdin

    def _usage(self, reader: EventReader) -> Usage:
        """Return what this call spent: for a program that counts per session, the difference."""
        settings = self.settings
        usage = reader.usage
        if settings.manifest.per == "thread" and self.resumed:
            before = self.session.usage
            # A smaller total means that the program began to count again.
            if usage.tokens >= before.tokens and usage.usd >= before.usd:
                usage = usage.less(before)
        # A program without a report of turns made one call at least.
        usage = replace(usage, calls=max(1, reader.turns))
        if not usage.usd and settings.price is not None:
            usage = cost(usage, settings.price)
        elif usage.unpriced:
            usage = replace(usage, unpriced=usage.calls)
        return usage

    def _record(self, reader: EventReader, ended: Ended) -> AgentRecord:
        manifest = self.settings.manifest
        stop, failure = outcome(reader, ended, self.settings)
        told = f"{failure.message if failure else ''}\n{ended.stderr}\n" + "\n".join(reader.notes)
        missing = self.resumed and any(re.search(text, told) for text in manifest.missing_session)
        session_usage = reader.session_usage or self.session.usage
        return {
            **_empty(manifest.name),
            "text": reader.text,
            "session": reader.session or self.session.id,
            "session_key": self.key,
            "turns": reader.turns,
            "usage": self._usage(reader).to_json(),
            "session_usage": session_usage.to_json() if manifest.per == "thread" else None,
            # Relative to the working folder, if they are inside.
            "changed": [
                str(Path(path).relative_to(self.folder))
                if Path(path).is_relative_to(self.folder)
                else path
                for path in reader.changed
            ],
            "denials": reader.denials,
            "stop": stop,
            "seconds": round(ended.seconds, 3),
            "failure": None if failure is None else failure.to_json(),
            "missing_session": missing and failure is not None,
            **({"hints": self.interruptions.take()} if stop == "steered" else {}),  # type: ignore[typeddict-item]
        }


def _empty(program: str) -> AgentRecord:
    return {
        "text": "", "session": "", "session_key": "", "turns": 0, "usage": NOTHING.to_json(), "session_usage": None, "changed": [],
        "denials": [], "stop": "completed", "seconds": 0.0, "program": program, "version": "", "stream": "",
        "failure": None, "missing_session": False,
    }  # fmt: skip


def outcome(
    reader: EventReader, ended: Ended, settings: CallSettings
) -> tuple[str, AgentFailure | None]:
    """Return why a call ended, and its failure. The events decide; an exit code alone is never a success."""
    manifest = settings.manifest
    name = manifest.title or manifest.name
    # Before the events: a program that is interrupted often reports an error of its own.
    if ended.stop in ("max_usd", "steered"):
        return ended.stop, None
    if ended.stop == "too_large":
        return "error", AgentFailure(
            "output_too_large", f"{name} printed more than 256 MiB and was ended"
        )
    if ended.stop:
        limit = settings.timeout if ended.stop == "timeout" else settings.idle_timeout
        reason = (
            f"took longer than {limit:g} s"
            if ended.stop == "timeout"
            else f"printed nothing for {limit:g} s"
        )
        return ended.stop, AgentFailure("timeout", f"{name} {reason} and was ended")
    failure = reader.failure
    if failure is None and any(re.search(text, reader.text) for text in manifest.failure_text):
        failure = failure_of(reader.text, default="unknown_outcome")
    if failure is not None:
        return ("refused" if failure.kind == "refused" else "error"), failure
    if reader.stop != "completed":
        return reader.stop, None
    if not reader.ended:
        return _without_end(reader, ended, manifest)
    if reader.counts and not reader.text and not reader.usage.output_tokens:
        return "error", AgentFailure(
            "empty_output", f"{name} ended without a reply and without output tokens"
        )
    return "completed", None


def _without_end(
    reader: EventReader, ended: Ended, manifest: Manifest
) -> tuple[str, AgentFailure | None]:
    """Return the end of a call that printed no last event."""
    meaning = manifest.exit.get(ended.exit_code, "")
    if meaning in ("max_turns", "max_usd"):
        return meaning, None
    last = "\n".join([ended.stderr.strip()[-400:], *reader.notes[-5:]]).strip()
    code = ended.exit_code
    how = f"exited with {code}" if code >= 0 else f"was ended by signal {-code}"
    message = f"{manifest.title or manifest.name} {how}{last and ': '}{last}"
    if meaning:
        return "error", AgentFailure(meaning, failure_of(message).message)
    if manifest.end == "none" and code == 0 and not (reader.counts and not reader.text):
        return "completed", None
    # A signal says nothing about the request. An exit code does only together with words.
    kind = classified(last) if code > 0 else ""
    usual = "unknown_outcome" if manifest.end == "required" or code < 0 else "exit_status"
    return "error", replace(failure_of(message, default=usual), kind=kind or usual)
