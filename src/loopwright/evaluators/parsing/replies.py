"""What the agents of a round wrote: by agent, as text, and as templates see it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...models.replies.own_words import own_words
from ...models.replies.scan import scan
from ...records.codec import Json, text_of
from ...templates import TemplateValue

__all__ = ["AGENTS", "LAST", "agents_in", "objects_in", "reply_text", "shown", "without_thinking"]

# The key under which a group's output holds those of its agents; see `groups`.
AGENTS = "$agents"
# And what the group gives outside of its workflow, where that is not the map.
LAST = "$last"
RAW_CONFIDENCE = 0.5  # of a reply that states none


def agents_in(outputs: Mapping[str, Json]) -> dict[str, Json]:
    """Return the outputs by agent, with those of a group at the group's place."""
    found: dict[str, Json] = {}
    for name, output in outputs.items():
        if isinstance(output, Mapping) and AGENTS in output:
            found |= agents_in(output[AGENTS])
        else:
            found[name] = output
    return found


def reply_text(output: Json) -> str:
    """Return what an agent's output says as text; of a group, one paragraph per agent."""
    if output is None:
        return ""
    if isinstance(output, Mapping) and AGENTS in output:
        agents = agents_in(output[AGENTS])
        return "\n\n".join(f"{name}: {reply_text(each)}" for name, each in agents.items())
    if isinstance(output, Mapping) and "response" in output:
        return reply_text(output["response"])
    return text_of(output)


def without_thinking(text: str) -> str:
    """Return a reply without the blocks in which a model thinks aloud."""
    return own_words(text)


def objects_in(output: Json) -> Iterator[Mapping[str, Json]]:
    """Iterate over the JSON objects that an output is or contains as text."""
    if isinstance(output, Mapping):
        yield output
        inner = output.get("response")
        if inner is not None and not isinstance(inner, Mapping):
            yield from objects_in(inner)
    elif isinstance(output, str) and "{" in output:
        found = [one.value for one in scan(own_words(output)).values if isinstance(one.value, dict)]
        if found and all(value == found[0] for value in found):  # of two neither is chosen
            yield found[0]


def shown(output: Json) -> TemplateValue:
    """Return an output as templates see it: it prints as its text and has the fields of its data."""
    text = reply_text(output)
    if isinstance(output, Mapping) and AGENTS in output:
        agents = {name: shown(each) for name, each in agents_in(output[AGENTS]).items()}
        return TemplateValue(text, {**agents, "response": text, "result": agents})
    data = dict(next(objects_in(output), {})) if isinstance(output, str | Mapping) else {}
    given = data.get("result")
    if "loops_completed" in data and isinstance(given, Mapping):  # a loop: what each agent gave
        data["result"] = {name: shown(each) for name, each in given.items()}
        return TemplateValue(text, {**data, "response": TemplateValue(text, data)})
    return TemplateValue(
        text, {"confidence": RAW_CONFIDENCE, "result": text, **data, "response": text}
    )
