"""The rows of a run, computed from its journal entries: what terminals, pages and exports lay out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..journal import Entry, surviving
from ..journal.replay import RecordedRun
from ..progress import depth_of
from ..records import (
    NOTHING,
    Evaluation,
    Iteration,
    Stop,
    Usage,
    case_path,
    is_judging,
    number_text,
)
from ..records.codec import Json, text_of
from ..records.display import verdict_word
from . import formatting as texts
from .formatting import Signs
from .run_files import files_text, protected_text

# Characters of a long text that are prepared for one line; cleaning megabytes is slow.
LINE_INPUT = 2000
PAGE = 50  # rows that are shown at once
SHORT = 240  # characters of feedback in a row of a page


class _AtPath:
    """Something at the path of a loop."""

    __slots__ = ()
    path: str

    @property
    def depth(self) -> int:
        """The number of outer loops."""
        return depth_of(self.path)


@dataclass(frozen=True, slots=True)
class Row(_AtPath):
    """A finished iteration of the loop at `path`."""

    path: str
    iteration: Iteration
    item: str = ""  # the item of a list that it belongs to
    sentences: int = 0  # in `until` of the loop, asked or not; 0 if unknown
    retries: int = 0
    best: bool = False

    @property
    def label(self) -> str:
        """The loop's name and the number of the iteration."""
        return f"{self.path.rsplit('/', 1)[-1]} {self.iteration.number}"

    @property
    def part(self) -> float | None:
        """The filled part of the bar, from 0 to 1; None without a score, or where a metric decides."""
        return self.iteration.score if self.iteration.accepted is None else None

    def rating(self, signs: Signs = texts.UNICODE) -> str:
        """Return the score, or the objective with its change where a metric decides."""
        item = self.iteration
        return texts.score(item.score) if item.accepted is None else texts.objective(item, signs)

    def verdict(self, signs: Signs = texts.UNICODE) -> tuple[str, str, str]:
        """Return the sign, the word and the style of the verdict."""
        word = verdict_word(self.iteration)
        sign, style = {
            "": (" ", ""),
            "cut short": (signs.undecided, "yellow"),
            "failed": (signs.failed, "red"),
            "undecided": (signs.undecided, "yellow"),
            "impossible": (signs.failed, "red"),
            "passed": (signs.passed, "green"),
            "not yet": (signs.not_yet, "cyan"),
            "accepted": (signs.passed, "green"),
            "rejected": (signs.not_yet, "cyan"),
        }[word]
        return sign, word, style

    @property
    def summary(self) -> str:
        """The feedback, or the output if nothing judged it, after what changed and the answered sentences."""
        item = self.iteration
        text = item.feedback
        if not text and item.evaluation is None:
            text = texts.value_line(item.output)
        if changed := files_text(item):
            # The feedback, which may be cut, is not where a person looks for it.
            touched = protected_text(item)
            text = f"{changed}{touched and f', {touched}'}  {text}"
        if answers := [passed for _, passed in verdicts_of(item.evaluation)]:
            total = max(self.sentences, len(answers))
            rest = f", {total - len(answers)} not asked" if total > len(answers) else ""
            counted = f"{answers.count(True)} of {texts.plural(total, 'sentence')}{rest}"
            text = f"{counted}  {text}".rstrip()
        origin = []
        if item.candidates:
            chosen = f"candidate {item.candidate} of" if item.candidate else "none of"
            origin.append(f"{chosen} {len(item.candidates)}")
        if item.chain > 1 or item.parent is not None:
            origin.append(f"chain {item.chain} from {item.continues_from or 'the start'}")
        if origin:
            text = f"{', '.join(origin)}{text and ': '}{text}"
        if item.explored:
            text = f"explored  {text}".rstrip()
        return texts.one_line(text[:LINE_INPUT])

    @property
    def feedback(self) -> str:
        """The beginning of the feedback."""
        evaluation = self.iteration.evaluation
        return short(texts.one_line(evaluation.feedback), SHORT) if evaluation else ""

    @property
    def error(self) -> str:
        """The beginning of the error."""
        error = self.iteration.error
        return texts.one_line(error.message)[:SHORT] if error else ""

    @property
    def gaps(self) -> list[tuple[str, str]]:
        """The criteria that were not met, with what is missing."""
        evaluation = self.iteration.evaluation
        return [(c.name, c.gap) for c in evaluation.criteria if not c.passed] if evaluation else []

    @property
    def files(self) -> str:
        """How many files it changed."""
        return files_text(self.iteration)


@dataclass(frozen=True, slots=True)
class Ending(_AtPath):
    """The end of a loop inside the run."""

    path: str
    stop: Stop


@dataclass(frozen=True, slots=True)
class Notice(_AtPath):
    """A question to a person, or the answer, as a sentence."""

    path: str
    text: str


Shown = Row | Ending | Notice


def status_of(item: Iteration) -> str:
    """Return the verdict of an iteration or of an item of a list as a word; `done` if nothing judged it."""
    return verdict_word(item) or "done"


def counts_of(items: Iterable[Iteration], left: int = 0) -> dict[str, int]:
    """Return how many rows have each status: failures first, then the most frequent.

    `left` is the number of items that a list that has ended did not run.
    """
    counts = Counter(map(status_of, items))
    found = dict(sorted(counts.items(), key=lambda pair: (pair[0] != "failed", -pair[1])))
    return {**found, "not run": left} if left else found


def counts_text(counts: Mapping[str, int], unit: str) -> str:
    """Return counts by status in words, as `300 items: 8 failed, 292 done`."""
    total = texts.plural(sum(counts.values()), unit)
    return f"{total}: {', '.join(f'{count:,} {word}' for word, count in counts.items())}"


def short(text: str, maximum: int) -> str:
    """Return the beginning of a text, with a sign where it was cut."""
    return text[:maximum] + ("…" if len(text) > maximum else "")


def scores_of(items: Iterable[Iteration]) -> list[float]:
    """Return the scores that count, in order: those of complete outputs."""
    return [item.score for item in items if item.eligible and item.score is not None]


def item_at(path: str, lists: Mapping[str, Sequence[Json]]) -> str:
    """Return the items of lists that a path is inside, outermost first; "" outside lists.

    `lists` are the items of lists by path. A missing item is named by its number.
    """
    names = []
    parts = path.split("/")
    for i, part in enumerate(parts):
        items = lists.get("/".join(parts[:i])) if part.isdigit() else None
        if items is not None:
            number = int(part)
            names.append(text_of(items[number - 1]) if number <= len(items) else f"item {number}")
    return " / ".join(text or "an empty item" for text in names)


def answers_of(evaluation: Evaluation | None) -> Iterator[tuple[str, str]]:
    """Iterate over (condition, answer) of the votes that name their condition, and of the sentences of `until`."""
    for sentence, passed in verdicts_of(evaluation):
        yield sentence, "UNDECIDED" if passed is None else _answer(passed)
    for vote in evaluation.votes if evaluation is not None else ():
        if isinstance(vote, dict) and "condition" in vote and "answer" in vote:
            yield str(vote["condition"]), _answer(vote["answer"])


def verdicts_of(evaluation: Evaluation | None) -> Iterator[tuple[str, bool | None]]:
    """Iterate over the sentences of `until` that were asked, with their answers; None for an undecided one."""
    verdicts = None if evaluation is None else evaluation.verdicts
    for sentence, verdict in (verdicts or {}).items():
        yield sentence, verdict["passed"]


def _answer(value: Json) -> str:
    if isinstance(value, bool):
        return "YES" if value else "NO"
    return str(value).upper()


def answer_text(path: str, value: Json) -> str:
    """Return a person's answer, or new input of an iteration, as a sentence."""
    if path.endswith("/input"):
        return f"{path}: new input: {text_of(value)}"
    if not isinstance(value, dict) or not isinstance(value.get("approve"), bool):
        return f"{path}: answer: {text_of(value)}"
    word = "yes" if value["approve"] else "accepted" if value.get("accept") else "no"
    more = [
        f"{key} {text_of(item)}" for key, item in value.items() if key not in ("approve", "accept")
    ]
    return f"{path}: answer: {', '.join([word, *more])}"


def noise_text(measured: Json) -> str:
    """Return the noise of past runs that a loop measured at its start."""
    return f"sigma {measured['sigma']:.3g} of {texts.plural(measured['runs'], 'past run')}"


def hints_text(hints: Json) -> str:
    """Return the hints that an iteration read, or their number where a page leaves out long values."""
    if hints is None:
        return "hints of people"
    return "; ".join(f"hint {hint['number']} of {hint['who']}: {hint['text']}" for hint in hints)


def _notice(entry: Entry) -> str:
    """Return a question, an answer or a changed limit as a sentence, or ""."""
    # A page leaves out long values, and a question may contain an output.
    if entry.kind == "asked" and entry.value is None:
        return "asks a person"
    if entry.kind in ("waiting", "woken") and entry.value is None:
        return f"{entry.path} {'waits' if entry.kind == 'waiting' else 'waits no longer'}"
    if entry.kind == "asked" and entry.value["request"].get("kind") not in _AT_END:
        asks = "" if entry.value["request"].get("kind") == "hold" else "asks a person: "
        return asks + str(entry.value["detail"])
    if entry.kind == "waiting":
        return texts.wait_text(entry.path, entry.value["for"], entry.value["due"])
    if entry.kind == "woken":
        output = entry.value["output"]
        which = f" ({output['which']})" if output["which"] else ""
        return f"{entry.path} ended by {output['ended']}{which} after {texts.duration(output['seconds'])}"
    if entry.kind == "steered":
        return f"{entry.path} reads {hints_text(entry.value)}"
    if entry.kind == "answered":
        return answer_text(entry.path, entry.value)
    if entry.kind == "accepted" and entry.value is not None:
        raised = ", ".join(f"{key} is now {number_text(n)}" for key, n in entry.value.items())
        return f"{entry.path or 'run'}: {raised}"
    if entry.kind == "forked":
        spent = Usage.from_json(entry.value["inherited"])
        inherited = f", inherited: {texts.cost(spent)}" if texts.cost(spent) else ""
        return f"continues {entry.value['run_id']} from {entry.value['path']}{inherited}"
    if entry.kind == "noise":
        return ", ".join(f"{loop}: {noise_text(one)}" for loop, one in entry.value.items())
    if entry.kind == "would_stop":
        loop, normal = entry.path.rsplit("/", 1)[-1], entry.value
        why = Stop.from_json(normal["stop"]).detail
        count = texts.plural(normal["iterations"], "iteration")
        return f"{loop}: normal end after {count} ({why}); later iterations are explored"
    if entry.kind == "tuned":
        change = entry.value
        new = "removed"
        if change["new"] is not None:
            new = f"now {texts.limit_text(change['key'], change['new'])}"
        why = f" ({change['reason']})" if change["reason"] else ""
        return f"{change['loop'] or 'run'}: {change['who']} tuned {change['key']}, {new}{why}"
    return ""


class Progress:
    """The progress of a run: effects in flight, usage, active seconds.

    By path of an effect in flight, `in_flight` holds the active second of its start; for model calls,
    `models` holds the model's name and `replies` the end of the reply so far. `bounds`, as
    recorded with the run, have the number of sentences of each loop.
    """

    def __init__(self, bounds: Mapping[str, Json] | None = None) -> None:
        loops = (bounds or {}).get("loops", ())
        self.sentences = {loop["name"]: loop.get("sentences", 0) for loop in loops}
        self.in_flight: dict[str, float] = {}
        self.models: dict[str, str] = {}
        self.replies: dict[str, str] = {}
        self.waits: dict[str, int] = {}  # the numbers of the entries `waiting` of open waits
        self.lists: dict[str, list[Json]] = {}  # items by the path of their list
        self.spent: Usage = NOTHING
        self.judging: Usage = NOTHING  # part of `spent`
        self.active = 0.0
        self.cases: set[str] = set()  # the paths of cases of a data set that have an evaluation
        self.all_cases: int = (bounds or {}).get("cases", 0)

    def recall(self, entries: Sequence[Entry]) -> list[Shown]:
        """Apply the entries of an earlier process, and return the items to show."""
        # Discarded entries cost money too: `RecordedRun` counts it, the rows leave it out.
        survivors = surviving(entries)
        shown = self._in_order([item for entry in survivors for item in self.apply(entry)])
        replay = RecordedRun(survivors)
        self.in_flight.clear()  # effects in flight ended with their process
        self.spent, self.active = replay.spent(""), replay.active
        self.judging = replay.judging
        return shown

    def _in_order(self, shown: Sequence[Shown]) -> list[Shown]:
        """Return what is shown with the items of each list by their numbers: a retry records one behind later ones."""
        first: dict[str, int] = {}  # the place of what is shown first of a list

        def place(pair: tuple[int, Shown]) -> tuple[int, ...]:
            at, item = pair
            path = f"{item.path}/{item.iteration.number}" if isinstance(item, Row) else item.path
            parts, found = path.split("/"), []
            for i, part in enumerate(parts):
                if part.isdigit() and (above := "/".join(parts[:i])) in self.lists:
                    found += [first.setdefault(above, at), int(part)]
            return (*found, at)

        return [item for _, item in sorted(enumerate(shown), key=place)]

    def apply(self, entry: Entry) -> list[Shown]:
        """Apply an entry, and return the items to show."""
        end = entry.at + entry.seconds if entry.kind in _DONE else entry.at
        self.active = max(self.active, end)
        if entry.kind == "started":
            self.in_flight[entry.path] = entry.at
            if isinstance(entry.value, dict) and "model" in entry.value:
                self.models[entry.path] = str(entry.value["model"])
        elif entry.kind in _DONE:
            for by_path in (self.in_flight, self.models, self.replies):
                by_path.pop(entry.path, None)
            self.spent += entry.usage
            if is_judging(entry.path):
                self.judging += entry.usage
            if self.all_cases and entry.path.endswith(("/evaluate", "/outcome")):
                self.cases.add(case_path(entry.path))
            if entry.path.endswith("/items") and isinstance(entry.value, list):
                self.lists[entry.path.removesuffix("/items")] = entry.value
        elif entry.kind == "waiting":
            self.waits[entry.path] = entry.seq
        elif entry.kind == "woken":
            self.waits.pop(entry.path, None)
        elif entry.kind == "iteration":
            item = item_at(f"{entry.path}/{entry.value.number}", self.lists)
            return [self.row(entry.path, entry.value, item)]
        # The end of the outermost loop is the end of the run, which is reported apart.
        elif entry.kind == "ended" and "/" in entry.path:
            return [Ending(entry.path, Stop.from_json(entry.value["stop"]))]
        text = _notice(entry)
        return [Notice(entry.path, text)] if text else []

    def row(self, path: str, iteration: Iteration, item: str) -> Row:
        """Return the row of an iteration of the loop at a path."""
        return Row(path, iteration, item, self.sentences.get(path.rsplit("/", 1)[-1], 0))

    def add_text(self, path: str, piece: str) -> None:
        """Append a piece of a model's reply; only the end is kept, because only the end is shown."""
        self.replies[path] = (self.replies.get(path, "") + piece)[-_MAX_REPLY:]

    def set_text(self, path: str, text: str) -> None:
        """Replace the end of the text of an effect in flight."""
        self.replies[path] = text[-_MAX_REPLY:]


_DONE = ("finished", "cut")
_AT_END = ("iteration", "limit")  # questions that stop a loop; the end of the run shows them
_MAX_REPLY = 2000  # characters: several lines of a wide terminal
