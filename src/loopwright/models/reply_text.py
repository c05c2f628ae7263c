"""The text of a model's reply: its own words, also while they arrive, and strict JSON in it.

Own words are a reply without thinking and without marks of a chat template:

1. The result depends on the text alone, not on the pieces in which it arrived.
2. Only a block that opens the reply is thinking. In a reply without an opening tag, so is the text before a
   closing tag that stands alone on its line: a template wrote the opening one. A reply that opens with
   thinking and never closes it has no own words. All other tags are content.
3. `<analysis>` and similar words are headings in a text. Only a reader of a value skips such a block, where
   it opens the reply and text follows it.
4. Every scan is linear in the text.

Listeners receive own words while the reply arrives:

1. A tag that may still continue is held back until it is complete.
2. Blocks that open the reply are never sent, nor is the white space around them. If a block never ends,
   `own_words` decides at the end whether it contains the answer.
3. A closing tag without an opening tag is sent, as the text before it has been sent already.
4. The mark that ends a turn, and the text after it, are not sent.

`read_json` reads strict JSON, for every caller that expects one value and no other text:

1. One code fence around the reply is removed, and nothing else is repaired; `reply_values` reads tolerantly.
2. Any text gives a value or a problem with a sentence, never an exception. The time is linear.
3. A value can be stored: no NUL, no lone surrogate, finite numbers, each key once, limited size and depth.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import regex

from ..records.codec import Json
from ..records.display import IGNORABLE

__all__ = [
    "CLOSING",
    "DECODER",
    "END",
    "JSON_BYTES",
    "JSON_DEPTH",
    "OPENING",
    "ROLES",
    "THINKING",
    "JsonProblem",
    "JsonReading",
    "SpokenText",
    "Words",
    "clean_text",
    "cleaned",
    "closes_fence",
    "is_blank",
    "lines_with_quotes",
    "normalise_characters",
    "normalise_reply",
    "opening_fence",
    "own_words",
    "read_json",
    "strip_emphasis",
    "strip_fence",
    "words_of",
]

_INK = re.compile(rf"[^\s\x00-\x1f\x7f\u2800{IGNORABLE}]")
THINKING = "thinking left out"  # the repair of a reply with the thinking of a model
# The tags of templates, as patterns for tags in any case.
OPENING = r"<(?:think|thinking|thought)(?:[ \t][^<>\n]{0,80})?>|[\u25c1\u25c3]think[\u25b7\u25b9]|\[THINK\]"
CLOSING = r"</[ \t]?(?:think|thinking|thought)[ \t]?>|[\u25c1\u25c3]/think[\u25b7\u25b9]|\[/THINK\]"
_OPENING = re.compile(OPENING, re.IGNORECASE)
# A tag between backticks is a quotation.
_TAG = re.compile(rf"(?<!`)(?:({OPENING})|{CLOSING})(?!`)", re.IGNORECASE)
_LONE_TAG = re.compile(
    r"[ \t]*(?:</[ \t]?think[ \t]?>|[\u25c1\u25c3]/think[\u25b7\u25b9]|\[/THINK\])\s*",
    re.IGNORECASE,
)
# The words that models also use as headings of an answer (rule 3).
_NAMED = re.compile(
    r"<(reasoning|reflection|analysis|scratchpad)(?:[ \t][^<>\n]{0,80})?>", re.IGNORECASE
)
# The channels of the Harmony format (gpt-oss), which open a reply: only `final` is the answer.
_FINAL = re.compile(r"<\|channel\|>[ \t]*final[^<\n]{0,40}<\|message\|>")
_CHANNEL = re.compile(r"<\|channel\|>[ \t]*(?:analysis|commentary)\b")
ROLES = "assistant|model|ai|bot"
# Headers of ChatML, Llama, Gemma, Mistral and DeepSeek templates, which servers without the right template
# leave in the reply.
_HEADER = re.compile(
    rf"\s*(?:<\|im_start\|>[ \t]*(?:{ROLES})?\b|<\|start_header_id\|>[ \t]*(?:{ROLES})[ \t]*<\|end_header_id\|>"
    rf"|<start_of_turn>[ \t]*(?:{ROLES})\b|<\|start\|>[ \t]*(?:{ROLES})\b|<\|(?:{ROLES})\|>|\[/INST\]|<s>(?!.*</s>)"
    rf"|<\|begin_of_text\|>|<bos>|<\uff5cAssistant\uff5c>"
    rf"|\#{{2,3}}[ \t]*(?:Response|Assistant|Answer):?[ \t]*(?=\n)|(?-i:[Aa]ssistant|model):?[ \t]*(?=\n|$))",
    re.IGNORECASE,
)
_PARTS = 8  # headers and blocks in a row that are removed; more do not occur and would cost time
_PASSES = 4  # enough for marks that a cut moved to the beginning, and a bound for hostile text
END = re.compile(
    r"<\|(?:channel|im_end|im_start|eot_id|eom_id|end_of_text|endoftext|end|return|call|user|system|start)\|>"
    r"|<\|start_header_id\|>|<(?:end|start)_of_turn>|</s>|<eos>|<EOS>|<\uff5cend\u2581of\u2581sentence\uff5c>|<\uff5cUser\uff5c>"
    r"|\[/?INST\]|<</?SYS>>"
)
_TURN = re.compile(
    r"^(?:\#{2,3}[ \t]*(?:User|Human|Instruction|Question)[ \t]*:?[ \t]*$|(?:User|Human):)",
    re.MULTILINE,
)
_SPEAKER = re.compile(r"[*_\s]*[A-Z][\w .'-]{0,30}[*_]{0,2}:(?:\s|$)")
# A model may write one character as two escaped halves, "\ud83d\ude00".
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_LONE = re.compile("[\ud800-\udfff]")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")


@dataclass(frozen=True, slots=True)
class Words:
    """The parts of a reply: own words, thinking, and whether the thinking never ended."""

    text: str
    thinking: str = ""
    unclosed: bool = False
    repairs: tuple[str, ...] = ()


def own_words(text: str, *, value: bool = False) -> str:
    """Return the answer of a model without thinking, turn headers and the text of later turns.

    Args:
        text: the complete reply.
        value: whether a value is read in it, such as a score, so that a block `<analysis>` or similar before
            the answer is thinking too. Default False.

    Returns:
        The answer; "" if the reply consists of thinking only.

    Example:

    >>> own_words("<think>four?</think>\\n\\n4<|im_end|>")
    '4'
    """
    return words_of(text, value=value).text


def clean_text(text: str) -> str:
    """Return the text without NUL and with U+FFFD for lone surrogates.

    Two surrogates that form a pair become their character. The result can always be encoded as UTF-8
    and stored in a database.
    """
    text = text.replace("\0", "")
    if _LONE.search(text) is None:
        return text
    text = _PAIR.sub(
        lambda pair: pair[0].encode("utf-16-le", "surrogatepass").decode("utf-16-le"), text
    )
    return _LONE.sub("\ufffd", text)


def opening_fence(line: str) -> str:
    """Return the marks of the code fence that a line opens, or ""."""
    fence = _FENCE.match(line)
    if fence is None or (fence[1][0] == "`" and "`" in line[fence.end() :]):
        return ""
    return fence[1]


def closes_fence(line: str, fence: str) -> bool:
    """Whether a line closes the code fence that these marks opened."""
    run = line.strip()
    return len(run) >= len(fence) and not run.strip(fence[0])


def strip_fence(text: str) -> str:
    """Return the content of the code fence if the text is one fenced block, else the text."""
    text = text.strip().removeprefix("\ufeff").strip()
    first, last = text.find("\n"), text.rfind("\n")
    fence = opening_fence(text[:first]) if first >= 0 else ""
    if not fence or not closes_fence(text[last + 1 :], fence):
        return text
    body = text[first + 1 : last] if first < last else ""
    return text if any(closes_fence(line, fence) for line in body.split("\n")) else body


def is_blank(text: str) -> bool:
    """Whether a text has only white space, zero-width and control characters."""
    return _INK.search(text) is None


def words_of(text: str, *, value: bool = False) -> Words:
    """Return the own words and the thinking of a reply; see `own_words`."""
    tag = _TAG.search(text)
    # A second pass must not take a tag that the answer mentions for the end of the thinking.
    lone = tag is not None and _OPENING.search(text) is None
    words = _split(text, value, lone)
    for _ in range(_PASSES):  # marks from the middle may now be at the beginning
        again = _split(words.text, value, lone)
        if again.text == words.text:
            break
        repairs = tuple(dict.fromkeys((*words.repairs, *again.repairs)))
        words = Words(again.text, words.thinking + again.thinking, again.unclosed, repairs)
    return words


def _split(text: str, value: bool, lone: bool) -> Words:
    start, thinking = _opening(text, value)
    if start is None:
        return Words("", text, unclosed=True, repairs=(THINKING,))
    if lone and (after := _after_lone_tag(text)):
        start, thinking = after, text[:after].rstrip()
    rest = text[start:].lstrip() if start else text
    # Up to its end mark or the next turn.
    end = None if _is_json(rest) else _first_end(rest)
    own = rest if end is None else rest[:end].rstrip()
    repairs = [THINKING] if thinking else []
    if own.strip() != rest.strip() or (start and not thinking):
        repairs.append("marks of a chat template left out")
    return Words(own, thinking, repairs=tuple(repairs))


def _opening(text: str, value: bool) -> tuple[int | None, str]:
    """Return where the answer begins, None if the thinking never ends, and the thinking."""
    at, thinking = 0, ""
    for _ in range(_PARTS):
        ink = _INK.search(text, at)
        begin = ink.start() if ink else len(text)
        if _CHANNEL.match(text, begin):
            final = _FINAL.search(text, begin)
            end = final.end() if final else None
        elif opening := _OPENING.match(text, begin):
            end = _block_end(text, opening.end())
        elif value and (named := _NAMED.match(text, begin)):
            closing = re.compile(f"</[ \t]?{named[1]}[ \t]?>", re.IGNORECASE)
            close = closing.search(text, named.end())
            if close is None or _INK.search(text, close.end()) is None:
                break
            end = close.end()
        elif header := _FINAL.match(text, begin) or _HEADER.match(text, at):
            at = header.end()
            continue
        else:
            break
        if end is None:
            return None, text
        at, thinking = end, text[:end]
    return at, thinking


def _block_end(text: str, at: int) -> int | None:
    """Return the end of the block that is open at a position, None if it never ends."""
    depth, first = 1, None
    for tag in _TAG.finditer(text, at):
        depth += 1 if tag[1] else -1
        if first is None and not tag[1]:
            first = tag.end()
        if depth == 0:
            return tag.end()
    # Thinking that mentions a tag: its first closing tag loses the least.
    return first


def _after_lone_tag(text: str) -> int:
    """Return the position after the last closing tag that stands alone on its line, 0 if there is none."""
    after = at = 0
    lines = zip(text.splitlines(keepends=True), lines_with_quotes(text), strict=True)
    for line, (_, quoted) in lines:
        at += len(line)
        if not quoted and _LONE_TAG.fullmatch(line):
            after = at
    return after


def _is_json(text: str) -> bool:
    """Whether a text is one strict JSON object or array."""
    if not text.lstrip().startswith(("{", "[")):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _first_end(text: str) -> int | None:
    ends = []
    opened = text.find("<s>")
    for mark in END.finditer(text):
        struck = mark[0] == "</s>" and 0 <= opened < mark.start()  # struck-through text in HTML
        # A mark in backticks is quoted by an answer about chat templates.
        quoted = text[mark.start() - 1 : mark.start()] == "`"
        if not struck and not quoted:
            ends.append(mark.start())
            break
    for turn in _TURN.finditer(text):
        before = text[: turn.start()].rstrip()
        last_line = before[before.rfind("\n") + 1 :]
        # A template continues with the turn of the user when the model missed its end mark.
        # In a dialogue that is the content of the reply, other lines have speakers too.
        if before and not _SPEAKER.match(last_line):
            ends.append(turn.start())
        break
    return min(ends) if ends else None


_IGNORED = re.compile(f"[{IGNORABLE}]")
# Removes emphasis marks, except inside a word or a number: snake_case, 8*10, 0.*9. The quantifiers are
# possessive, so that a long run of marks takes linear time.
_EMPHASIS = re.compile(r"(?<![*_`])(?:(?<![\w.,])[*_`]++|[*_`]++(?!\w|[.,]\d))")
_MARK_RUN = 30


def normalise_characters(text: str) -> str:
    """Return the text cleaned, in NFKC and without zero-width characters. Emphasis marks stay.

    There are two differences from plain NFKC. A "^" is inserted before superscript, circled and similar
    digits, so that the footnote in 0.9² does not make it 0.92. Of more than 30 combining marks in a row only
    30 stay, the limit of Unicode's Stream-Safe Text Format (UAX 15).
    """
    text = clean_text(text)
    # ASCII is already in NFKC, and most replies are ASCII.
    if text.isascii():
        return text
    text = _IGNORED.sub("", text)
    foreign = [char for char in set(text) if not char.isascii()]
    marks = "".join(
        re.escape(char)
        for char in foreign
        if unicodedata.combining(unicodedata.normalize("NFKD", char)[0])
    )
    if marks:  # before normalisation, which orders them in quadratic time
        text = re.sub(f"([{marks}]{{{_MARK_RUN}}})[{marks}]+", r"\1", text)
    text = text.translate({ord(char): f"^{plain}" for char, plain in _digit_look_alikes(foreign)})
    return unicodedata.normalize("NFKC", text)


def _digit_look_alikes(characters: list[str]) -> Iterator[tuple[str, str]]:
    for char in characters:
        # Full-width and mathematical digits are ordinary digits in another style.
        if not unicodedata.decomposition(char).startswith(("<wide>", "<font>")):
            plain = unicodedata.normalize("NFKC", char)
            if any("0" <= digit <= "9" for digit in plain):
                yield char, plain


def strip_emphasis(text: str) -> str:
    """Return the text without the marks of Markdown emphasis and inline code: * _ and backtick.

    Marks between two characters of a word or a number stay, so `QUALITY_SCORE` keeps its name and
    `8*10` does not become 810. Code fences lose their backticks, so detect quotations first.
    """
    return _EMPHASIS.sub("", text)


def normalise_reply(text: str) -> str:
    """Return the reply of a model without emphasis and in normalised characters, for a pattern search.

    The positions of matches are positions in the returned text.
    """
    return strip_emphasis(normalise_characters(text))


def lines_with_quotes(text: str) -> Iterator[tuple[str, bool]]:
    """Yield each line and whether it is quoted: in a `>` quotation or a fenced block of code.

    The lines of the fence itself are quoted. A fence without an end quotes all following lines.
    """
    fence = ""
    for line in text.splitlines():
        if fence:
            yield line, True
            if closes_fence(line, fence):
                fence = ""
            continue
        fence = opening_fence(line)
        yield line, bool(fence) or line.lstrip().startswith(">")


# For a stream, the `regex` library tells whether a tag may still continue (a partial match).
_OPENING_MARK = regex.compile(
    rf"{OPENING}|<\|channel\|>[ \t]*(?:analysis|commentary)", regex.IGNORECASE
)
_CLOSING_MARK = regex.compile(
    rf"{CLOSING}|<\|channel\|>[ \t]*final[^<\n]{{0,40}}<\|message\|>", regex.IGNORECASE
)
# A mark of a chat template before the first word; a role may follow it.
_MARK = regex.compile(
    r"<\|(?:im_start|start|start_header_id|end_header_id|begin_of_text|assistant)\|>"
    r"|<start_of_turn>|<bos>|<s>|<\uff5cAssistant\uff5c>|\[/INST\]",
    regex.IGNORECASE,
)
_ENDING = regex.compile(END.pattern)
_ROLE_NAMES = frozenset(ROLES.split("|"))
_BEGINS = "<[\u25c1\u25c3"
_PLAIN = regex.compile(rf"[^\s{regex.escape(_BEGINS)}]++")
_SPACE = regex.compile(r"\s++")


class SpokenText:
    """Passes text that arrives in pieces to `receiver`, without thinking; call `end` after the last piece."""

    __slots__ = (
        "_all",
        "_data",
        "_ended",
        "_inside",
        "_last",
        "_left_out",
        "_pending",
        "_receiver",
        "_role",
        "_sent",
        "_space",
    )  # fmt: skip

    def __init__(self, receiver: Callable[[str], None]) -> None:
        self._receiver = receiver
        self._all: list[str] = []
        self._pending = ""  # not decided yet
        self._space = ""  # white space that is sent only before a word
        self._last = ""  # the character before the pending text
        self._inside = 0  # number of open thinking blocks
        self._ended = False  # the turn of the model ended; text of other turns may follow
        self._data = False  # the first word begins a JSON value, whose strings may contain marks
        self._role = False  # the previous part is a mark
        self._left_out = False  # a part was left out: the white space after it is too
        self._sent = False  # a word was sent

    def __call__(self, piece: str) -> None:
        self._all.append(piece)
        self._pending += piece
        self._process(final=False)

    def end(self) -> None:
        """Send the text that was held back."""
        self._process(final=True)
        # The block never ended and nothing was sent: the answer, if there is one, is in the complete text.
        if self._inside and not self._sent:
            self._send(own_words("".join(self._all)))
        elif not self._inside and self._sent and not self._ended:
            self._send(self._space)
        self._space = self._pending = ""
        if hasattr(self._receiver, "end"):
            self._receiver.end()

    def _send(self, text: str) -> None:
        if text:
            self._receiver(text)

    def _process(self, *, final: bool) -> None:
        """Process as much of the pending text as possible."""
        text, at, ready = self._pending, 0, []
        while at < len(text):
            step = self._step(text, at, final)
            if step is None:
                break
            part, end = step
            ready.append(part)
            self._last = text[end - 1]
            at = end
        self._pending = text[at:]
        self._send("".join(ready))

    def _step(self, text: str, at: int, final: bool) -> tuple[str, int] | None:
        """Return the text to send for the next part, and its end; None if the part may continue."""
        if (space := _SPACE.match(text, at)) is not None:
            skipped = self._inside or self._ended or (self._left_out and not self._sent)
            self._space += "" if skipped else space[0]
            return "", space.end()
        if (plain := _PLAIN.match(text, at)) is not None:
            # "assis" may become the role "assistant" with the next piece.
            if self._role and not final and plain.end() == len(text):
                return None
            of_mark = self._role and plain[0].lower() in _ROLE_NAMES
            self._role = False
            return "" if of_mark else self._words(plain[0]), plain.end()
        return self._tag(text, at, final)

    def _tag(self, text: str, at: int, final: bool) -> tuple[str, int] | None:
        for pattern, meaning in self._tags(text[at - 1] if at else self._last):
            match = pattern.match(text, at, partial=not final)
            if match is None:
                continue
            # The character after a tag may be a backtick or the beginning of a role.
            if not final and (match.partial or match.end() == len(text)):
                return None
            quoted = self._inside > 0 and text[match.end() : match.end() + 1] == "`"
            # HTML strikes text out with these tags. Only what came before is the same for every cut.
            quoted |= match[0] == "</s>" and "<s>" in "".join(self._all)[1 : at - len(text)]
            if not quoted:
                self._crossed(meaning)
                return "", match.end()
        return self._words(text[at]), at + 1

    def _tags(self, before: str) -> list[tuple[regex.Pattern[str], str]]:
        """Return the tags that are possible here, after the character `before`."""
        if self._inside:
            return [] if before == "`" else [(_CLOSING_MARK, "close"), (_OPENING_MARK, "open")]
        if not self._sent:
            return [(_CLOSING_MARK, "close"), (_OPENING_MARK, "open"), (_MARK, "mark")]
        # In JSON, a mark inside a string is content.
        ends = before in "}]\n" if self._data else before != "`"
        return [(_ENDING, "end")] if ends and not self._ended else []

    def _crossed(self, meaning: str) -> None:
        """Enter or leave a thinking block."""
        self._space, self._left_out, self._role = "", True, meaning == "mark"
        if meaning == "open":
            self._inside += 1
        elif meaning == "end":
            self._ended = True
        elif meaning == "close":
            self._inside = max(0, self._inside - 1)

    def _words(self, text: str) -> str:
        """Return words with the white space before them, or "" inside thinking."""
        if self._inside or self._ended:
            return ""
        if not self._sent:
            self._data = text[0] in "{["
        words = f"{self._space}{text}"
        self._space, self._sent = "", True
        return words


JSON_BYTES = 5_000_000  # a reply of a million tokens is smaller
JSON_DEPTH = 64  # as in `records.codec`, so that every value that is read can be stored

JsonProblem = Literal["empty", "too_large", "too_deep", "duplicate_key", "not_finite", "malformed"]

# A fence that closes on the last line of the value.
_TIGHT = re.compile(r"```[A-Za-z0-9_+-]*[ \t]*\r?\n(.*?)[ \t]*```", re.DOTALL)
_STRUCTURE = re.compile(r'\\.|["\[\]{}]', re.DOTALL)


@dataclass(frozen=True, slots=True)
class JsonReading:
    """The value of a JSON reply, or the `problem` with it and a sentence."""

    value: Json = None
    problem: JsonProblem | None = None
    detail: str = ""


class _JsonError(ValueError):
    def __init__(self, problem: JsonProblem, detail: str) -> None:
        super().__init__(detail)
        self.problem: JsonProblem = problem


def read_json(text: str) -> JsonReading:
    """Read one JSON value (RFC 8259), alone or in one code fence.

    Each of these has its own problem: text before or after the value, NaN and infinities (also 1e400),
    a repeated key, more than 64 levels, more than 5,000,000 bytes of UTF-8. `clean_text` is applied to
    strings and keys.
    """
    source = strip_fence(clean_text(text))
    if source.startswith("```") and (tight := _TIGHT.fullmatch(source)) is not None:
        source = tight[1]
    try:
        # The decoder recurses, so the depth is checked before it runs.
        _check_size(source)
        value = DECODER.decode(source)
    except _JsonError as refusal:
        return JsonReading(problem=refusal.problem, detail=str(refusal))
    except json.JSONDecodeError as error:
        place = f"line {error.lineno} column {error.colno}"
        return JsonReading(
            problem="malformed",
            detail=f"the reply is not JSON at {place}; expected one JSON value and nothing else",
        )
    except ValueError:
        return JsonReading(
            problem="malformed",
            detail="the reply holds a number too long to read; expected one plain JSON value",
        )
    return JsonReading(value=cleaned(value))


def _check_size(source: str) -> None:
    if not source.strip():
        raise _JsonError("empty", "the reply is empty; expected one JSON value")
    # The number of characters is the cheap lower bound.
    if len(source) > JSON_BYTES or len(source.encode()) > JSON_BYTES:
        limit = f"{JSON_BYTES:,} bytes"
        raise _JsonError("too_large", f"the reply is too large; expected at most {limit} of JSON")
    depth, quoted = 0, False
    for token in _STRUCTURE.finditer(source):
        mark = token[0]
        if mark == '"':
            quoted = not quoted
        elif not quoted and mark in "[{":
            depth += 1
        elif not quoted and mark in "]}":
            depth -= 1
        if depth > JSON_DEPTH:
            limit = f"{JSON_DEPTH} levels"
            raise _JsonError("too_deep", f"the reply nests too deep; expected at most {limit}")


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    # Keys are cleaned before they are compared, so that two keys cannot become one later.
    members = {clean_text(key): value for key, value in pairs}
    if len(members) < len(pairs):
        raise _JsonError(
            "duplicate_key", "the reply repeats a key of an object; expected each key once"
        )
    return members


def _refuse_constant(name: str) -> float:
    raise _JsonError("not_finite", f"the reply holds {name}; expected finite numbers only")


def _finite(literal: str) -> float:
    number = float(literal)
    return number if math.isfinite(number) else _refuse_constant("a number beyond any float")


# By default Python accepts NaN and 1e400, and keeps the last of repeated keys.
DECODER = json.JSONDecoder(
    object_pairs_hook=_unique, parse_constant=_refuse_constant, parse_float=_finite
)


def cleaned(value: Json) -> Json:
    """Return a value whose strings are cleaned by `clean_text`."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, list):
        return [cleaned(member) for member in value]
    if isinstance(value, dict):
        return {key: cleaned(member) for key, member in value.items()}
    return value
