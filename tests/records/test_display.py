"""How results, histories and loops are shown: one line, three lines, and HTML that nothing can break out of."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from html import escape
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, TypedDict
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from loopwright import (
    Evaluation,
    History,
    Iteration,
    Loop,
    MaxIterations,
    Reason,
    Result,
    ScoreAtLeast,
    Status,
    Usage,
    Workflow,
    run_sync,
)
from loopwright.records.display import curve

ALLOWED = {
    "div", "p", "strong", "br", "table", "tr", "td", "th", "details", "summary", "pre",
    "svg", "g", "line", "text", "polyline", "circle",
}  # fmt: skip


class Tags(HTMLParser):
    """Collects the tags and the attributes of HTML."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.texts: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def rated(*scores: float, output: object = "draft", feedback: str = "") -> Result:
    """Return the result of a loop with these scores."""
    items = [
        Iteration(n, output=output, evaluation=Evaluation(score, feedback=feedback))
        for n, score in enumerate(scores, start=1)
    ]
    history = History(items)
    return Result(
        Status.EXHAUSTED, Reason.MAX_ITERATIONS, "all used", output, history,
        usage=Usage(3, 10, 10, 0.25), name="refine", seconds=2.0,
    )  # fmt: skip


def test_repr_is_one_line_with_the_figures() -> None:
    """Status, reason, score, iterations and cost; the output is not part of it."""
    shown = repr(rated(0.5, 0.75, output="a\nb"))
    assert shown == (
        "<Result of 'refine': exhausted, reason max_iterations, score 0.75, 2 iterations, $0.2500>"
    )
    assert repr(History()) == "<History of 0 iterations>"


def test_print_shows_three_lines() -> None:
    """The end, the figures and the start of the output, whatever the output contains."""
    for output in ("one\ntwo\r\n\x1b[2J", {"a": ["b\nc"]}, None, "x" * 10_000):
        lines = str(rated(0.5, output=output)).splitlines()
        assert len(lines) == 3
        assert all(line.isprintable() and len(line) < 140 for line in lines)


def test_a_loop_shows_its_parts_and_bounds() -> None:
    """Stages, conditions and the limit, in `repr` and in HTML."""
    loop = Loop(len, lambda n: n / 9, until=ScoreAtLeast(0.5), name="count")
    for shown in (repr(loop), loop._repr_html_()):
        assert all(word in shown for word in ("count", "len", "ScoreAtLeast", "10 iterations"))
    assert "\n" not in repr(loop)


@given(st.text(), st.text())
def test_html_of_any_text_is_inert(text: str, name: str) -> None:
    """Outputs, feedback, names and details are shown as text: no tag, script or handler of theirs exists."""
    hostile = f"</pre></svg><script>{text}</script><img src=x onerror=alert(1)>"
    result = rated(0.2, 0.4, output={hostile: hostile}, feedback=hostile)
    for html in (result._repr_html_(), result.history._repr_html_()):
        page = Tags(html)
        assert page.tags <= ALLOWED
        assert not [a for a in page.attributes if a.startswith("on") or a in ("src", "href")]
    loop = Loop(lambda x: x, name=f"<script>{name.replace('/', '')}")
    assert Tags(loop._repr_html_()).tags <= ALLOWED


@pytest.mark.parametrize("count", [1, 2, 60, 61, 299, 301, 1000])
def test_the_curve_stays_below_20_kb(count: int) -> None:
    """However many iterations there are; the highest and the last score are drawn."""
    scores = [(n * 37 % 100) / 100 for n in range(count)]
    drawing = curve([(float(n), score) for n, score in enumerate(scores, start=1)], "scores", top=1)
    assert len(drawing.encode()) <= 20_000
    assert "<script" not in drawing and "style" not in drawing
    assert '<polyline points="' in drawing


def test_a_table_has_at_most_50_rows() -> None:
    """The latest are shown, and the number of all of them is stated."""
    html = rated(*[0.5] * 120)._repr_html_()
    assert html.count("<tr>") == 51
    assert "The last 50 of 120 iterations." in html
    assert len(html) < 60_000


def test_colours_follow_the_theme() -> None:
    """Texts and axes use the text colour of the notebook, so that a dark theme needs nothing else."""
    html = rated(0.1, 0.9)._repr_html_()
    assert "<style" not in html
    fixed = set(re.findall(r"#[0-9a-f]{6}", html))
    assert fixed == {"#3b82c4"}  # the curve; its contrast is above 3 on white and on #1e1e1e
    assert 'fill="currentColor"' in html


def test_the_traceback_of_a_failed_run_is_folded() -> None:
    """A failed run shows its error first and its traceback on request, escaped."""

    def execute(value: object) -> object:
        raise ValueError("<b>bad</b>")

    html = run_sync(Loop(execute, name="fails"), 1)._repr_html_()
    assert "<summary>traceback</summary>" in html
    assert "&lt;b&gt;bad&lt;/b&gt;" in html and "<b>" not in html


def test_a_workflow_shows_its_loops() -> None:
    """A result without iterations of its own shows those of the loops inside."""
    loop = Loop(lambda n: n, lambda n: 0.5, until=MaxIterations(2), name="inner")
    html = run_sync(Workflow("outer", {"inner": loop}), 1)._repr_html_()
    assert "<svg" in html and "inner: exhausted" in html


class Colour(enum.Enum):
    """A type that is not JSON."""

    RED = "red"


class Pair(NamedTuple):
    """A tuple with names."""

    left: int
    right: str


class Place(TypedDict):
    """An object with a member that is not JSON."""

    path: Path


class Note(BaseModel):
    """A pydantic model."""

    body: str


@dataclass
class Draft:
    """A dataclass."""

    title: str


class Unprintable(BaseModel):
    """A class whose text cannot be read."""

    body: str = "x"

    def __repr__(self) -> str:
        raise RuntimeError("no text")


TYPED: list[tuple[Any, Any, str]] = [
    (Draft, Draft("tea"), "Draft(title='tea')"),
    (Note, Note(body="tea"), "Note(body='tea')"),
    (Colour, Colour.RED, "<Colour.RED: 'red'>"),
    (datetime, datetime(2026, 11, 22), "datetime.datetime(2026, 11, 22, 0, 0)"),
    (date, date(2026, 11, 22), "datetime.date(2026, 11, 22)"),
    (timedelta, timedelta(days=1), "datetime.timedelta(days=1)"),
    (Decimal, Decimal("1.50"), "Decimal('1.50')"),
    (UUID, UUID(int=1), "UUID('00000000-0000-0000-0000-000000000001')"),
    (PurePosixPath, PurePosixPath("a/b"), "PurePosixPath('a/b')"),
    (set[int], {1}, "{1}"),
    (frozenset[int], frozenset({1}), "frozenset({1})"),
    (tuple[int, str], (1, "a"), '[1, "a"]'),
    (Pair, Pair(1, "a"), '[1, "a"]'),
    (Place, {"path": Path("a")}, "{'path': PosixPath('a')}"),
    (bytes, b"abc", "b'abc'"),
    (list[Draft], [Draft("tea")], "[Draft(title='tea')]"),
    (dict[str, Draft], {"a": Draft("tea")}, "{'a': Draft(title='tea')}"),
    (Unprintable, Unprintable(), "<tests."),
]


@pytest.mark.parametrize(
    ("kind", "value", "text"), TYPED, ids=lambda item: getattr(item, "__name__", "")
)
def test_a_typed_output_is_shown(kind: Any, value: Any, text: str) -> None:
    """Printed, and in the HTML of a result and of its history, an output is its JSON or its Python text."""

    def execute(_: int) -> Any:
        return value

    execute.__annotations__["return"] = kind
    text = text.replace("<tests.", f"<{__name__}.Unprintable object")
    result = run_sync(Loop(execute, lambda _: True), 1)
    assert text in str(result)
    for page in (result._repr_html_(), result.history._repr_html_()):
        assert escape(text) in page
    assert result.output == value
