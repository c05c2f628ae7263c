"""Write the resumes, but those in resumes/unseen, and what is in them: `python make_resumes.py`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from layouts import LAYOUTS
from people import PEOPLE

FOLDER = Path(__file__).parent / "resumes"
ENDINGS = {"text": "txt", "html": "html", "pdf": "pdf"}


def main(folder: Path) -> None:
    """Write a file for each person, and expected.json."""
    folder.mkdir(parents=True, exist_ok=True)
    expected = {}
    for number, person in enumerate(PEOPLE, 1):
        kind, _, layout = person.layout.partition("_")
        name = f"{number:02}-{person.language}-{layout.replace('_', '-')}.{ENDINGS[kind]}"
        drawn = LAYOUTS[person.layout](person)
        (folder / name).write_bytes(drawn if isinstance(drawn, bytes) else drawn.encode())
        expected[name] = person.expected()
    text = json.dumps(expected, indent=1, ensure_ascii=False)
    (folder / "expected.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
