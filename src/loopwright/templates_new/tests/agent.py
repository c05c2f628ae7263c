"""Stands for a coding agent: it repairs one function in each iteration."""

import os
from pathlib import Path

file = Path("prices.py")
text = file.read_text()
if os.environ["ITERATION"] == "1":
    text = text.replace(" + 1", "")
else:
    text = text.replace("max(", "min(")
file.write_text(text)
