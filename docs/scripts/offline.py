"""Check that built sites load nothing from another host: `python docs/scripts/offline.py FOLDER...`.

A link that a reader follows may lead anywhere. What a browser loads by itself may not.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

LOADED = {
    "script": ("src",), "link": ("href",), "img": ("src", "srcset"), "iframe": ("src",),
    "source": ("src", "srcset"), "video": ("src", "poster"), "audio": ("src",), "object": ("data",),
}  # fmt: skip
NOT_LOADED = {"canonical", "alternate", "next", "prev", "edit"}
FOREIGN = re.compile(r"^(?:https?:)?//", re.IGNORECASE)
IN_STYLES = re.compile(r"""(?:url\(\s*|@import\s+)['"]?((?:https?:)?//[^'")\s]+)""", re.IGNORECASE)


class Loads(HTMLParser):
    """Collects the foreign addresses that a page loads."""

    def __init__(self) -> None:
        super().__init__()
        self.foreign: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Look at the attributes of an element that a browser loads."""
        values = dict(attrs)
        if tag == "link" and NOT_LOADED & set((values.get("rel") or "").split()):
            return
        self.foreign += [
            value for name in LOADED.get(tag, ()) if FOREIGN.match(value := values.get(name) or "")
        ]


def foreign(folder: Path) -> Iterator[str]:
    """Iterate over what the files of a site load from other hosts."""
    for page in sorted(folder.rglob("*.html")):
        loads = Loads()
        loads.feed(page.read_text("utf-8"))
        yield from (f"{page}: {address}" for address in loads.foreign)
    for style in sorted(folder.rglob("*.css")):
        addresses = IN_STYLES.findall(style.read_text("utf-8"))
        yield from (f"{style}: {address}" for address in addresses)


def main() -> int:
    """Print each foreign address, and return 1 if there is one."""
    problems: list[str] = []
    for name in sys.argv[1:]:
        folder = Path(name)
        if not (folder / "index.html").exists():
            problems.append(f"{folder}: there is no index.html")
        problems += foreign(folder)
    print(*problems, sep="\n", end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
