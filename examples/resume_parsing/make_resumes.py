"""Write the resumes, but the one by hand, and what is to be found in them: `python make_resumes.py`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from layouts import LAYOUTS
from people import PEOPLE

FOLDER = Path(__file__).parent / "resumes"
ENDINGS = {"text": "txt", "html": "html", "pdf": "pdf"}

BY_HAND: dict[str, Any] = {
    "33-de-letter.txt": {
        "name": "Katrin Albers",
        "email": "katrin.albers@example.de",
        "phone": "05121 987654",
        "skills": ["Massivholz", "CNC", "AutoCAD"],
        "experience": [
            {"title": "Tischlerin", "company": "Möbelwerkstatt Lindner", "from": 2009, "to": 2015},
            {"title": "Leiterin der Werkstatt", "company": "Bühne Nord", "from": 2015, "to": None},
        ],
        "education": [{"degree": "Meisterbrief", "school": "Holzfachschule Hildesheim"}],
    }
}


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
    expected |= BY_HAND
    text = json.dumps(expected, indent=1, ensure_ascii=False)
    (folder / "expected.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
