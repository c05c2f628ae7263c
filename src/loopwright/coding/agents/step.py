"""The step that gives a task to a coding agent."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, cast

from ..._extras import require
from ...engine.context import Context
from ...engine.step import CompositeStep, digest_of, fingerprinted
from ...errors import ConfigurationError, StepError, StepTimeout, nearest
from ...models.registry import read_prices
from ...models.reply_values import read_value
from ...prompts.prompt import Text, filled_in, hinted, source_of, unsupplied_names
from ...records import Reason, Result, Status, Usage, codec
from ...records.codec import Json
from ...records.json_schema import check_schema
from ...templates.variables import fill
from ...tools.process import variable_names
from ...tools.sandbox import Sandbox, SandboxMode
from .calls import AgentCall, AgentRecord, CallSettings
from .interruptions import GO_ON, Interruptions
from .manifest import Manifest, load_manifest
from .program import Session, StreamMode, checked_mode, new_id, session_key, sessions_of

if TYPE_CHECKING:
    from .waits import Requests

__all__ = ["AgentOptions", "AgentStep", "agent"]

# Calls for one answer, if temporary failures end them. Programs retry requests themselves.
ATTEMPTS = 3
LONGEST_WAIT = 120.0  # seconds to wait for a time that the program names
DELAY = 1.0  # seconds before the second call; doubled for each further one
TIMEOUT = 1800.0
IDLE = 600.0
Output = Literal["text", "result"] | Mapping[str, Json]
Value = Json | Callable[[Json, Context], object]
_SHOWN = (  # of the record, as `output: result`
    "text", "session", "turns", "usage", "changed", "denials", "stop", "seconds", "program", "version", "stream",
)  # fmt: skip
_LIMITS = {
    "max_turns": "the agent reached its limit of turns",
    "max_usd": "the agent reached its limit of US dollars",
}


class AgentOptions(TypedDict, total=False):
    """The options of `agent`, which explains them."""

    name: str
    model: str
    session: str
    permissions: Literal["read", "edit", "full"]
    max_turns: int | None
    max_usd: float | None
    timeout: float | None
    idle_timeout: float | None
    pass_env: Sequence[str] | None
    env: Mapping[str, Value]
    home: Literal["user", "run"]
    args: Sequence[str]
    output: Output
    billing: Literal["metered", "subscription"]
    count_notional: bool
    price: Mapping[str, float] | None
    stream: StreamMode
    cwd: str | Path | None
    workspace: Literal["here"] | None
    idempotent: bool
    sandbox: Sandbox | SandboxMode
    waits: bool | Mapping[str, Json] | None


@dataclass
class _Answer:
    """The state of one answer: its calls are numbered, and share a session."""

    ctx: Context
    key: str
    folder: Path
    env: dict[str, str]
    interruptions: Interruptions
    number: int = 0
    fresh: bool = False  # whether the session of the key cannot be continued
    requests: Requests | None = None  # None: it may not wait
    task: str = ""  # the prompt of the first call


class AgentStep(CompositeStep):
    """A coding agent as a step. See `agent`."""

    reports = True

    def __init__(
        self,
        settings: CallSettings,
        prompt: Text,
        *,
        name: str,
        session: str = "fresh",
        env: Mapping[str, Value] | None = None,
        output: Output = "text",
        cwd: Path | None = None,
        here: bool = False,
        idempotent: bool = False,
    ) -> None:
        self.settings, self.prompt, self.name, self.session = settings, prompt, name, session
        self.env, self.output, self.cwd, self.here = dict(env or {}), output, cwd, here
        self.idempotent = idempotent
        self.manifest: Manifest = settings.manifest

    @functools.cached_property
    def schema(self) -> Mapping[str, Json] | None:
        """The JSON Schema of the output, if it has one."""
        return None if isinstance(self.output, str) else self.output

    @fingerprinted
    def fingerprint(self) -> str:
        """The identity of the step for replays."""
        source = getattr(self.prompt, "source", getattr(self.prompt, "__qualname__", ""))
        return digest_of(
            "agent step", self.settings.fingerprint, codec.canonical(source), self.session,
            codec.canonical(self.output), str(self.here),
        )  # fmt: skip

    @property
    def words(self) -> str:
        """The agent and its model."""
        return f"{self.manifest.title or self.manifest.name} {self.settings.model}".rstrip()

    def __repr__(self) -> str:
        return f"agent({self.manifest.name!r}, name={self.name!r})"

    async def run(self, value: Json, ctx: Context) -> Result:
        """Give the rendered prompt to the agent and return its output.

        Raises:
            StepError: with the kind of the failure, see `agent`.
        """
        files = None if ctx.scope is None else ctx.scope.files
        # The folder of the workspace, else the one that the user agreed to.
        if files is not None:
            folder = files.inside(self.cwd)
        elif self.here or ctx.run.stubs is not None:
            folder = (self.cwd or Path.cwd()).resolve()
        else:
            raise StepError(
                f"{self.name}: a coding agent changes files, and there is no workspace. Add a workspace, or set "
                "workspace='here' to let it work in the folder itself.",
                path=ctx.path,
                kind="no_workspace",
                retryable=False,
            )
        env = {} if files is None else dict(files.variables)
        for name, item in self.env.items():
            text: object = item(value, ctx) if callable(item) else item
            env[name] = codec.text_of(cast("Json", text))
        if files is not None and self.manifest.leaves:
            files.state.leave_out(self.manifest.leaves)
        key = session_key(self.session, ctx, f"{self.manifest.name} {folder}")
        # A conversation must not remember files that are gone, because the iteration continues from others
        # than those of the last one.
        before, place = ctx.iteration - 1, None if ctx.scope is None else ctx.scope.place
        if place is not None:
            elsewhere = self.session != "loop" and place.plan.parent != before
            fresh = before > 0 and (elsewhere or not place.line)
        else:
            parent = None if files is None else files.parent
            fresh = files is not None and before > 0 and (parent is None or parent.number != before)
        answer = _Answer(ctx, key, folder, env, Interruptions(ctx), fresh=fresh)
        session = sessions_of(ctx.run).get(key) if key and not fresh else None
        continues = session is not None and bool(session.id)
        replay = ctx.run.replay
        if replay is not None and (asked := replay.requests.get(ctx.below("call-1"))) is not None:
            # A resumed run knows the sessions of later calls too.
            continues = bool(asked["resumed"])
        prompt = hinted(filled_in(self.prompt, value, ctx), self.prompt, ctx, new=continues)
        if (waits := self.settings.waits) is not None:
            from .waits import Requests  # for the few agents that wait

            cwd = folder if files is None else self.cwd
            answer.requests = Requests(self.settings, waits, env, folder, cwd)
            prompt = waits.task(prompt)
        async with self._alone(answer):
            if self.schema is None:
                record = await self._answered(prompt, answer)
                output: Json = record["text"]
                if self.output == "result":
                    output = {name: record[name] for name in _SHOWN}  # type: ignore[literal-required]
            else:
                output = await self._value(prompt, self.schema, answer)
        detail = f"{ctx.path} answered"
        return Result(Status.SATISFIED, Reason.COMPLETED, detail, output, name=self.name)

    @contextlib.asynccontextmanager
    async def _alone(self, answer: _Answer) -> AsyncIterator[None]:
        if not answer.key:
            yield
            return
        # Two calls at a time in one conversation would each miss the turns of the other.
        async with sessions_of(answer.ctx.run).lock(answer.key):
            yield

    async def _value(self, prompt: str, schema: Mapping[str, Json], answer: _Answer) -> Json:
        """Return the JSON value of the reply; the agent is asked once more for an unusable one."""
        if "schema_file" not in self.manifest.optional:
            prompt = (
                f"{prompt}\n\nEnd with a reply that is one JSON value for this schema and nothing else:\n"
                f"{codec.encode(dict(schema))}"
            )
        record = await self._answered(prompt, answer)
        reading = read_value(record["text"], schema)
        if reading.problem:
            # In the same session where there is one, so that the agent knows its own reply.
            session = Session(record["session"], Usage.from_json(record["session_usage"]))
            record = await self._answered(reading.complaint, answer, session=session)
            reading = read_value(record["text"], schema)
        if reading.problem:
            raise StepError(
                f"{self.name}: the reply has no JSON value for the schema: {reading.complaint}",
                path=answer.ctx.path,
                kind="malformed",
            )
        return reading.value

    async def _answered(
        self, prompt: str, answer: _Answer, *, session: Session | None = None
    ) -> AgentRecord:
        """Return the record of the last call of an answer, after interruptions and the waits that the agent asked for."""
        record, requests = await self._settled(prompt, answer, session), answer.requests
        while (stop := record["stop"]) in ("steered", "waits"):
            if stop == "steered":
                prompt = answer.interruptions.told(record["hints"])
            elif requests is None or requests.refused:
                break
            else:
                prompt = await requests.told(record.get("request"), answer.ctx, answer.number)
                # The wait stayed; what came meanwhile is read by the next iteration.
                answer.interruptions = Interruptions(answer.ctx)
            session = Session(record["session"], Usage.from_json(record["session_usage"]))
            record = await self._settled(prompt, answer, session)
        return record

    async def _settled(self, prompt: str, answer: _Answer, session: Session | None) -> AgentRecord:
        """Return the record of a call that did not fail, after repeated calls if that can help."""
        for attempt in range(1, ATTEMPTS + 1):
            record = await self._called(prompt, answer, session)
            failure = record["failure"]
            if record["missing_session"]:
                answer.ctx.warn(
                    f"{self.name}: the session {record['session']} no longer exists; a new one was begun",
                    code="session_gone",
                )
                answer.fresh, session = True, None
                continue
            if failure is None:
                break
            known = self._continues(record["session"])
            # Without a session the work so far may be repeated, so the loop or the user decides.
            if (
                failure["kind"] not in ("transient", "throttled")
                or not known
                or attempt == ATTEMPTS
            ):
                raise self._error(failure, answer.ctx)
            wait = failure["retry_after"] or DELAY * 2 ** (attempt - 1)
            # A longer wait, such as for a new quota, is the decision of the loop or of its user.
            if wait > LONGEST_WAIT:
                raise self._error(failure, answer.ctx)
            await answer.ctx.sleep(wait)
            session = Session(record["session"], Usage.from_json(record["session_usage"]))
        if (limit := _LIMITS.get(record["stop"])) is not None:
            answer.ctx.warn(f"{self.name}: {limit}; its work so far is kept", code="agent_limit")
        return record

    async def _called(self, prompt: str, answer: _Answer, session: Session | None) -> AgentRecord:
        ctx, sessions = answer.ctx, sessions_of(answer.ctx.run)
        answer.number += 1
        resumed = session is not None and self._continues(session.id)
        if session is None and not answer.fresh:
            session = sessions.get(answer.key)
            resumed = bool(session.id) and self.manifest.resumable
        if session is None or not resumed:
            # The program chooses the ID of a new session, if it does not take one.
            unnamed = "folder" if answer.key and not self.manifest.names_sessions else ""
            session = Session(new_id(ctx.run) if self.manifest.session else unnamed)
        answer.task = answer.task or prompt
        continued = answer.requests is not None or prompt.startswith(GO_ON)
        # In a new session the agent does not know the task.
        if continued and not resumed and prompt != answer.task:
            prompt = f"{answer.task}\n\n{prompt}"
        call = AgentCall(
            self.settings, prompt=prompt, session=session, key=answer.key, resumed=resumed, folder=answer.folder,
            env=answer.env, idempotent=self.idempotent, limit=self._limit(ctx), schema=self.schema,
            interruptions=answer.interruptions,
            waited=answer.requests and answer.requests.result,
        )  # fmt: skip
        # The session is left out of the input: a resumed run knows the sessions of all recorded calls.
        record: AgentRecord = await ctx.call(f"call-{answer.number}", call, {"prompt": prompt})
        usage = Usage.from_json(record["session_usage"])
        sessions.put(answer.key, Session(record["session"], usage))
        nameless = self.manifest.names_sessions and not record["session"]
        if answer.key and nameless and record["failure"] is None:
            ctx.warn(
                f"{self.name}: the agent cannot continue a session, so each call begins a new one",
                code="no_session",
            )
        return record

    def _continues(self, session: str) -> bool:
        """Return whether a further call of the same answer continues its conversation."""
        return self.manifest.resumable and (bool(session) or not self.manifest.names_sessions)

    def _limit(self, ctx: Context) -> float | None:
        """Return the US dollars that one call may cost: its own limit, or what the budgets have left.

        Raises:
            StepError: of kind `unknown_price`, for a budget in US dollars that could never bind.
        """
        capped, limit = False, self.settings.max_usd
        account = ctx.account
        while account is not None:
            if account.cap is not None and account.cap.usd is not None:
                capped = True
                left = account.cap.usd - account.settled.usd - account.reserved.usd
                limit = left if limit is None else min(limit, left)
            account = account.parent  # type: ignore[assignment]
        if (capped or limit is not None) and not self.prices_known:
            raise StepError(
                unpriced(self.name, self.manifest),
                path=ctx.path,
                kind="unknown_price",
                retryable=False,
            )
        # With nothing left the reservation must be refused, and not be empty.
        return limit if limit is None else max(limit, 1e-6)

    @property
    def prices_known(self) -> bool:
        """Whether calls have a cost in US dollars."""
        settings = self.settings
        if settings.billing == "subscription" and not settings.count_notional:
            return True
        return settings.price is not None or self.manifest.usd

    def _error(self, failure: Mapping[str, Json], ctx: Context) -> StepError:
        message = f"{self.name}: {failure['message']}"
        if failure["kind"] == "timeout":
            return StepTimeout(message, path=ctx.path)
        retryable = failure["kind"] in (
            "throttled",
            "transient",
            "unknown_outcome",
            "empty_output",
            "exit_status",
        )
        return StepError(
            message,
            path=ctx.path,
            kind=failure["kind"],
            retryable=retryable,
            retry_after=failure["retry_after"],
        )


def unpriced(name: str, manifest: Manifest) -> str:
    """Return the sentence on a budget in US dollars for a program that reports none."""
    return (
        f"{name}: {manifest.title or manifest.name} does not report US dollars, so a limit in US dollars needs a "
        "price: set price with the input and output of a million tokens, or set billing to subscription"
    )


def agent(cli: str | Manifest, prompt: Text, **options: Unpack[AgentOptions]) -> AgentStep:
    """Make a step that gives a task to a coding agent, a command-line program that edits files.

    The program runs under a supervisor, which ends it with every process below it. Its events decide
    whether it succeeded; an exit code alone does not.

    Args:
        cli: `claude`, `codex`, `gemini`, `qwen`, `opencode`, `aider`, the path of a manifest, or a `Manifest`.
        prompt: the template of the task, as for `loopwright.prompt`, or a function of input and context.
        **options: as follows.

            - `name`: the name of the step. Default: that of the manifest.
            - `model`: a model of the program. Default: the program's own.
            - `session`: `fresh` (default); `loop` continues one conversation in a loop, `run` in the run; any
              other name is shared by several steps.
            - `permissions`: `read`, `edit` (default) or `full`.
            - `max_turns`, `max_usd`: limits of one call. A call that reaches one keeps its work.
            - `timeout`, `idle_timeout`: seconds, and seconds without output, after which the program is
              ended. Default: 1800 and 600.
            - `pass_env`: names of our environment variables that it receives. Default: the keys that its
              manifest names.
            - `env`: further variables: texts, or functions of input and context.
            - `home`: `user` (default) uses your login and settings, `run` an empty home folder of the run.
            - `args`: constant words that follow the command.
            - `output`: `text` (the last message, default), `result` (an object with the text, the session,
              the usage and the changed files), or a JSON Schema.
            - `billing`: `metered` (default), or `subscription`, whose US dollars are not counted unless
              `count_notional` is set.
            - `price`: US dollars per million tokens, `{"input": 3, "output": 15}`, for a program that reports none.
            - `stream`: how much of the raw output is stored beside the journal: `tail` (1 MiB, default), `full`
              or `off`.
            - `cwd`: the working folder. Default: that of the workspace, else that of this process.
            - `workspace`: `here` lets it work in the folder itself, without a workspace.
            - `idempotent`: whether it may run twice after a crash. Default: False; in a workspace, files are put
              back first, and it runs again.
            - `waits`: lets it wait without a cost: it ends its turn with a request, and is continued with the result.
              `True`, or some of `most` (waits of one answer, default 8), `longest` (of one wait, seconds or text, default
              "4h") and `commands` (whether it may wait for a command of its choice, default False). Default: no waits.
            - `sandbox`: `auto` uses bubblewrap where it works, else the program's own sandbox, else none with a
              warning; `bubblewrap` and `own` require one; `none` is the default. A `Sandbox` has more options.

    Returns:
        A step for a loop or a workflow.

    Raises:
        ConfigurationError: for an unknown program, an invalid manifest or an invalid option. At run time,
            StepError: `no_workspace`, `no_sandbox`, `cannot_start`, `unknown_price`, `permanent`, `throttled`, `quota`,
            `transient`, `refused`, `unknown_outcome`, `empty_output`, `malformed`, or StepTimeout.

    Example:
        >>> fix = agent("claude", "Make the tests pass. {{ loop.last.feedback }}", session="loop", max_turns=40)
        >>> fix.name, fix.manifest.per
        ('claude', 'call')
    """
    manifest = cli if isinstance(cli, Manifest) else load_manifest(cli)
    name = options.pop("name", "") or manifest.name or "agent"
    settings = settings_of(name, manifest, options)
    session = checked_mode(name, options.get("session", "fresh"))
    if session != "fresh" and not manifest.resumable:
        raise ConfigurationError(
            f"{name}: session: {session}: {manifest.title or manifest.name} cannot continue a session; use fresh"
        )
    if isinstance(prompt, str) and not prompt.strip():
        raise ConfigurationError(f"{name}: prompt is empty")
    cwd = options.get("cwd")
    step = AgentStep(
        settings,
        fill(prompt) if isinstance(prompt, str) else prompt,
        name=name,
        session=session,
        env=options.get("env"),
        output=_output(name, options.get("output", "text")),
        cwd=None if cwd is None else Path(cwd),
        here=_here(name, options.get("workspace")),
        idempotent=options.get("idempotent", False),
    )
    if isinstance(prompt, str):
        step.unsupplied = unsupplied_names(name, source_of(prompt))
    return step


def settings_of(name: str, manifest: Manifest, options: AgentOptions) -> CallSettings:
    """Return the settings of the calls of a step, checked."""
    unknown = [key for key in options if key not in AgentOptions.__annotations__]
    if unknown:
        hint = nearest(unknown[0], AgentOptions.__annotations__)
        raise ConfigurationError(f"{name}: unknown option {unknown[0]!r}{hint}")
    for key, words in _WORDS.items():
        if key in options and options[key] not in words:  # type: ignore[literal-required]
            value = options[key]  # type: ignore[literal-required]
            raise ConfigurationError(
                f"{name}: {key}: {value!r:.60} is not one of {', '.join(words)}{nearest(str(value), words)}"
            )
    if manifest.events == "acp":
        require(f"{name}: an agent that speaks ACP", "acp")
    permissions = options.get("permissions", "edit")
    if manifest.permissions and permissions not in manifest.permissions:
        raise ConfigurationError(
            f"{name}: permissions: {manifest.title or manifest.name} has no {permissions!r}; use one of "
            f"{', '.join(manifest.permissions)}"
        )
    numbers: dict[str, Any] = {
        "timeout": options.get("timeout", TIMEOUT),
        "idle_timeout": options.get("idle_timeout", IDLE),
    }
    numbers["max_usd"] = options.get("max_usd")
    for key, number in numbers.items():
        if number is not None:
            numbers[key] = codec.number(f"{name}: {key}", number, minimum=0, above=True)
    max_turns = options.get("max_turns")
    if max_turns is not None:
        codec.integer(f"{name}: max_turns", max_turns, minimum=1)
        if "max_turns" not in manifest.optional:
            raise ConfigurationError(
                f"{name}: max_turns: {manifest.title or manifest.name} has no such limit; use timeout or max_usd"
            )
    waits = None
    if (wanted := options.get("waits")) not in (None, False):
        from .waits import Waits  # for the few agents that wait

        waits = Waits.of(name, wanted, manifest, permissions)
    price = options.get("price")
    pass_env = options.get("pass_env")
    settings = CallSettings(
        manifest,
        model=options.get("model", ""),
        permissions=permissions,
        max_turns=max_turns,
        pass_env=None if pass_env is None else variable_names(f"{name}: pass_env", pass_env),
        env=cast("Mapping[str, Json]", dict.fromkeys(options.get("env") or {})),
        home=options.get("home", "user"),
        args=_constant(name, options.get("args", ())),
        billing=options.get("billing", "metered"),
        count_notional=options.get("count_notional", False),
        price=None if price is None else read_prices({"agent": dict(price)})["agent"],
        stream=options.get("stream", "tail"),
        sandbox=_sandbox(name, manifest, options.get("sandbox", "none")),
        waits=waits,
        **numbers,
    )
    if (
        settings.max_usd is not None
        and settings.billing == "metered"
        and not (settings.price or manifest.usd)
    ):
        raise ConfigurationError(unpriced(name, manifest))
    return settings


_WORDS: Mapping[str, tuple[str, ...]] = {
    "permissions": ("read", "edit", "full"),
    "home": ("user", "run"),
    "billing": ("metered", "subscription"),
    "stream": ("tail", "full", "off"),
}


def _sandbox(name: str, manifest: Manifest, value: Sandbox | SandboxMode) -> Sandbox:
    sandbox = Sandbox(value) if isinstance(value, str) else value
    if sandbox.mode == "own" and not manifest.own_sandbox:
        raise ConfigurationError(
            f"{name}: sandbox: {manifest.title or manifest.name} has no sandbox; use auto or bubblewrap"
        )
    return sandbox


def _constant(name: str, args: Sequence[str]) -> tuple[str, ...]:
    if isinstance(args, str) or not all(isinstance(word, str) and word for word in args):
        raise ConfigurationError(f"{name}: args: {args!r:.60} is not a list of words")
    return tuple(args)


def _output(name: str, output: Output) -> Output:
    if isinstance(output, Mapping):
        try:
            check_schema(output)
        except ConfigurationError as error:
            raise ConfigurationError(f"{name}: output: {error}") from None
        return dict(output)
    if output not in ("text", "result"):
        raise ConfigurationError(
            f"{name}: output: {output!r:.60} is not text, result or a JSON Schema{nearest(str(output), ('text', 'result'))}"
        )
    return output


def _here(name: str, workspace: str | None) -> bool:
    if workspace not in (None, "here"):
        raise ConfigurationError(
            f"{name}: workspace: {workspace!r:.60} is not valid for a step; use 'here', or give the workspace to the "
            "loop or the run"
        )
    return workspace == "here"
