"""The notebook of the examples runs in a kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.programs import EXAMPLES, python

pytestmark = pytest.mark.slow

PRINTED = """\
satisfied 5
one word-1 word-2 word-3 word-4
1 0.20 1 of 5 different words
2 0.40 2 of 5 different words
3 0.60 3 of 5 different words
4 0.80 4 of 5 different words
5 1.00 5 of 5 different words
True
satisfied it names no other place
Closed on Friday. Eat at the food trucks.
"""


def test_the_cells_of_the_notebook_run(tmp_path: Path) -> None:
    """Each cell runs in order in a new kernel, and prints what the guide explains."""
    script = Path(__file__).parent / "execute.py"
    assert python(script, EXAMPLES / "notebook.ipynb", cwd=tmp_path) == PRINTED
