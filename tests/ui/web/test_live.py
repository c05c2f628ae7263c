"""Following a run: whoever listens, however often the line drops, misses nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from .conftest import Server, call, counted
from .lines import Dropping, Terminal, program

ROUNDS = 60
SHAPE = """schema: loopwright/1
name: shape
steps:
  - name: made
    loop: {execute: {set: {a: [1, x]}}, max_iterations: 1}
"""


def news(stream: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    """Iterate over the events of a stream: their ids and what they say."""
    number = 0
    for raw in stream:
        name, _, value = raw.decode().rstrip("\n").partition(": ")
        if name == "id":
            number = int(value)
        elif name == "data":
            yield number, json.loads(value)


def seen_by(page: Any) -> list[int]:
    """Return the numbers of the iterations that a page shows, in its order."""
    found: list[int] = page.eval_on_selector_all(
        "tr.iteration", "rows => rows.map(row => Number(row.dataset.number))"
    )
    return found


def test_nobody_misses_an_iteration(browser: Any, server: Server) -> None:
    """A run in progress is followed by three pages and a terminal, one page over a line that drops
    every second: each has every iteration, in order, without loading the page again."""
    folder, whole = server.folder, list(range(1, ROUNDS + 1))
    with (
        program(server, "run", "steps:many", "--run-id", "many", "--input", "x") as run,
        Terminal(folder, "watch", "many") as terminal,
        Dropping(server.base) as line,
    ):
        terminal.wait_for("many 2")
        pages = [browser.new_page() for _ in range(3)]
        for page, base in zip(pages, (server.base, server.base, line.base), strict=True):
            page.goto(f"{base}/runs/many?token={server.token}")
            page.wait_for_selector("#link.live")
            page.evaluate("window.kept = true")
        line.begin()
        (folder / "many-3").touch()
        for page in pages:
            counted(page, "tr.iteration", ROUNDS)
            assert page.evaluate("window.kept") is True
            assert seen_by(page) == whole
        assert line.drops >= 3
        (folder / "many-61").touch()
        assert run.wait(60) == 3
        terminal.end()
        for page in pages[:2]:
            page.wait_for_selector("#head[data-status=exhausted]")
    for page in pages:
        page.close()
    assert terminal.process.returncode == 3
    assert terminal.rounds("many") == [*whole, ROUNDS + 1]


def test_a_stream_goes_on_after_the_last_event(server: Server) -> None:
    """The id of the last event says what is known; what is sent is what came after it."""
    with server.events("/runs/noted/events?after=0") as stream:
        number, told = next(news(stream))
    assert [row[0] for row in told["loops"]["release_note"]["rows"]] == list(range(1, 9))
    with server.events("/runs/noted/events?after=0", number) as stream:
        again, told = next(news(stream))
    assert again == number
    assert "loops" not in told


def test_a_run_that_is_not_there_has_no_stream(server: Server) -> None:
    """A stream of nothing is an answer, not a wait."""
    assert server.ask("/runs/none/events")[0] == 404
    assert server.ask("/runs/none/iteration?loop=a&number=1")[0] == 404


def test_a_run_is_exported_whole(server: Server) -> None:
    """A report, rows and JSON are sent as attachments; the report needs nothing else."""
    status, report = server.ask("/runs/noted/export/html")
    assert status == 200
    assert "default-src 'none'" in report
    assert "src=" not in report
    assert "<script" not in report
    assert report.count('class="iteration') == 8
    assert len(server.ask("/runs/noted/export/csv")[1].splitlines()) >= 9
    assert json.loads(server.ask("/runs/noted/export/json")[1])["run_id"] == "noted"


def test_what_was_tried_again_is_counted_in_its_row(server: Server) -> None:
    """A row says how often a call inside it was tried again, and says nothing where none was."""
    _, told = server.ask("/runs/again/rows?loop=again")
    assert told.count("1 retry") == 2
    assert "retr" not in server.ask("/runs/noted/rows?loop=release_note")[1]


def test_objects_are_read_over_lines(server: Server) -> None:
    """An output that is an object or a list has a line for each of its parts, a text is as it is."""
    (server.folder / "shape.yaml").write_text(SHAPE)
    call(server.folder, "run", "shape.yaml", "--input", "one line", "--run-id", "shape")
    made = '{\n  "a": [\n    1,\n    "x"\n  ]\n}'.replace('"', "&#34;")
    whole = server.ask("/runs/shape")[1]
    assert f">{made}</pre>" in whole
    assert ">one line</pre>" in whole
    assert f">{made}</pre>" in server.ask("/runs/shape/iteration?loop=shape/made&number=1")[1]
    assert server.ask("/runs/shape/export/html")[1].count(f">{made}</pre>") == 2


def test_what_is_too_long_says_how_much_there_is(server: Server) -> None:
    """A report holds so much of a text, and says how much more there is and where to get it."""
    (server.folder / "shape.yaml").write_text(SHAPE)
    server.folder.joinpath("long.txt").write_text("x" * 100_250)
    call(server.folder, "run", "shape.yaml", "--input-file", "long.txt", "--run-id", "long")
    report = server.ask("/runs/long/export/html")[1]
    assert "[… 250 more characters; the JSON export has the full text]" in report
