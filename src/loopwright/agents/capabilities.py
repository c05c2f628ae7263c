"""Capabilities: extensions of a phased agent that receive, and may change, its prompts, actions and results.

1. Every call of a hook is an effect of the journal, so a resumed run uses the recorded answer. A hook must
   not keep state in its object that the run depends on. State belongs into `context`, which is recorded
   with the answer and passed to later hooks, iterations and resumed runs.
2. A hook that fails adds a warning and changes nothing. It never ends the run.
3. Capabilities are called in their order, each with the result of the previous one.
4. Only hooks that a capability defines itself are called, because each call is an effect.
5. The prompt of a phase, its reply, and the calls of the agent's tools pass through the hooks.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ..engine.context import Context
from ..engine.functions import in_thread
from ..engine.step import PYTHON, FunctionStep, digest_of
from ..errors import ConfigurationError, StepError
from ..models import Message
from ..prompts.prompt import Prompt, filled_in
from ..prompts.tool_prompt import answered, tools_of
from ..records import codec
from ..records.codec import Json
from ..tools.base import Tool

__all__ = [
    "AgentState",
    "Capability",
    "Hooks",
    "Tools",
    "ask_with_hooks",
    "truth_of",
]

_FAILED = "capability_failed"  # the code of the warnings below


@dataclass(frozen=True, slots=True)
class AgentState:
    """The state of a phased agent for its capabilities.

    Args:
        name: The name of the agent.
        input: Its input.
        phase: The phase, empty before the first one.
        iteration: The number of the iteration in this run of its phase, 0 outside of an iteration.
        current_iteration: The number of iterations of all phases that began before this one.
        phase_iterations: The number of iterations by phase.
        memory: `{type, content}` of each result, oldest first.
    """

    name: str
    input: Json = None
    phase: str = ""
    iteration: int = 0
    current_iteration: int = 0
    phase_iterations: Mapping[str, int] = field(default_factory=dict)
    memory: Sequence[Json] = ()

    def to_json(self) -> dict[str, Json]:
        """Return it as a JSON object."""
        return {
            "name": self.name,
            "input": self.input,
            "phase": self.phase,
            "iteration": self.iteration,
            "current_iteration": self.current_iteration,
            "phase_iterations": dict(self.phase_iterations),
            "memory": list(self.memory),
        }


class Capability:
    """An extension of a phased agent. A subclass overrides the hooks that it needs.

    `agent` is a copy of the agent's state. `context` is the object that `init` returned. Changes that a hook
    makes in it are passed to later hooks, also in later iterations and resumed runs. A hook may be a plain
    function, which runs in a thread.

    Example:
        >>> class Polite(Capability):
        ...     async def process_prompt(self, agent, context, prompt):
        ...         return f"{prompt} Please."
        >>> from loopwright.agents import PhasedAgent
        >>> agent = PhasedAgent(execution=str.upper, capabilities=[Polite()])
    """

    name: str = ""
    description: str = ""

    async def init(self, agent: AgentState, context: dict[str, Json]) -> dict[str, Json]:
        """Return the context for all later hooks."""
        return context

    async def start_agent_loop(self, agent: AgentState, context: dict[str, Json]) -> bool:
        """Return whether the next iteration may begin; False ends the agent."""
        return True

    async def process_prompt(self, agent: AgentState, context: dict[str, Json], prompt: str) -> str:
        """Return the text that a prompt sends to its model."""
        return prompt

    async def process_response(
        self, agent: AgentState, context: dict[str, Json], response: Json
    ) -> Json:
        """Return the reply of the model: text, or data if the prompt has a schema."""
        return response

    async def process_action(
        self, agent: AgentState, context: dict[str, Json], action: dict[str, Json]
    ) -> dict[str, Json]:
        """Return the action: `{name, arguments}` of a tool, or of a phase that is not a prompt."""
        return action

    async def process_result(
        self,
        agent: AgentState,
        context: dict[str, Json],
        response: Json,
        action: dict[str, Json],
        result: Json,
    ) -> Json:
        """Return the result of an action."""
        return result

    async def process_new_memories(
        self,
        agent: AgentState,
        context: dict[str, Json],
        response: Json,
        result: Json,
        memories: list[Json],
    ) -> list[Json]:
        """Return the memories of an iteration."""
        return memories

    async def end_agent_loop(self, agent: AgentState, context: dict[str, Json]) -> None:
        """Called at the end of an iteration, also of a failed one."""

    async def should_terminate(
        self, agent: AgentState, context: dict[str, Json], response: Json
    ) -> bool:
        """Return whether the agent ends now, with its current result."""
        return False

    async def terminate(self, agent: AgentState, context: dict[str, Json]) -> dict[str, Json]:
        """Clean up when the agent ends, and return facts for its report."""
        return {}


HOOKS: Final = tuple(
    name for name, method in vars(Capability).items() if inspect.iscoroutinefunction(method)
)
_KINDS: Final[Mapping[str, tuple[type, str]]] = {
    "process_new_memories": (list, "a list"),
    "process_action": (dict, "an object"),
}
_TRUE, _FALSE = ("true", "yes", "y", "1"), ("false", "no", "n", "0", "", "null", "none")


def truth_of(value: Json) -> bool | None:
    """Return a yes or no in words as a bool ("NO" is False), and None for any other value."""
    if value is None or isinstance(value, bool):
        return bool(value)
    word = str(value).strip().strip(".!*\"'`").lower() if isinstance(value, str | int) else "?"
    return True if word in _TRUE else False if word in _FALSE else None


_TURN = "_turn"  # the key of a recorded context with the number of the call that changed it


class Hooks:
    """The capabilities of one agent during its run. Their hooks share `context`."""

    def __init__(self, capabilities: Sequence[object]) -> None:
        self.context: dict[str, Json] = {}
        self._turn = 0  # the number of the call that changed the context last
        self._lock = (
            asyncio.Lock()
        )  # tools run concurrently, and no change of the context may be lost
        self._named: list[tuple[str, object]] = []
        for number, capability in enumerate(capabilities, start=1):
            name = str(getattr(capability, "name", "") or type(capability).__name__)
            # The name is part of journal paths, where a slash separates segments.
            name = name.replace("/", "-")
            taken = any(name == other for other, _ in self._named)
            self._named.append((f"{name}-{number}" if taken else name, capability))

    def __bool__(self) -> bool:
        return bool(self._named)

    def of(self, hook: str) -> list[tuple[str, FunctionStep]]:
        """Return the steps that call one hook, with the names of their capabilities."""
        # Their own method, not the one without effect of the base class.
        base = getattr(Capability, hook)
        return [
            (name, _leaf(name, one, hook))
            for name, one in self._named
            if getattr(type(one), hook, base) not in (None, base)
        ]

    async def begin(self, ctx: Context, state: AgentState) -> None:
        """Call `init` of each capability. The last result is the context."""
        for name, leaf in self.of("init"):
            context = await self._call(ctx, leaf, state)
            if isinstance(context, dict):
                self._store(context, self._turn + 1)
            elif context is not None:
                ctx.warn(
                    f"{name}.init returned {context!r:.80}, which is not an object", code=_FAILED
                )

    async def change(
        self, ctx: Context, hook: str, state: AgentState, value: Json, *, of: Sequence[Json] = ()
    ) -> Json:
        """Return a value after the changes of the capabilities. `of` are the arguments before it."""
        kind, kind_name = _KINDS.get(hook, (object, ""))
        for name, leaf in self.of(hook):
            answer = await self._call(ctx, leaf, state, [*of, value], default=value)
            # A wrong type would fail later, in code that is not the capability's.
            if isinstance(answer, kind):
                value = answer
            else:
                ctx.warn(
                    f"{name}.{hook} returned {answer!r:.80}, which is not {kind_name}", code=_FAILED
                )
        return value

    async def ask(
        self, ctx: Context, hook: str, state: AgentState, *args: Json, usual: bool
    ) -> str:
        """Return the name of the first capability whose answer differs from the usual one, or ""."""
        for name, leaf in self.of(hook):
            answer = await self._call(ctx, leaf, state, args, default=usual)
            truth = usual if answer is None else truth_of(answer)
            if truth is None:
                ctx.warn(
                    f"{name}.{hook} returned {answer!r:.80}, which is neither yes nor no",
                    code=_FAILED,
                )
            elif truth is not usual:
                return name
        return ""

    async def notify(self, ctx: Context, hook: str, state: AgentState) -> dict[str, Json]:
        """Call a hook of every capability, and return the answers by name."""
        answers = {name: await self._call(ctx, leaf, state) for name, leaf in self.of(hook)}
        # Most hooks return nothing, which would only fill the report.
        return {name: answer for name, answer in answers.items() if answer}

    async def _call(
        self,
        ctx: Context,
        leaf: FunctionStep,
        state: AgentState,
        args: Sequence[Json] = (),
        *,
        default: Json = None,
    ) -> Json:
        """Return the answer of one hook, or the default if it fails."""
        value = {"agent": state.to_json(), "args": list(args)}
        # A replay does not compare the context, because hooks of concurrent tools change it in any order.
        token = codec.digest(codec.normalise(value)) if ctx.run.keeps else ""
        async with self._lock:
            try:
                reply = await ctx.call(leaf.name, leaf, {**value, "context": self.context}, token)
            except StepError as error:
                name, _, hook = leaf.name.rpartition(".")
                ctx.warn(f"the capability {name} failed in {hook}: {error}", code=_FAILED)
                return default
            if "context" in reply:
                self._store(reply["context"], reply["context"].get(_TURN, self._turn + 1))
        return reply["answer"]

    def _store(self, context: dict[str, Json], turn: int) -> None:
        """Set the context after a hook, unless a later call has changed it."""
        if turn > self._turn:
            self._turn = turn
            self.context = {**context, _TURN: turn}

    def restore(self, context: Json) -> None:
        """Set the context at the end of a recorded iteration."""
        if isinstance(context, dict):
            self._store(context, context.get(_TURN, 0))


def _leaf(name: str, capability: object, hook: str) -> FunctionStep:
    method = getattr(capability, hook)

    async def call(value: Json) -> Json:
        state = AgentState(**value["agent"])
        # A copy, so that a hook that fails after a change has changed nothing (rule 2).
        before = value["context"]
        turn = before.get(_TURN, 0)
        context = {key: item for key, item in codec.copied(before).items() if key != _TURN}
        args = (state, context, *value["args"])
        # A plain function could block the event loop, so it runs in a thread.
        if inspect.iscoroutinefunction(inspect.unwrap(method)):
            answer = await method(*args)
        else:
            answer = await in_thread(method, *args)
            answer = await answer if inspect.isawaitable(answer) else answer
        reply = {"answer": answer}
        if {**context, _TURN: turn} != {_TURN: turn, **before}:
            reply["context"] = {**context, _TURN: turn + 1}
        return reply

    code = getattr(inspect.unwrap(method), "__code__", None)
    # The bytecode, so that a changed hook is not replayed with old answers.
    text = code.co_code.hex() if code is not None else ""
    fingerprint = digest_of("capability 2", type(capability).__qualname__, hook, text)
    return _HookStep(call, name=f"{name}.{hook}", fingerprint=fingerprint)


class _HookStep(FunctionStep):
    """A hook of a capability. Its output is the answer of the hook and the changed context."""

    def __init__(self, function: Callable[..., object], *, name: str, fingerprint: str) -> None:
        super().__init__(function, name=name, fingerprint=fingerprint)
        self.stub = PYTHON

    def stubbed(self, output: Json) -> Json:
        """Return the output of a stub as the answer of the hook."""
        return {"answer": output}


def checked(capabilities: Capability | Iterable[object]) -> tuple[object, ...]:
    """Return capabilities as a tuple.

    Raises:
        ConfigurationError: For an object without any of the hooks.
    """
    if isinstance(capabilities, Capability):
        return (capabilities,)
    checked = tuple(capabilities)
    for one in checked:
        # A class instead of an object is a frequent mistake.
        if isinstance(one, type) or not any(callable(getattr(one, hook, None)) for hook in HOOKS):
            raise ConfigurationError(
                f"phased agent: capabilities: {one!r} is not a capability. "
                f"Use an object with one of the methods {', '.join(HOOKS)}."
            )
    return checked


def fingerprint_of(capabilities: Sequence[object]) -> str:
    """Return a digest that changes when a hook changes."""
    hooks = Hooks(capabilities)
    leaves = [leaf.fingerprint for hook in HOOKS for _, leaf in hooks.of(hook)]
    return digest_of("capabilities", codec.canonical(leaves)) if leaves else ""


@dataclass(frozen=True)
class Tools:
    """The tools of an agent, and the maximum of replies with tool calls in one iteration."""

    tools: tuple[object, ...] = ()
    max_rounds: int = 8

    @property
    def named(self) -> list[str]:
        """The tools by their fingerprints."""
        return [
            str(getattr(one, "fingerprint", getattr(one, "__qualname__", one)))
            for one in self.tools
        ]


async def ask_with_hooks(
    prompt: Prompt, value: Json, ctx: Context, *, tools: Tools, hooks: Hooks, state: AgentState
) -> Json:
    """Return the reply of a model to a prompt, after the hooks.

    Raises:
        ModelError: If no model and no attempt is left.
    """
    text = await hooks.change(ctx, "process_prompt", state, filled_in(prompt.text, value, ctx))
    system = filled_in(prompt.system, value, ctx)
    messages = [*([Message("system", system)] if system else []), Message("user", str(text))]
    # The path of a step that is not a prompt, so that both kinds have the same journal paths.
    inner = ctx.child(ctx.below("work"))
    offered: list[object] = [*getattr(prompt, "tools", ()), *tools.tools]
    if offered:
        kit = tools if tools.tools else prompt
        max_rounds = getattr(kit, "max_rounds", tools.max_rounds)
        if hooks:
            # Only with capabilities: without them the paths and requests of recorded runs stay the same.
            offered = [_HookedTools(tuple(offered), hooks, state)]
        reply, _ = await answered(prompt.model_settings, messages, offered, max_rounds, inner)
    else:
        reply = await prompt.model_settings.ask(messages, inner)
    for warning in reply.warnings:
        ctx.run.warn(warning)
    return await hooks.change(ctx, "process_response", state, prompt.read(reply))


@dataclass(frozen=True)
class _HookedTools:
    """Tools whose calls pass through the capabilities."""

    given: tuple[object, ...]
    hooks: Hooks
    state: AgentState
    name: str = field(default="watched", init=False)
    fingerprint: str = field(default="", init=False)  # each tool has its own fingerprint

    async def tools(self, ctx: Context) -> Sequence[Tool]:
        tools = await tools_of(ctx, self.given)
        return [_HookedTool(tool, self.hooks, self.state) for tool in tools.values()]


class _HookedTool(Tool):
    """A tool whose arguments and output the capabilities can change."""

    def __init__(self, inner: Tool, hooks: Hooks, state: AgentState) -> None:
        super().__init__(
            inner.name, description=inner.description, schema=inner.schema,
            idempotent=inner.idempotent, approve=inner.approve, timeout=inner.timeout,
            limit=inner.limit,
        )  # fmt: skip
        self.inner, self.hooks, self.state = inner, hooks, state

    def meaning(self) -> str:
        return self.inner.meaning()

    def problem_with(self, arguments: Json) -> str:
        return self.inner.problem_with(arguments)

    async def invoke(self, arguments: dict[str, Json], ctx: Context) -> Json:
        action: Json = {"name": self.name, "arguments": arguments}
        action = await self.hooks.change(ctx, "process_action", self.state, action)
        changed = action.get("arguments", arguments)
        # The arguments of the model were checked before; a capability may have made them invalid.
        if problem := self.inner.problem_with(changed):
            raise ValueError(f"a capability changed the arguments: {problem}")
        output = await self.inner.invoke(changed, ctx)
        return await self.hooks.change(ctx, "process_result", self.state, output, of=["", action])
