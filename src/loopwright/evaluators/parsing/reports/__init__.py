"""Readers of test reports: JUnit's XML, `go test -json`, TAP and TRX.

The tested code may write the report, so each reader has limits and refuses entities.
"""

from __future__ import annotations

from pathlib import Path

from .cases import TestCase, TestReport, TestState, UnreadableReport, merged
from .lines import read_go, read_tap
from .xml import read_xml

__all__ = [
    "REPORT_BYTES",
    "TestCase",
    "TestReport",
    "TestState",
    "UnreadableReport",
    "merged",
    "read_report",
    "read_report_file",
]

REPORT_BYTES = 64 * 1024 * 1024  # a bound for memory: the tested code may write the report


def read_report(data: bytes) -> TestReport:
    """Read a report in JUnit's XML format, TRX, `go test -json` or TAP.

    Args:
        data: The content of the report, at most 64 MiB.

    Raises:
        UnreadableReport: If it is in no such format or passes a limit.

    Example:
        >>> read_report(b"1..2\\nok 1 - adds\\nnot ok 2 - divides\\n").failures[0].id
        'divides'
    """
    if len(data) > REPORT_BYTES:
        raise UnreadableReport(f"it is larger than {REPORT_BYTES} bytes")
    beginning = data.removeprefix(b"\xef\xbb\xbf").lstrip()[:9]
    if not beginning:
        raise UnreadableReport("it is empty")
    if beginning.startswith((b"<", b"\xff\xfe", b"\xfe\xff")):
        return read_xml(data)
    if beginning.startswith(b"{"):
        return read_go(data)
    return read_tap(data)


def read_report_file(path: Path) -> TestReport:
    """Read the report in a file.

    Raises:
        OSError: If it cannot be read.
        UnreadableReport: If it is in no known format or passes a limit.
    """
    with path.open("rb") as file:
        # One byte more than allowed, instead of the file's size, which may change before the read.
        return read_report(file.read(REPORT_BYTES + 1))
