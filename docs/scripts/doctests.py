"""An extension of griffe: an example in a docstring is shown as code.

griffe reads `>>>` in a section "Examples" only, not in our sections "Example"; elsewhere Markdown would make it a
quotation.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^>>> .*(?:\n(?!\s*$).*)*", re.MULTILINE)


class Doctests(griffe.Extension):
    """Put the examples of every docstring into a fence."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of one object."""
        if obj.docstring is not None:
            text = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)
            obj.docstring.value = _EXAMPLE.sub(r"```pycon\n\g<0>\n```", text)
