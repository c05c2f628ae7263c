"""A state of a loop that is one text in memory: what a workspace is with files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Text:
    """The state of one loop: `now` is the text, which steps change."""

    now: str = "start"
    kept: dict[str, str] = field(default_factory=dict)
    named: dict[str, str] = field(default_factory=dict)
    folder = root = source = Path("/nowhere")
    shown: tuple[Path, ...] = ()
    covered: tuple[Path, ...] = ()
    stops_at_edits = False

    @property
    def variables(self) -> dict[str, str]:
        return {}

    def leave_out(self, patterns: Sequence[str]) -> None:
        del patterns

    async def open(self, begun: Any = None) -> str:
        del begun
        return ""

    async def begin(self) -> Any:
        return await self.capture("begin", "")

    async def capture(self, name: str, parent: str) -> Any:
        changed = self.kept.get(parent) != self.now
        self.kept[self.now] = self.now
        self.named[name] = self.now
        return {"commit": self.now, "tree": self.now, "files": int(changed)}

    async def restore(self, commit: str, *, busy: bool, edits: str = "adopt") -> Any:
        del busy, edits
        self.now = self.kept[commit]

    async def changes(self, commit: str) -> str:
        return commit

    async def find(self, name: str) -> str:
        return self.named.get(name, "")

    async def end(self, result: Any, snapshot: Any) -> Any:
        del result, snapshot
        return {}

    async def aclose(self) -> None:
        """Release nothing."""


@dataclass(frozen=True)
class TextSource:
    """The declaration of such a state, which all processes of a test share."""

    text: Text = field(default_factory=Text)
    on_cancel: str = "best"

    def fingerprint_with(self, refine_from: str) -> str:
        return refine_from

    def state(self, run: Any, path: str) -> Any:
        del run, path
        return self.text
