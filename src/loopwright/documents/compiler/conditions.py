"""A condition of the document's author, in a document that is only checked."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...conditions import Condition
from ...records import History, Stop
from ...records.codec import Json

__all__ = ["NotImported"]


@dataclass(frozen=True)
class NotImported(Condition):
    """Stands for a class that is imported when the document runs, and not before."""

    reference: str
    written: dict[str, Json] = field(hash=False)

    def check(self, history: History) -> Stop | None:
        """Never called: a document that is only checked is not run."""
        raise AssertionError(f"{self.reference}: a document loaded for checking is not run")

    def __str__(self) -> str:
        return self.reference

    def to_json(self) -> Json:
        """Return it as the document has it."""
        return dict(self.written)
