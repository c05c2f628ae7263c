"""Templates and patches to HTML: all values are escaped, so that a model's text is shown and never interpreted.

The lines of a patch are for the page and for reports, which need no web server.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ...errors import ConfigurationError, RunNotFound
from ...records import display as charts
from ...records.codec import Json, text_of
from ...records.evaluation import number_text
from ...records.history import why
from ...records.redaction import of_environment
from .. import formatting as texts
from ..rows import LINE_INPUT, SHORT, short
from ..trace import answer_of

MAX_DIFF = 200_000  # characters of a difference on a page and in a report


@dataclass(frozen=True, slots=True)
class PatchLine:
    """A line of a patch: `file`, `header`, `hunk`, `added`, `removed` or `same`."""

    kind: str
    text: str


def lines_of(patch: str) -> list[PatchLine]:
    """Return the lines of a patch without the secrets of this process, and without those over the limit."""
    # Before the cut: a key that is cut in two is not found.
    text = str(of_environment(os.environ).clean(patch))
    lines = list(_classified(text[:MAX_DIFF].splitlines()))
    if len(text) > MAX_DIFF:
        rest = f"{len(text) - MAX_DIFF:,} more characters; loopwright files diff has the complete patch"
        lines.append(PatchLine("header", rest))
    return lines


def _classified(lines: Iterable[str]) -> Iterator[PatchLine]:
    signs = {"@": "hunk", "+": "added", "-": "removed"}
    header = False
    for line in lines:
        starts = line.startswith("diff --git ")
        # After the first hunk, `---` is a removed line that begins with two dashes.
        header = starts or (header and not line.startswith("@@ "))
        kind = "header" if header else signs.get(line[:1], "same")
        yield PatchLine("file" if starts else kind, line)


_HERE = Path(__file__).parent
STATIC = _HERE / "static"
_IN_NAVIGATION = ("runs", "start", "workers", "replay", "judges")
# The command line has a table of the same codes, with its commands and options.
_ADVICE = {
    "list_runs": ". The page Runs lists the runs.",
    "mix_versions": ': select "Mix runs of several fingerprints"',
    "raise_limit": ': "Raise a limit" on the page of the run',
    "path": ' in the field "Path"',
}
_DIGEST = 12  # characters of the digest in the address of static files


def sentence_of(error: Exception) -> str:
    """Return the message of an error, with an advice that names the controls of the page."""
    if isinstance(error, RunNotFound):
        return error.what  # its advice is a command
    advice = error.advice if isinstance(error, ConfigurationError) else ""
    return f"{error}{_ADVICE.get(advice, '')}"


@cache
def static_path() -> str:
    """Return the address of the static files; it changes with their contents, so that they can be cached."""
    files = sorted(path for path in STATIC.iterdir() if path.is_file())
    digest = hashlib.sha256(b"".join(path.name.encode() + path.read_bytes() for path in files))
    return f"/static/{digest.hexdigest()[:_DIGEST]}"


def readable(value: Json) -> str:
    """Return a value as text; an object or a list is indented JSON."""
    if isinstance(value, dict | list) and value:
        return json.dumps(json.loads(text_of(value)), ensure_ascii=False, indent=2)
    return text_of(value)


def cut(text: str, maximum: int) -> str:
    """Return at most `maximum` characters of a text, with a line on the rest."""
    left = len(text) - maximum
    if left <= 0:
        return text
    return f"{text[:maximum]}\n[… {left:,} more characters; the JSON export has the full text]"


def _moment(at: float) -> Markup:
    """Return a time relative to now, with the exact one for those who point at it."""
    exact = texts.when(at)
    stamp = datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
    return Markup('<time datetime="{}" title="{}">{}</time>').format(stamp, exact, texts.ago(at))


@cache
def _environment() -> Environment:
    from .told import told

    environment = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        # For all templates: an output of a model is never markup.
        autoescape=True,
        # A misspelt name is an error in a test and not an empty cell.
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # The files of an installed package do not change while it runs.
        auto_reload=False,
    )
    environment.filters |= {
        "answer": answer_of,
        "line": lambda value: texts.one_line(str(value)),
        "score": texts.score,
        "measured": texts.measured,
        "rated": texts.rated,
        "number": number_text,
        "why": why,
        "cost": texts.cost,
        "duration": texts.duration,
        "when": texts.when,
        "moment": _moment,
        "told": told,
        "limited": lambda value, most: (
            value if len(text_of(value)) <= most else cut(readable(value), most)
        ),
        "place": texts.place,
        "beginning": lambda value: short(texts.one_line(text_of(value)[:LINE_INPUT]), SHORT),
        "text": text_of,
        "readable": readable,
        # Safe markup, because it contains only numbers.
        "sparkline": lambda scores: Markup(charts.sparkline(scores)),  # noqa: S704
    }
    return environment


def render(template: str, **values: object) -> str:
    """Return a template with its values, escaped."""
    name = template.removesuffix(".html")
    here = name if name in _IN_NAVIGATION else ""
    template_of = _environment().get_template(template)
    return template_of.render(here=here, static=static_path(), **values)


def macro(name: str, *values: object) -> str:
    """Return the result of a macro of `parts.html`, escaped."""
    environment = getattr(_environment().get_template("parts.html").module, name)
    return str(environment(*values))
