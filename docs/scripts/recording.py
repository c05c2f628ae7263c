"""Record the terminal session of the documentation as an animated SVG: `make docs-images`.

Runs the commands in a pseudo-terminal in a temporary folder and saves each line with the time at which it appeared.
Nothing is written by hand. The script fails if the session does not end as the documentation says.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from dataclasses import dataclass
from html import escape
from pathlib import Path

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text

ROOT = Path(__file__).parents[2]
TARGET = ROOT / "docs" / "images" / "terminal.svg"
EXAMPLE = "loopwright run examples/job_matching/job_matching.yaml --yes"
INTERRUPTED_AFTER = "matching 3"
COLUMNS = 116
SECONDS = 60.0
PAUSE = 0.9  # seconds before a command and after it, so that a reader can follow
LONGEST = 0.8  # seconds between two lines
HOLD = 4.0  # seconds that the last picture stays

ERASE, UP = "\x1b[2K", "\x1b[1A"
CURSOR = re.compile(r"\x1b\[(?:\?25[hl]|\d*[A-HJK])|\r")
COLOURS = {1: "#e06c75", 2: "#98c379", 3: "#e5c07b", 4: "#61afef", 5: "#c678dd", 6: "#56b6c2"}
FONT, WIDTH, HEIGHT, EDGE = 14, 8.43, 20, 16


@dataclass
class Line:
    """A line of the terminal, and the second at which it appeared."""

    text: Text
    at: float


def play(command: str, folder: Path, *, interrupt_after: str = "") -> list[Line]:
    """Run a command in a pseudo-terminal; send Ctrl-C once a text has appeared."""
    main, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, COLUMNS, 0, 0))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LOOPWRIGHT")}
    path = os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", "")])
    settings = {"PATH": path, "TERM": "xterm-256color", "XDG_STATE_HOME": str(folder / "state")}
    process = subprocess.Popen(
        command.split(), cwd=folder, env=kept | settings,
        stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True,
    )  # fmt: skip
    os.close(terminal)
    begin, pending, lines = time.monotonic(), "", list[Line]()
    while chunk := _read(main):
        *complete, pending = (pending + chunk).split("\n")
        now = time.monotonic() - begin
        for raw in complete:
            if UP in raw and lines:  # the line above is replaced
                lines.pop()
            lines.append(Line(Text.from_ansi(CURSOR.sub("", raw.split(ERASE)[-1])), now))
        if interrupt_after and any(interrupt_after in line.text.plain for line in lines):
            process.send_signal(signal.SIGINT)
            lines.append(Line(Text("^C"), now))
            interrupt_after = ""
    os.close(main)
    process.wait(timeout=SECONDS)
    return lines


def _read(terminal: int) -> str:
    """Return the next output of a terminal, or "" at its end."""
    try:
        return os.read(terminal, 65536).decode("utf-8", "replace")
    except OSError:  # the end of a pseudo-terminal on Linux
        return ""


def session(folder: Path) -> list[Line]:
    """Run the session: a run, Ctrl-C, and its resume."""
    lines: list[Line] = []
    for command, interrupt in ((EXAMPLE, INTERRUPTED_AFTER), ("loopwright resume last", "")):
        start = lines[-1].at + PAUSE if lines else 0.0
        lines.append(Line(Text(f"$ {command}", style="bold"), start))
        before = start + PAUSE
        previous = 0.0
        for line in play(command, folder, interrupt_after=interrupt):
            before += min(line.at - previous, LONGEST)
            previous = line.at
            lines.append(Line(line.text, before))
    return lines


def drawing(lines: list[Line]) -> str:
    """Return the animated SVG; a browser that reduces motion shows the last picture."""
    total = lines[-1].at + HOLD
    width = EDGE * 2 + max(cell_len(line.text.plain) for line in lines) * WIDTH
    height = EDGE * 2 + len(lines) * HEIGHT
    frames, rows = [], []
    for i, line in enumerate(lines):
        share = f"{100 * line.at / total:.2f}%"
        frames.append(f"@keyframes l{i}{{0%,{share}{{opacity:0}}{share},100%{{opacity:1}}}}")
        style = f' style="animation-name:l{i}"' if line.at else ""
        spans = "".join(_spans(line.text))
        rows.append(
            f'<text x="{EDGE}" y="{EDGE + (i + 0.75) * HEIGHT:g}"{style} xml:space="preserve">{spans}</text>'
        )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" role="img">'
        "<title>A run is interrupted with Ctrl-C and resumed</title><style>"
        f"text{{font:{FONT}px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#d7dae0;"
        f"animation:{total:.1f}s steps(1) infinite}}{''.join(frames)}"
        "@media(prefers-reduced-motion:reduce){text{animation:none}}</style>"
        f'<rect width="100%" height="100%" rx="8" fill="#1e2127"/>{"".join(rows)}</svg>\n'
    )


def _spans(text: Text) -> list[str]:
    """Return a line as spans with a colour each, at the columns of the terminal."""
    result = []
    for start, end in _pieces(text):
        part = text.plain[start:end]
        if not part.strip():
            continue
        styles = [span.style for span in text.spans if span.start <= start < span.end]
        style = sum((Style.parse(str(one)) for one in (text.style, *styles) if one), Style())
        colour = (
            COLOURS.get(style.color.number or 0) if style.color and style.color.number else None
        )
        look = f' fill="{colour}"' if colour else ""
        look += ' font-weight="bold"' if style.bold else ""
        look += ' opacity=".65"' if style.dim else ""
        x = EDGE + cell_len(text.plain[:start]) * WIDTH
        width = cell_len(part) * WIDTH
        result.append(
            f'<tspan x="{x:.1f}" textLength="{width:.1f}" lengthAdjust="spacingAndGlyphs"{look}>{escape(part)}</tspan>'
        )
    return result


def _pieces(text: Text) -> list[tuple[int, int]]:
    """Return the places between which the style does not change."""
    ends = {0, len(text.plain), *(place for span in text.spans for place in (span.start, span.end))}
    cuts = sorted(place for place in ends if place <= len(text.plain))
    return list(itertools.pairwise(cuts))


def main() -> int:
    """Record the session, check it, and save it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(
            ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns(".loopwright")
        )
        lines = session(folder)
    shown = "\n".join(line.text.plain for line in lines)
    for wanted in (INTERRUPTED_AFTER, "^C", "loopwright resume", "Satisfied"):
        if wanted not in shown:
            print(f"the recording lacks {wanted!r}:\n{shown}", file=sys.stderr)
            return 1
    TARGET.write_text(drawing(lines), "utf-8")
    print(f"{TARGET.relative_to(ROOT)}: {TARGET.stat().st_size / 1000:.0f} KB, {len(lines)} lines")
    return 0


if __name__ == "__main__":
    sys.exit(main())
