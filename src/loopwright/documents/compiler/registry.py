"""The kinds of steps of a document, each with the function that compiles it: a new kind is one line here."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from .agents import compile_phased, compile_reasoning
from .calls import compile_call, compile_python
from .compilation import CompileKind
from .loops import compile_loop
from .prompts import compile_consensus, compile_prompt
from .steps import (
    compile_each,
    compile_fallback,
    compile_memory,
    compile_parallel,
    compile_set,
    compile_steps,
)
from .tools import compile_command, compile_tool_step

__all__ = ["KINDS"]

KINDS: Mapping[str, CompileKind] = MappingProxyType(
    {
        "python": compile_python,
        "shell": compile_command,
        "workflow": compile_call,
        "loop": compile_loop,
        "each": compile_each,
        "consensus": compile_consensus,
        "steps": compile_steps,
        "parallel": compile_parallel,
        "fallback": compile_fallback,
        "prompt": compile_prompt,
        "tool": compile_tool_step,
        "phased": compile_phased,
        "reasoning": compile_reasoning,
        "memory": compile_memory,
        "set": compile_set,
    }
)
