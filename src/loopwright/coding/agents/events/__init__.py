"""Readers of the output of coding agents: lines in, facts and live lines out."""

from __future__ import annotations

from ..manifest import Manifest
from .claude import ClaudeReader, QwenReader
from .codex import CodexReader
from .gemini import GeminiReader
from .opencode import OpenCodeReader
from .reader import EventReader
from .text import AiderReader, FieldsReader, TextReader

__all__ = ["EventReader", "reader_of"]

_READERS: dict[str, type[EventReader]] = {
    "claude": ClaudeReader,
    "codex": CodexReader,
    "gemini": GeminiReader,
    "qwen": QwenReader,
    "opencode": OpenCodeReader,
    "aider": AiderReader,
    "text": TextReader,
    "fields": FieldsReader,
}


def reader_of(manifest: Manifest) -> EventReader:
    """Return a new reader for one call of the agent of a manifest."""
    return _READERS[manifest.events](manifest)
