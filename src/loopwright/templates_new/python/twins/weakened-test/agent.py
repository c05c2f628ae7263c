"""An agent that changes what the test expects."""

import sys
from pathlib import Path

sys.stdin.read()
file = Path("test_slug.py")
file.write_text(file.read_text().replace("loops-that-end", "Loops-that-End"))
