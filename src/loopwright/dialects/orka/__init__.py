"""The dialect of loop nodes: an orchestrator and its agents."""

from __future__ import annotations
