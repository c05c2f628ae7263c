"""Every way in which an endpoint can fail, what it does, and which fault that must be."""

from __future__ import annotations

from faults_case import Case
from faults_replies import CONTENTS, GOOD
from faults_statuses import STATUSES
from faults_streams import CONNECTIONS, STREAMS


def cases() -> list[Case]:
    """Every case, in order."""
    return [*STATUSES, *CONNECTIONS, *STREAMS, *CONTENTS, *GOOD]
