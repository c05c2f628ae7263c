"""A page of text as PDF, the least that is valid: one font of the fourteen that every reader has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Line(NamedTuple):
    """A line of text at a place, in points from the lower left corner."""

    x: float
    y: float
    text: str
    size: float


def page(lines: Iterable[Line]) -> bytes:
    """Return a PDF of one page (ISO 32000-1, 7.5 and 9.4); letters are those of Windows-1252."""
    shown = b"\n".join(
        b"BT /F1 %g Tf %g %g Td (%b) Tj ET" % (line.size, line.x, line.y, _escaped(line.text))
        for line in lines
    )
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        (
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R "
            b"/Resources << /Font << /F1 5 0 R >> >> >>"
        ),
        b"<< /Length %d >>\nstream\n%b\nendstream" % (len(shown), shown),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    ]
    written, places = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        places.append(len(written))
        written += b"%d 0 obj\n%b\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    return written + (
        b"xref\n0 %d\n0000000000 65535 f \n%btrailer\n<< /Size %d /Root 1 0 R >>\n"
        b"startxref\n%d\n%%%%EOF\n" % (len(objects) + 1, table, len(objects) + 1, len(written))
    )


def _escaped(text: str) -> bytes:
    found = text.encode("cp1252", "replace")
    for special in (b"\\", b"(", b")"):
        found = found.replace(special, b"\\" + special)
    return found
