"""What native documents say for `workflow/v2.0`: a consensus, and a judge that answers yes or no."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ...documents.compiler.compilation import Compilation
from ...documents.compiler.prompts import compile_settings
from ...documents.schema.document import Action
from ...documents.yaml.reader import Location
from ...evaluators.judge_questions import Vote
from ...evaluators.verdicts import Verdict, read_yes_no
from ...models import Message, Reply
from ...prompts.prompt import Prompt
from ...records.codec import Json
from .steps import Consensus, offered_verdicts

__all__ = ["YesNo", "compile_consensus"]


def compile_consensus(
    compilation: Compilation, action: Action, name: str, at: Location
) -> Consensus | None:
    """Compile a consensus; None if it has problems."""
    assert action.consensus is not None
    spec, path = action.consensus, (*at, "consensus")
    text = compilation.template((*path, "prompt"), spec.prompt)
    system = compilation.template((*path, "system"), spec.system or "")
    voters = []
    for i, voter in enumerate(spec.voters):
        prompt_settings = compile_settings(compilation, voter, (*path, "voters", i))
        if prompt_settings is not None:
            voters.append(
                Prompt(text, name=f"voter-{i + 1}", system=system, model_settings=prompt_settings)
            )
    if len(voters) < len(spec.voters):
        return None
    # From the text before rendering: a value of a variable must not add verdicts.
    offered = offered_verdicts(spec.prompt)
    return Consensus(name, tuple(voters), spec.require, spec.allow_failures, offered)


@dataclass(frozen=True)
class YesNo:
    """The question of `workflow/v2.0`, as worded in its guide."""

    schema: Mapping[str, Json] | None = None
    source: str = "yes_no"
    answer: str = "Answer with YES if condition is met, NO if not met."

    accepts_empty = True
    weights = MappingProxyType[str, float]({})

    def messages(self, criterion: str, goal: str, text: str, mark: str) -> list[Message]:
        # The guide fixes this wording, which includes neither.
        del goal, mark
        asked = f'Evaluate this condition: "{criterion}"\n\nOutput to evaluate:\n{text}\n\n{self.answer}'
        return [Message("user", asked)]

    def read(self, reply: Reply, text: str, mark: str) -> Vote:
        del text, mark
        if reply.finish == "length":
            return Vote(Verdict("unparsable", "cut", "the reply was cut off"))
        return Vote(read_yes_no(reply.text))
