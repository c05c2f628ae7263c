"""Readers of test reports: JUnit's XML, `go test -json`, TAP and TRX.

The tested code may write the report, so each reader has limits and refuses entities.
"""

from .cases import TestCase, TestReport, TestState, UnreadableReport, merged
from .detect import REPORT_BYTES, read_report, read_report_file

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
