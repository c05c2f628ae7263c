"""Stands for a coding agent: it repairs the function."""

import sys
from pathlib import Path

sys.stdin.read()  # the task, with the output of the test
file = Path("slug.py")
file.write_text(file.read_text().replace("title.replace", "title.lower().replace"))
