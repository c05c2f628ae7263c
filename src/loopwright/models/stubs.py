"""Stubs of a dry run from the rules of a file of replies.

A rule `{step: GLOB, output: …}`, `{step: GLOB, exit: N}` or `{step: GLOB, error: WORD}` stands for
Python functions, commands, tools and questions to people at the paths that its glob matches. The first
rule that matches counts. Rules with `replies` are those of model calls.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..engine.stubs import NO_EXIT, NO_STUB, Stub
from ..errors import StepError, StepTimeout
from ..journal import MemoryJournal
from ..records.codec import Json
from .scripted import ScriptedModel
from .scripted_rules import Rule

__all__ = ["ScriptedEffects", "dry_run_resources"]


class ScriptedEffects:
    """The stubs of a dry run; see `engine.stubs.Stubs`.

    Args:
        rules: the rules, of which those with `replies` are ignored.
        file: the name of the rules in messages; default "replies".
    """

    def __init__(self, rules: Sequence[Rule], *, file: str = "replies") -> None:
        self.rules = tuple(rule for rule in rules if not rule.replies)
        self.file = file

    def of(self, path: str, what: str) -> Stub:
        """Return the stub of the first rule that matches.

        Raises:
            StepError: `no_stub` without a rule, else of the kind that the rule names.
        """
        rule = next((rule for rule in self.rules if rule.at(path)), None)
        if rule is None:
            raise StepError(
                f"the dry run has no stub for the {what} {path!r}; add a rule to {self.file}, such as "
                f"{{step: {path!r}, output: …}}",
                path=path,
                kind=NO_STUB,
                retryable=False,
            )
        if rule.error:
            kind = StepTimeout if rule.error == "timeout" else StepError
            raise kind(f"{path}: stub of the error {rule.error}", path=path, kind=rule.error)
        return Stub(rule.output, rule.exit)

    def output(self, path: str, what: str) -> Json:
        """Return the output of the first rule that matches.

        Raises:
            StepError: as `of`, and `bad_stub` for a rule with an exit code.
        """
        stub = self.of(path, what)
        if stub.exit is not None:
            raise StepError(f"{path}: {NO_EXIT}", path=path, kind="bad_stub", retryable=False)
        return stub.output


def dry_run_resources(model: ScriptedModel) -> dict[str, object]:
    """Return the resources that make a run a dry run, from the rules of its scripted model."""
    stubs = ScriptedEffects(model.rules, file=model.file)
    return {"stubs": stubs, "memory": MemoryJournal().memory}
