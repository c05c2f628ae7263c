"""A result as it is compared with the one on record: without times and ids, and without what was spent."""

from __future__ import annotations

from typing import Any

from loopwright import Result

_LEFT_OUT = frozenset(
    (
        "seconds", "usage", "usage_by", "run_id", "traceback", "warnings", "since", "timestamp",
        "tokens", "at", "started_at", "completed_at", "last_interaction_at",
    )
)  # fmt: skip


def plain(result: Result) -> Any:
    """Return a result as JSON without what differs between two runs of the same program."""
    return _strip(result.to_json())


def _strip(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _strip(value) for key, value in data.items() if key not in _LEFT_OUT}
    return [_strip(item) for item in data] if isinstance(data, list) else data
