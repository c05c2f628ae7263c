"""Wrong documents with all that is said of each, whole: place, path, what, and the nearest name."""

from __future__ import annotations

from documents.wrong_evaluations import EVALUATIONS
from documents.wrong_heads import Wrong
from documents.wrong_loops import LOOPS
from documents.wrong_outlines import OUTLINES
from documents.wrong_parts import PARTS
from documents.wrong_references import REFERENCES
from documents.wrong_steps import STEPS

__all__ = ["FILES", "WRONG"]

FILES = {
    "steps.py": "def upper(value):\n    return str(value).upper()\n\ndef rate(output):\n    return 0.5\n\ndef longer(last):\n    return last.output\n\nnumber = 3\n",
    "broken.py": "def f(:\n",
    "raises.py": "raise OSError('no luck')\ndef f(value): ...\n",
    "exits.py": "import sys\nsys.exit(3)\ndef f(value): ...\n",
    "child.yaml": "schema: loopwright/1\nname: child\nsteps: [{name: first, set: 1}, {name: second, set: 2}]\n",
    "needs.yaml": "schema: loopwright/1\nname: needy\nsteps:\n  - {name: first, set: '{{ topic }}'}\n",
    "wrong_child.yaml": "schema: loopwright/1\nname: wrong\nsteps: [{name: first, sett: 1}]\n",
    "back.yaml": "schema: loopwright/1\nname: back\nsteps: [{name: back, workflow: document.yaml}]\n",
    "binary.yaml": b"\xff\xfe\x00",
}

WRONG: Wrong = OUTLINES | STEPS | REFERENCES | LOOPS | EVALUATIONS | PARTS
