"""The command of an agent: words for a shell, or those of a coding agent with a manifest."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import NamedTuple

from ..errors import ConfigurationError

__all__ = [
    "AGENT_OUTPUT",
    "KNOWN",
    "KnownAgent",
    "has_placeholder",
    "known_agent",
    "program_of",
    "script_of",
]

# A word of the agent's command, and the variable that stands for it.
PLACEHOLDERS = {
    "{prompt}": "LOOPWRIGHT_PROMPT",
    "{feedback}": "LOOPWRIGHT_FEEDBACK",
    "{feedback_file}": "LOOPWRIGHT_FEEDBACK_FILE",
    "{iteration}": "LOOPWRIGHT_ITERATION",
}
# The coding agents with a manifest, each with the word before its prompt.
KNOWN = {"claude": "", "codex": "exec", "gemini": "", "qwen": "", "opencode": "run", "aider": ""}
# The file must exist as long as the agent; an exit code of an agent is no verdict, but 126 and 127 say
# that it did not run.
_SCRIPT = """\
LOOPWRIGHT_FEEDBACK_FILE=$(mktemp)
export LOOPWRIGHT_FEEDBACK_FILE
errors=$(mktemp)
trap 'rm -f "$LOOPWRIGHT_FEEDBACK_FILE" "$errors"' EXIT
printf '%s\\n' "$LOOPWRIGHT_FEEDBACK" > "$LOOPWRIGHT_FEEDBACK_FILE"
code=0
{command} 2> "$errors" || code=$?
cat "$errors" >&2
last=$(tail -n 5 "$errors" | tail -c 2000)
[ "$code" -eq 0 ] || printf 'The agent exited with %s%s\\n' "$code" "${{last:+: }}${{last:-.}}"
[ "$code" -ne 126 ] && [ "$code" -ne 127 ]
"""
# Of earlier versions: the fingerprint of a step has it, so that their runs can be resumed.
_RECORDED = """\
LOOPWRIGHT_FEEDBACK_FILE=$(mktemp)
export LOOPWRIGHT_FEEDBACK_FILE
trap 'rm -f "$LOOPWRIGHT_FEEDBACK_FILE"' EXIT
printf '%s\\n' "$LOOPWRIGHT_FEEDBACK" > "$LOOPWRIGHT_FEEDBACK_FILE"
code=0
{command} || code=$?
[ "$code" -eq 0 ] || echo "The agent exited with $code."
[ "$code" -ne 126 ] && [ "$code" -ne 127 ]
"""
AGENT_OUTPUT = 1_000_000  # bytes of each stream of the agent that are recorded


class KnownAgent(NamedTuple):
    """A coding agent with a manifest: its name or file, the prompt and the other words."""

    cli: str
    prompt: str
    words: list[str]


def known_agent(agent: Sequence[str]) -> KnownAgent | None:
    """Return the coding agent that a command starts; None for other commands.

    >>> known_agent(["claude", "-p", "fix it", "--verbose"])
    KnownAgent(cli='claude', prompt='fix it', words=['--verbose'])
    """
    program, words = agent[0], list(agent[1:])
    is_agent = program in KNOWN or program.endswith((".yaml", ".yml"))
    if not is_agent or has_placeholder(agent):
        return None
    if words[:1] == [KNOWN.get(program, "")]:
        del words[0]
    for flag in ("-p", "--prompt", "--message"):
        if flag in words[:-1]:
            place = words.index(flag)
            return KnownAgent(program, words[place + 1], words[:place] + words[place + 2 :])
    if words and not words[-1].startswith("-"):
        return KnownAgent(program, words[-1], words[:-1])
    return KnownAgent(program, "", words)


def program_of(agent: Sequence[str]) -> list[str]:
    """Return what a sandbox must show of a command: its program, if it is named by its place."""
    return [*agent[:1]] if agent and agent[0].startswith("/") else []


def has_placeholder(agent: Sequence[str]) -> bool:
    """Return whether a word of the command stands for the prompt or the feedback."""
    return any(word in PLACEHOLDERS for word in agent)


def script_of(agent: Sequence[str], *, recorded: bool = False) -> str:
    """Return the script that runs a command with the feedback in a file; `recorded` is that of fingerprints.

    Raises:
        ConfigurationError: for a word with the sign of a template.
    """
    for word in agent:
        if "{{" in word or "{%" in word:
            raise ConfigurationError(
                f"until: {word!r} contains the sign of a template; put it in a script of your own"
            )
    words = (
        f'"${PLACEHOLDERS[word]}"' if word in PLACEHOLDERS else shlex.quote(word) for word in agent
    )
    return (_RECORDED if recorded else _SCRIPT).format(command=" ".join(words))
