"""The dialect `workflow/v2.0`."""

from __future__ import annotations
