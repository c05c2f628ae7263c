"""A model that answers from a script, for tests, dry runs and documentation.

Rules:

1. The first rule that matches a call answers it with its replies in order; the last reply repeats.
2. Each run has its own position in the script, so runs at the same time do not disturb each other.
3. A scripted reply is processed like a real one: text for a schema is parsed and checked, a truncated
   reply is an error, and a script can raise every kind of model error.
4. After a resume the script continues where the journal ends: each reply carries the number of its
   rule in `parts`, so that recorded attempts can be counted by rule.
"""

from __future__ import annotations

import asyncio
import fnmatch
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..engine.run_state import NO_EXIT, NO_STUB, Stub
from ..errors import ModelError, StepError, StepTimeout
from ..journal import Entry, MemoryJournal
from ..records import Usage, codec
from ..records.codec import Json
from .protocol import Finish, Reply, Request, ToolCall, received
from .scripted_rules import ERRORS, Rule, ScriptedReply, read_rules

__all__ = ["ScriptedEffects", "ScriptedModel", "dry_run_resources"]

LIBRARY = "scripted"  # in recorded replies; see rule 4
_REFUSED = ("refused", "content_filter")
_MARK = re.compile(r"The mark is ([0-9a-f]{16})\.")  # in the question of a judge
_FAULT = re.compile(r"(.*/|)fault-([0-9]+)(?:-[0-9]+)?", re.DOTALL)


class ScriptedModel:
    """A model that answers from rules; the first rule that matches a call answers it.

    Args:
        rules: YAML text, JSON text or a list of `{step: glob over the path, prompt: regular expression
            over the prompt, replies: […]}`. A reply is text or an object: `{text:, finish: length,
            usage: {…}}`, `{json: {…}}`, `{tool_calls: [{name:, arguments: {…}}]}` or `{error: a kind,
            retry_after: seconds, message:}`. `after:` delays a reply by that many seconds, default 0.
            Without `usage`, four characters count as one token. In the reply of a judge, `{{ mark }}` is the
            mark of the question, which a real judge copies.
        file: the name of the rules in error messages; default "replies".

    Raises:
        DocumentError: with every problem of the rules and its place.

    Example:

    >>> import asyncio
    >>> from loopwright.models import Message, Request
    >>> model = ScriptedModel([{"replies": ["first", "last"]}])
    >>> ask = Request((Message("user", "hello"),), model="any", provider="openai")
    >>> [asyncio.run(model.complete(ask)).text for _ in range(3)]
    ['first', 'last', 'last']
    """

    def __init__(self, rules: str | Sequence[Any], *, file: str = "replies") -> None:
        self.rules = read_rules(rules, file)
        self.file = file
        self._used: dict[str, Counter[int]] = {}

    def __repr__(self) -> str:
        return f"ScriptedModel({len(self.rules)} rules)"

    async def complete(
        self, request: Request, *, on_text: Callable[[str], None] | None = None
    ) -> Reply:
        """Answer one request from the script; see Model.complete."""
        number = self._match(request.path, request.prompt)
        scripted = self._take(number, request.run_id)
        parts = {"library": LIBRARY, "version": 1, "rule": number}
        if scripted.after:
            await _stall(scripted.after, request, parts)
        if scripted.error:
            raise _failure(scripted, request, parts)
        if on_text is not None and scripted.text:
            on_text(scripted.text)
        return _reply(scripted, request, parts)

    def skip(self, calls: Iterable[tuple[str, str]], *, run_id: str = "") -> None:
        """Advance the script as if these calls, pairs of path and prompt, had been made.

        Raises:
            ModelError: if no rule matches a call.
        """
        for path, prompt in calls:
            self._take(self._match(path, prompt), run_id)

    def continued(self, run_id: str, entries: Iterable[Entry]) -> None:
        """Advance the script to the end of a run's journal: finished attempts are counted by rule.

        An attempt that was in flight when the process died is not counted, so the repeated attempt
        gets the same reply.
        """
        used: Counter[int] = Counter()
        failed: dict[str, int] = {}
        for entry in entries:
            if entry.kind != "finished":
                continue
            number = _rule_of(entry.value)
            failure = _FAULT.fullmatch(entry.path)
            if failure is not None and number is not None:
                failed[f"{failure[1]}attempt-{failure[2]}"] = number
                continue
            # A failed attempt has no reply; the rule is in the facts beside it.
            if entry.error is not None:
                number = failed.pop(entry.path, None)
            if number is not None:
                used[number] += 1
        self._used[run_id] = used

    def _match(self, path: str, prompt: str) -> int:
        for number, rule in enumerate(self.rules):
            try:
                if rule.replies and _is_at(rule, path) and _asks(rule, prompt):
                    return number
            # A search that timed out is neither a match nor the absence of one.
            except StepError as error:
                detail = f"{path}: rule {number + 1} of the replies: {error}"
                raise ModelError(detail, kind="permanent", reason="no_reply") from None
        shown = prompt if len(prompt) <= 80 else prompt[:80] + "…"
        raise ModelError(
            f"no rule of the replies matches the call {path!r} whose prompt begins {shown!r}; "
            "add a rule for it, or a last one without step and prompt",
            kind="permanent",
            path=path,
            reason="no_reply",
        )

    def _take(self, number: int, run_id: str) -> ScriptedReply:
        used = self._used.setdefault(run_id, Counter())
        rule = self.rules[number]
        reply = rule.replies[min(used[number], len(rule.replies) - 1)]
        used[number] += 1
        return reply


def _is_at(rule: Rule, path: str) -> bool:
    """Whether the glob of a rule matches a path."""
    return not rule.step or fnmatch.fnmatchcase(path, rule.step)


def _asks(rule: Rule, prompt: str) -> bool:
    """Whether the pattern of a rule matches a prompt."""
    return rule.prompt is None or rule.prompt.search(prompt) is not None


def _rule_of(value: Json) -> int | None:
    parts = value.get("parts") if isinstance(value, dict) else None
    if not isinstance(parts, dict) or parts.get("library") != LIBRARY:
        return None
    number = parts.get("rule")
    return number if isinstance(number, int) else None


async def _stall(seconds: float, request: Request, parts: Json) -> None:
    timers = request.timeouts
    # A script has no first byte, so the earlier of the two timers ends the wait, as for a silent server.
    limit = min(timers.first_byte, timers.whole)
    await asyncio.sleep(min(seconds, limit))
    if seconds >= limit:
        raise ModelError(
            f"{request.provider}/{request.model} did not begin within {limit:g} s",
            kind="unknown_outcome",
            path=request.path,
            reason="first_byte_timeout",
            parts=parts,
        )


def _failure(scripted: ScriptedReply, request: Request, parts: Json) -> ModelError:
    kind, reason = ERRORS[scripted.error]
    what = f"{request.provider}/{request.model}"
    failure = ModelError(
        f"{what}: {scripted.message or 'scripted ' + scripted.error}",
        kind=kind,
        path=request.path,
        reason=scripted.reason or reason,
        retry_after=scripted.retry_after,
        partial=scripted.text,
        problem="The reply does not have the requested format." if kind == "malformed" else "",
        parts=parts,
    )
    if failure.reason == "stream_incomplete":
        failure.billed = "maybe"
    if (
        failure.billed == "yes"
        or failure.reason == "stream_incomplete"
        or scripted.usage is not None
    ):
        failure.usage = _usage(scripted, request)
    return failure


def _usage(scripted: ScriptedReply, request: Request) -> Usage:
    if scripted.usage is not None:
        return scripted.usage
    written = scripted.text + "".join(codec.encode(call.arguments) for call in scripted.tool_calls)
    # Four characters per token, rounded up, so that no reply is free.
    return Usage(1, -(-len(request.prompt) // 4), -(-len(written) // 4))


def _reply(scripted: ScriptedReply, request: Request, parts: Json) -> Reply:
    """Return a scripted reply, processed like the reply of a real model."""
    usage = _usage(scripted, request)
    what = f"{request.provider}/{request.model}"
    if scripted.finish in _REFUSED:
        raise ModelError(
            f"{what} refused to answer", kind="refused", path=request.path, usage=usage,
            reason="content_filter", partial=scripted.text, parts=parts,
        )  # fmt: skip
    text, mark = scripted.text, _MARK.search(request.prompt)
    if mark is not None:
        text = text.replace("{{ mark }}", mark[1])
    cut = scripted.finish == "length"
    finish: Finish = "length" if cut else "tool_calls" if scripted.tool_calls else "stop"
    reply = Reply(
        text=text,
        data=None if scripted.text.strip() else scripted.data,
        usage=usage,
        finish=finish,
        model=request.model,
        provider=request.provider,
        # A call without an ID is numbered.
        tool_calls=tuple(
            ToolCall(call.id or f"call-{number}", call.name, call.arguments)
            for number, call in enumerate(scripted.tool_calls, start=1)
        ),
        parts=parts,
    )
    try:
        return received(reply, request)
    except ModelError as failure:
        failure.parts = parts
        raise


class ScriptedEffects:
    """The stubs of a dry run from the rules of a file of replies; see `engine.stubs.Stubs`.

    A rule `{step: GLOB, output: …}`, `{step: GLOB, exit: N}` or `{step: GLOB, error: WORD}` stands for
    Python functions, commands, tools and questions to people at the paths that its glob matches. The first
    rule that matches counts.

    Args:
        rules: the rules, of which those with `replies` are ignored.
        file: the name of the rules in messages; default "replies".
    """

    def __init__(self, rules: Sequence[Rule], *, file: str = "replies") -> None:
        self.rules = tuple(rule for rule in rules if not rule.replies)
        self.file = file

    def of(self, path: str, what: str) -> Stub:
        """Return the stub of the first rule that matches.

        Raises:
            StepError: `no_stub` without a rule, else of the kind that the rule names.
        """
        rule = next((rule for rule in self.rules if _is_at(rule, path)), None)
        if rule is None:
            raise StepError(
                f"the dry run has no stub for the {what} {path!r}; add a rule to {self.file}, such as "
                f"{{step: {path!r}, output: …}}",
                path=path,
                kind=NO_STUB,
                retryable=False,
            )
        if rule.error:
            kind = StepTimeout if rule.error == "timeout" else StepError
            raise kind(f"{path}: stub of the error {rule.error}", path=path, kind=rule.error)
        return Stub(rule.output, rule.exit)

    def output(self, path: str, what: str) -> Json:
        """Return the output of the first rule that matches.

        Raises:
            StepError: as `of`, and `bad_stub` for a rule with an exit code.
        """
        stub = self.of(path, what)
        if stub.exit is not None:
            raise StepError(f"{path}: {NO_EXIT}", path=path, kind="bad_stub", retryable=False)
        return stub.output


def dry_run_resources(model: ScriptedModel) -> dict[str, object]:
    """Return the resources that make a run a dry run, from the rules of its scripted model."""
    stubs = ScriptedEffects(model.rules, file=model.file)
    return {"stubs": stubs, "memory": MemoryJournal().memory}
