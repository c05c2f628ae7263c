"""Documents: reading and checking them."""

from __future__ import annotations

import gc
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from loopwright.documents import Settings, load
from loopwright.models.providers.endpoints import PROVIDER_NAMES

from .measuring import Row

HEAD = "schema: loopwright/1\nname: many\nmodel: openai:gpt-4o-mini\nsteps:\n- {name: s0, set: 1}\n"
KINDS = {
    "values": "- {{name: s{i}, set: '{{{{ s{p} }}}} and {i}'}}",
    "prompts": "- name: s{i}\n  prompt: |\n    Write about {{{{ input }}}}, part {i}\n"
    "    {{% if s{p} %}}after {{{{ s{p} | upper }}}}{{% endif %}}",
    "loops": "- name: s{i}\n  loop:\n    execute: {{prompt: 'Write {i} {{{{ loop.last.feedback }}}}'}}\n"
    "    evaluate: {{check: {{min_words: 3}}}}\n    adapt: feedback\n    until: [passed, {{max_iterations: 3}}]",
}
ROOT = Path(__file__).parents[1]


def rows() -> Iterator[Row]:
    """Measure and yield the figures."""
    with tempfile.TemporaryDirectory() as folder:
        one = Path(folder) / "one.yaml"
        one.write_text(HEAD)
        start = _process(one)
        for kind, step in KINDS.items():
            file = Path(folder) / f"{kind}.yaml"
            file.write_text(HEAD + "\n".join(step.format(i=i, p=i - 1) for i in range(1, 500)))
            whole = _process(file)
            note = f"in all {whole:.2f} s, of which a document of one step takes {start:.2f} s"
            yield Row(f"check of 500 {kind}, after start-up", whole - start, 0.5, "s", note)
    texts = {file: file.read_text() for file in (ROOT / "examples").rglob("*.yaml")}
    files = [file for file, text in texts.items() if re.search(r"(?m)^(steps|orchestrator):", text)]
    for file in sorted(files, key=lambda file: file.stat().st_size)[-1:]:
        lines = len(texts[file].splitlines())
        what = f"reading the largest example, {file.name} of {lines} lines"
        yield Row(what, _reading(file) * 1000, 30, "ms", "after imports, for the first time")


def _process(file: Path) -> float:
    """Return the CPU seconds of `loopwright check` in a process of its own."""
    command = [sys.executable, "-m", "loopwright", "check", str(file)]
    program = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL); "
        "used = resource.getrusage(resource.RUSAGE_CHILDREN); print(used.ru_utime + used.ru_stime)"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", program, *command], capture_output=True, check=True, text=True
        )
        for _ in range(5)
    ]
    return statistics.median(float(run.stdout) for run in runs)


def _reading(file: Path) -> float:
    """Return the CPU seconds of reading a document that was not read before."""
    settings = Settings(execute=False, providers=PROVIDER_NAMES)
    gc.freeze()  # as the command line does
    began = time.process_time()
    load(file, settings)
    return time.process_time() - began


if __name__ == "__main__":
    for row in rows():
        print(row)
