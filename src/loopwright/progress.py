"""Progress of a run while it runs: rows on a terminal, a bar, a display in a notebook, or plain lines.

`run(..., progress=True)` chooses. Each of the classes is a listener: pass it as `progress=` or in
`listeners=`. Progress goes to stderr and never changes a run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from .errors import ConfigurationError
from .journal import Entry, RunInfo
from .records import NOTHING, History, Iteration, Stop, Usage
from .records.codec import Json
from .records.display import cost, cut, duration, history_html, one_line, score, verdict_word

if TYPE_CHECKING:
    from rich.console import Console
    from tqdm import tqdm

__all__ = ["automatic", "notebook", "plain", "rich_rows", "tqdm_bar"]

_FEEDBACK = 60  # characters of feedback in a row, so that a row fits on one line
_STYLES = {"passed": "green", "failed": "red", "undecided": "yellow", "cut short": "yellow"}


class _View(Protocol):
    """Shows the iterations of one run and its end."""

    def iteration(self, path: str, item: Iteration) -> None: ...

    def end(self, text: str) -> None: ...


def _listener(view: _View, name: str) -> Callable[[Entry], None]:
    def listen(entry: Entry) -> None:
        if entry.kind == "iteration":
            view.iteration(entry.path, entry.value)
        elif entry.kind in ("ended", "suspended") and not entry.path:
            stop = Stop.from_json(entry.value["stop"])
            status = stop.reason.status.value
            view.end(one_line(f"{name}: {status} ({stop.reason.value}): {stop.detail}"))

    return listen


def depth_of(path: str) -> int:
    """Return the number of outer loops of a path: each adds the number of its iteration."""
    return sum(part.isdigit() for part in path.split("/"))


def _facts(item: Iteration) -> list[str]:
    show = f"score {score(item.score)}" if item.score is not None else ""
    facts = (show, verdict_word(item), duration(item.seconds), cost(item.usage))
    return [fact for fact in facts if fact]


class plain:  # noqa: N801 - the names of listeners are verbs of `progress=`
    """Writes a line for each iteration, and one at the end.

    Args:
        write: called with each line, including its line end. Default: writes to stderr.

    Example:
        >>> from loopwright import Loop, MaxIterations, run_sync
        >>> lines = []
        >>> loop = Loop(lambda n: n, lambda n: 0.5, until=MaxIterations(1), name="one")
        >>> _ = run_sync(loop, 1, progress=plain(lines.append))
        >>> lines[-1]
        'one: exhausted (max_iterations): 1 of 1 iterations used\\n'
    """

    def __init__(self, write: Callable[[str], object] | None = None) -> None:
        self._write = write or _to_stderr

    def opened(self, info: RunInfo, recorded: Sequence[Entry], /) -> Callable[[Entry], None]:
        """Return the listener for the entries of a run."""
        del recorded
        return _listener(self, info.name)

    def iteration(self, path: str, item: Iteration) -> None:
        """Write the line of an iteration."""
        text = f"{'  ' * depth_of(path)}{path} {item.number}: {', '.join(_facts(item))}"
        if item.feedback:
            text += f"; {cut(one_line(item.feedback), _FEEDBACK)}"
        self._write(one_line_indented(text) + "\n")

    def end(self, text: str) -> None:
        """Write the line of the end."""
        self._write(text + "\n")


def one_line_indented(text: str) -> str:
    """Return text on one line, cleaned, with its indentation."""
    return text[: len(text) - len(text.lstrip(" "))] + one_line(text)


def _to_stderr(line: str) -> None:
    sys.stderr.write(line)
    # A pipe to a log is read while the run continues.
    sys.stderr.flush()


class rich_rows:  # noqa: N801
    """Prints a coloured row for each iteration: number, bar, score, verdict, feedback, time and cost.

    Args:
        console: the console of `rich` to print to. Default: stderr.

    Example:
        >>> import io
        >>> from loopwright import Loop, MaxIterations, run_sync
        >>> from rich.console import Console
        >>> console = Console(file=io.StringIO(), width=80)
        >>> loop = Loop(lambda n: n, lambda n: 0.5, until=MaxIterations(1), name="one")
        >>> _ = run_sync(loop, 1, progress=rich_rows(console))
        >>> "one: exhausted" in console.file.getvalue()
        True
    """

    def __init__(self, console: Console | None = None) -> None:
        from rich.console import Console

        self._console = console or Console(stderr=True)

    def opened(self, info: RunInfo, recorded: Sequence[Entry], /) -> Callable[[Entry], None]:
        """Return the listener for the entries of a run."""
        del recorded
        return _listener(self, info.name)

    def iteration(self, path: str, item: Iteration) -> None:
        """Print the row of an iteration."""
        from rich.text import Text

        row = Text()
        row.append(f"{'  ' * depth_of(path)}{one_line(path.rpartition('/')[2])} {item.number:>3} ")
        if item.score is not None:
            # `round` rounds 0.25 to 0.2 (half to even), so that equal steps would look unequal.
            full = min(10, int(item.score * 10 + 0.5))
            row.append("\u2588" * full, "cyan").append("\u2591" * (10 - full), "dim")
            row.append(f" {score(item.score):<5} ", "bold")
        word = verdict_word(item)
        row.append(f"{word} ", _STYLES.get(word, "cyan"))
        row.append(cut(one_line(item.feedback), _FEEDBACK) + " ")
        times = [duration(item.seconds), cost(item.usage)]
        row.append(" ".join(fact for fact in times if fact), "dim")
        self._console.print(row, no_wrap=True, overflow="ellipsis", crop=True)

    def end(self, text: str) -> None:
        """Print the row of the end."""
        from rich.text import Text

        self._console.print(Text(text, "bold"))


class tqdm_bar:  # noqa: N801
    """Counts the iterations of the outermost loop in a bar of `tqdm`, against its limit.

    Score and cost stand behind the bar.

    Args:
        options: options of `tqdm.tqdm`, such as `desc` or `file`.

    Raises:
        ConfigurationError: if `tqdm` is not installed.

    Example:
        >>> import io
        >>> from loopwright import Loop, MaxIterations, run_sync
        >>> out = io.StringIO()
        >>> loop = Loop(lambda n: n, lambda n: 0.5, until=MaxIterations(2), name="two")
        >>> _ = run_sync(loop, 1, progress=tqdm_bar(file=out))
        >>> "2/2" in out.getvalue()
        True
    """

    def __init__(self, **options: object) -> None:
        try:
            from tqdm import auto
        except ImportError:
            raise ConfigurationError(
                "tqdm_bar needs tqdm, which is not installed: pip install tqdm"
            ) from None
        self._make = auto.tqdm
        self._options = options

    def opened(self, info: RunInfo, recorded: Sequence[Entry], /) -> Callable[[Entry], None]:
        """Return the listener for the entries of a run; recorded iterations are counted at once."""
        options: Json = {
            "desc": info.name,
            "unit": "it",
            "total": _limit(info, recorded),
            **self._options,
        }
        view = _Bar(self._make(**options))
        for entry in recorded:
            if entry.kind == "iteration":
                view.iteration(entry.path, entry.value)
        return _listener(view, info.name)


class _Bar:
    """The bar of one run."""

    def __init__(self, bar: tqdm[None]) -> None:
        self._bar = bar
        self._spent: Usage = NOTHING

    def iteration(self, path: str, item: Iteration) -> None:
        """Count an iteration of the outermost loop."""
        # Iterations of inner loops would exceed the limit that the bar counts to.
        if depth_of(path):
            return
        self._spent += item.usage
        facts = [f"score {score(item.score)}" if item.score is not None else "", cost(self._spent)]
        self._bar.set_postfix_str(", ".join(fact for fact in facts if fact), refresh=False)
        self._bar.update(1)

    def end(self, text: str) -> None:
        """Close the bar."""
        del text
        self._bar.close()


class notebook:  # noqa: N801
    """Updates one display of a notebook with the score curve and the iterations.

    Args:
        display: returns the handle of a new display of HTML. Default: that of IPython.

    Raises:
        ConfigurationError: if IPython is not installed.

    Example:
        >>> from loopwright import Loop, MaxIterations, run_sync
        >>> shown = []
        >>> loop = Loop(lambda n: n, lambda n: 0.5, until=MaxIterations(2), name="two")
        >>> _ = run_sync(loop, 1, progress=notebook(lambda html: shown.append))
        >>> "<svg" in shown[-1]
        True
    """

    def __init__(self, display: Callable[[str], Callable[[str], object]] | None = None) -> None:
        self._display = display or _ipython_display()

    def opened(self, info: RunInfo, recorded: Sequence[Entry], /) -> Callable[[Entry], None]:
        """Return the listener for the entries of a run; recorded iterations are shown at once."""
        view = _Display(self._display)
        for entry in recorded:
            if entry.kind == "iteration":
                view.add(entry.path, entry.value)
        view.show()
        return _listener(view, info.name)


class _Display:
    """The display of one run: the iterations of its outermost loops."""

    def __init__(self, display: Callable[[str], Callable[[str], object]]) -> None:
        self._histories: dict[str, list[Iteration]] = {}
        self._end = ""
        self._update = display(history_html(History()))

    def add(self, path: str, item: Iteration) -> None:
        """Add an iteration of an outermost loop."""
        if not depth_of(path):
            self._histories.setdefault(path, []).append(item)

    def iteration(self, path: str, item: Iteration) -> None:
        """Add an iteration and show it."""
        self.add(path, item)
        self.show()

    def end(self, text: str) -> None:
        """Show the end."""
        self._end = text
        self.show()

    def show(self) -> None:
        """Update the display."""
        from html import escape

        parts = [history_html(History(items)) for items in self._histories.values()]
        self._update("".join(parts) + (f"<p>{escape(self._end)}</p>" if self._end else ""))


def _ipython_display() -> Callable[[str], Callable[[str], object]]:
    try:
        from IPython.display import HTML, display
    except ImportError:
        raise ConfigurationError(
            "progress in a notebook needs IPython, which is not installed: pip install ipykernel"
        ) from None

    def show(html: str) -> Callable[[str], object]:
        handle = display(HTML(html), display_id=True)  # type: ignore[no-untyped-call]
        if handle is None:
            raise ConfigurationError(
                "progress in a notebook needs a kernel; use progress=True in other programs"
            )
        return lambda html: handle.update(HTML(html))  # type: ignore[no-untyped-call]

    return show


def _limit(info: RunInfo, recorded: Sequence[Entry]) -> int | None:
    """Return the limit of iterations of the only outermost loop, as a person last raised it, or None."""
    loops = info.source.get("bounds", {}).get("loops", [])
    outer = [loop for loop in loops if not loop.get("within")]
    # With several loops, a bar has no single end to count to.
    if len(outer) != 1:
        return None
    limits = [c["max_iterations"]["limit"] for c in outer[0]["until"] if "max_iterations" in c]
    raised = [
        entry.value["max_iterations"]
        for entry in recorded
        if entry.kind == "accepted" and entry.value and "max_iterations" in entry.value
    ]
    tuned = [
        entry.value["new"]
        for entry in recorded
        if entry.kind == "tuned" and entry.value["key"] == "max_iterations"
        if entry.value["loop"].rsplit("/", 1)[-1] == outer[0]["name"]
    ]
    if tuned:
        return int(tuned[-1]) if tuned[-1] else None
    # Of several limits the smallest ends the loop; `resume` can only raise it.
    return max([*raised, min(limits)]) if limits else None


def automatic() -> plain | rich_rows | notebook:
    """Return the progress for `progress=True`: in a notebook, on a terminal, or on a pipe.

    Example:
        >>> type(automatic()).__name__ in ("plain", "rich_rows", "notebook")
        True
    """
    # Not imported: a notebook has loaded it, and a program without it must not pay for it.
    ipython = sys.modules.get("IPython")
    if ipython is not None and hasattr(ipython.get_ipython(), "kernel"):
        return notebook()
    return rich_rows() if sys.stderr is not None and sys.stderr.isatty() else plain()
