"""Hostile templates, escapes and bombs: what they are rendered with, and how each one ends.

Each payload is a name and a template source. `run_all` renders every one in a process of its own
and reports how it ended; run as a script it prints these reports as JSON.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from template_bombs import BOMBS
from template_escapes import ESCAPES

from loopwright.errors import nearest
from loopwright.templates import TemplateError, TemplateValue, compile_template

CANARY = "canary-3f1c"
CPU_SECONDS = 20
MEMORY_BYTES = 2 * 1024**3
WATCHED = ("open", "exec", "import", "os.", "subprocess.", "socket.", "ctypes.", "shutil.", "pty.")


class Host:
    """A callable that holds a secret, as a careless caller may pass one."""

    api_key = CANARY

    def __call__(self, *args: Any, **kwargs: Any) -> str:
        return "called"


def values() -> dict[str, Any]:
    """What the payloads are rendered with."""
    return {
        "name": "Ada",
        "items": [3, 1, 2],
        "d": {"a": 1, "b": {"c": [1, 2]}},
        "rows": [{"k": "x", "v": 1}, {"k": "y", "v": 2}],
        "obj": TemplateValue("text", {"response": "r"}),
        "big": "ab c " * 20_000,
        "wide": "\U0001f600 é" * 20_000,
        "many": list(range(10_000)),
        "deep": [{"n": {"n": {"n": {"n": 1}}}}] * 1000,
        "second": "{{ fn.api_key }}{% for i in range(9) %}x{% endfor %}",
    }


PAYLOADS: dict[str, str] = {f"escape: {name}": source for name, source in ESCAPES.items()} | {
    f"bomb: {name}": source for name, source in BOMBS.items()
}


def render(source: str, *, strict: bool = True) -> tuple[str, str]:
    """Compile and render a payload: how it ended, and its text or the error."""
    helpers: dict[str, Callable[..., Any]] = {
        "fn": Host(),
        "rows_of": lambda: [{"n": 1, "t": "x"}] * 1000,
    }
    try:
        template = compile_template(source, strict=strict)
        return "rendered", template.render(values() | {"a": 1}, helpers)
    except TemplateError as error:
        return "refused", str(error)


def _report(source: str, strict: bool, events: list[str]) -> dict[str, Any]:
    events.clear()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begun, used = time.perf_counter(), time.process_time()
    outcome, text = render(source, strict=strict)
    seconds = time.perf_counter() - begun
    processor = time.process_time() - used
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {
        "outcome": outcome,
        "text": text[:400],
        "leaked": CANARY in text,
        "seconds": seconds,
        "processor_seconds": processor,
        "megabytes": grown / 1024,
        "events": [event for event in events if event != "exec"],
    }


def _in_child(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Do work in a forked process with limits, and return what it reports, or how it died."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        with os.fdopen(writer, "w") as out:
            out.write(json.dumps(work()))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        text = answer.read()
    _, status = os.waitpid(child, 0)
    return json.loads(text) if text else {"outcome": f"died with status {status}"}


def run_all(*, strict: bool = True) -> dict[str, dict[str, Any]]:
    """Render every payload in a process of its own, watched by an audit hook."""
    render("{% for i in items %}{{ i|string }}{{ fn('x') }}{% endfor %}")  # loads what loads late
    nearest("itms", ["items"])  # messages with the nearest name need `difflib`
    events: list[str] = []
    sys.addaudithook(
        lambda event, args: events.append(event) if event.startswith(WATCHED) else None
    )
    reports = {}
    for name, source in PAYLOADS.items():
        reports[name] = _in_child(partial(_report, source, strict, events))
    return reports


if __name__ == "__main__":
    json.dump(run_all(strict="--lenient" not in sys.argv), sys.stdout)
