"""Foreign dialects: each becomes a native document."""

from __future__ import annotations
