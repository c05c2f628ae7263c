"""One conversation for all iterations of a loop, within limits.

Rules:

1. An exchange is a question and its reply. The oldest exchanges are left out first, always both messages.
2. A failed iteration adds no exchange.
3. With a summary, the model summarises the exchanges that are left out, once, in a recorded call at
   `summary` below the prompt. The summary is placed at the beginning of the first message, because some
   models require that user and assistant alternate.
4. After a resume, the conversation is read from the journal: the questions, the replies, the summaries.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..engine.context import Context, Scope
from ..engine.run_record import OnText
from ..engine.step import FunctionStep
from ..errors import ConfigurationError
from ..models import Message, Reply
from ..records import codec
from ..records.codec import Json
from .settings import PromptSettings

__all__ = ["CarriedConversation", "Conversation", "continued"]

SUMMARY_TOKENS = 1_024  # the limit of one summary
_CHARACTERS_PER_TOKEN = 4  # the usual estimate for English; no tokeniser fits all models
# The texts of summaries are part of recorded requests. A new wording would repeat the calls.
_INSTRUCTION = (
    "Summarise this conversation, so that it can continue without these messages. Keep decisions, facts, "
    "numbers and open questions. Reply with the summary only."
)
_BEFORE = "Summary of the earlier conversation:"
_SUMMARY = "summary"
_ATTEMPT = re.compile(r"/attempt-[0-9]+(?=/|$)")  # a part of the path of a step that is retried
_Exchange = tuple[Message, Message]


@dataclass(frozen=True, slots=True)
class Conversation:
    """Limits on the earlier messages that a prompt in a loop sends again.

    The limits apply to the messages of earlier iterations, without the system message, the question of
    this iteration and the summary.

    Args:
        max_messages: The maximum number of messages, 2 or more. Default: no limit.
        max_tokens: The maximum number of tokens, where 4 characters count as one. Default: no limit.
        summary: Whether a model call summarises the messages that are left out, in at most 1,024 tokens.
            It needs a limit. Default: False.

    Raises:
        ConfigurationError: For a number that is too small, or a summary without a limit.

    Example:
        >>> from loopwright.prompts import prompt
        >>> step = prompt("Go on.", conversation=Conversation(max_messages=10, summary=True))
        >>> step.conversation.max_messages
        10
    """

    max_messages: int | None = None
    max_tokens: int | None = None
    summary: bool = False

    def __post_init__(self) -> None:
        if self.max_messages is not None:
            # An exchange has two messages and is never split, so a limit of 1 would send none.
            codec.integer("conversation: max_messages", self.max_messages, minimum=2)
        if self.max_tokens is not None:
            codec.integer("conversation: max_tokens", self.max_tokens, minimum=1)
        # Without a limit nothing is left out, so the summary would never be made.
        if self.summary and not self.bounded:
            raise ConfigurationError(
                "conversation: summary needs a limit. Add max_messages or max_tokens."
            )

    @property
    def bounded(self) -> bool:
        """Whether there is a limit."""
        return self.max_messages is not None or self.max_tokens is not None

    def to_json(self) -> Json:
        """Return the limits as JSON."""
        limits = {"max_messages": self.max_messages, "max_tokens": self.max_tokens}
        return {**limits, "summary": self.summary}

    def kept(self, exchanges: Sequence[_Exchange]) -> int:
        """Return the number of the latest exchanges that are within the limits."""
        number = tokens = 0
        for exchange in reversed(exchanges):
            # Rounded up for each message, so that many short messages are not free.
            tokens += sum(-(-len(one.content) // _CHARACTERS_PER_TOKEN) for one in exchange)
            over = self.max_tokens is not None and tokens > self.max_tokens
            if over or (self.max_messages is not None and 2 * (number + 1) > self.max_messages):
                break
            number += 1
        return number


@dataclass(frozen=True, slots=True)
class CarriedConversation:
    """The earlier exchanges of a prompt, and the summary of the first `covered` ones."""

    exchanges: tuple[_Exchange, ...] = ()
    summary: str = ""
    covered: int = 0

    def left_out(self, limits: Conversation) -> tuple[_Exchange, ...]:
        """Return the exchanges that are beyond the limits and in no summary."""
        return self.exchanges[self.covered : len(self.exchanges) - limits.kept(self.exchanges)]

    def request(self, left_out: Sequence[_Exchange]) -> Message:
        """Return the message that asks for a summary."""
        parts = [f"{_BEFORE}\n{self.summary}"] if self.summary else []
        for question, answer in left_out:
            parts += [f"User:\n{question.content}", f"Assistant:\n{answer.content}"]
        return Message("user", "\n\n".join([_INSTRUCTION, *parts]))

    def summarised(self, summary: str, limits: Conversation) -> CarriedConversation:
        """Return the same conversation with a summary of all that is beyond the limits."""
        covered = len(self.exchanges) - limits.kept(self.exchanges)
        return replace(self, summary=summary, covered=covered)

    def messages(self, question: Message, limits: Conversation) -> list[Message]:
        """Return the messages to send: those within the limits, and the question."""
        first = len(self.exchanges) - limits.kept(self.exchanges)
        sent = [*(message for pair in self.exchanges[first:] for message in pair), question]
        if self.summary:
            content = f"{_BEFORE}\n{self.summary}\n\n{sent[0].content}"
            sent[0] = replace(sent[0], content=content)
        return sent

    def answered(self, question: Message, reply: Reply) -> CarriedConversation:
        """Return the conversation after another exchange."""
        return replace(self, exchanges=(*self.exchanges, (question, reply.message())))


async def continued(
    settings: PromptSettings,
    messages: Sequence[Message],
    limits: Conversation,
    ctx: Context,
    *,
    on_text: OnText | None = None,
    contents: Mapping[str, bytes] | None = None,
) -> Reply:
    """Send a question in the conversation of the earlier iterations, and return the reply.

    `messages` are the system message, if there is one, and the question.
    """
    *head, question = messages
    conversation = _earlier(ctx, limits)
    # Recorded, because a resumed run reads the conversation from the journal (rule 4).
    await ctx.call("said", _RECORD_QUESTION, question.content)
    if limits.summary and (left_out := conversation.left_out(limits)):
        summary_settings = replace(
            settings, schema=None, max_tokens=None, cap=SUMMARY_TOKENS, on_cutoff="accept"
        )
        inner = ctx.child(ctx.below(_SUMMARY))
        summary = await summary_settings.ask([conversation.request(left_out)], inner)
        conversation = conversation.summarised(summary.text, limits)
        _store(ctx, conversation)  # a retry of this step sends the same summary
    reply = await settings.ask(
        [*head, *conversation.messages(question, limits)], ctx, on_text=on_text, contents=contents
    )
    # Files are sent with their own question only, because the record of a question is its text.
    _store(ctx, conversation.answered(replace(question, files=()), reply))
    return reply


def _earlier(ctx: Context, limits: Conversation) -> CarriedConversation:
    """Return the conversation of the previous iterations, from the scope or the journal."""
    scope = _loop_scope(ctx)
    # The first iteration has no earlier exchange, also if the loop runs again inside an outer loop.
    if scope is None or scope.number <= 1:
        return CarriedConversation()
    part = _part(ctx, scope)
    if scope.talks is not None and part in scope.talks:
        conversation: CarriedConversation = scope.talks[part]
        return conversation
    return _recorded(ctx, scope, part, limits)


def _store(ctx: Context, conversation: CarriedConversation) -> None:
    """Store the conversation for the next iteration."""
    scope = _loop_scope(ctx)
    if scope is not None:
        scope.talks = {**(scope.talks or {}), _part(ctx, scope): conversation}


def _loop_scope(ctx: Context) -> Scope | None:
    """Return the scope of the nearest loop; a workflow inside its body has no iterations."""
    scope = ctx.scope
    # Items of a list are independent, so a list does not carry a conversation.
    while scope is not None and (not scope.number or scope.total):
        scope = scope.parent
    return scope


def _part(ctx: Context, scope: Scope) -> str:
    """Return the position of a prompt inside an iteration, which is the same for each retry."""
    return _ATTEMPT.sub("", ctx.path.removeprefix(f"{scope.path}/{scope.number}"))


def _recorded(ctx: Context, scope: Scope, part: str, limits: Conversation) -> CarriedConversation:
    """Return the conversation of the previous iterations from the journal."""
    replay = ctx.run.replay
    if replay is None:
        return CarriedConversation()
    questions: dict[int, Json] = {}
    exchanges: dict[int, _Exchange] = {}
    summaries: dict[int, str] = {}
    begin = f"{scope.path}/"
    for path, entry in replay.finished.items():
        place, _, last = path.rpartition("/")
        digits, slash, rest = place.removeprefix(begin).partition("/")
        # Rule 2: an iteration without a reply leaves no exchange.
        if entry.error is not None or not place.startswith(begin) or not digits.isdecimal():
            continue
        number, inner = int(digits), _ATTEMPT.sub("", slash + rest)
        if number >= scope.number or inner not in (part, f"{part}/{_SUMMARY}"):
            continue
        # The path of the summary below the prompt.
        if inner != part:
            if last.startswith("attempt-"):
                summaries[number] = Reply.from_json(entry.value).text
        elif last == "said":
            questions[number] = entry.value
        elif last.startswith("attempt-") and number in questions:
            reply = Reply.from_json(entry.value).message()
            exchanges[number] = (Message("user", questions[number]), reply)
    return _folded(exchanges, summaries, limits)


def _folded(
    exchanges: dict[int, _Exchange], summaries: dict[int, str], limits: Conversation
) -> CarriedConversation:
    """Return the conversation with the exchanges and summaries of iterations."""
    conversation = CarriedConversation(tuple(exchanges[number] for number in sorted(exchanges)))
    if not summaries:
        return conversation
    latest = max(summaries)
    before = tuple(exchanges[number] for number in sorted(exchanges) if number < latest)
    # The same calculation as during the run, because the number itself is not recorded.
    covered = len(before) - limits.kept(before)
    return replace(conversation, summary=summaries[latest], covered=covered)


async def _echo(value: Json) -> Json:
    return value


_RECORD_QUESTION = FunctionStep(_echo, name="said", fingerprint="note.said/1")
