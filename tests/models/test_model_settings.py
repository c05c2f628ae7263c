"""The settings of model calls: checked where they are given, sent as they are, part of what a step is."""

from __future__ import annotations

from typing import Any

import pytest
from faulty_server import FaultyServer, says
from model_worlds import KEYS

from loopwright import Loop, MaxIterations, run
from loopwright.agents import ReasoningAgent
from loopwright.errors import ConfigurationError
from loopwright.evaluators import judge, score
from loopwright.evaluators.rubric import rubric
from loopwright.models import Models, ProviderModel
from loopwright.prompts import prompt

ALL: dict[str, Any] = {
    "temperature": 0.3, "max_tokens": 90, "top_p": 0.5, "seed": 7, "stop": ["END"],
    "reasoning_effort": "low", "frequency_penalty": 0.5, "presence_penalty": -0.5,
    "extra_body": {"num_ctx": 4096, "options": {"a": 1}}, "extra_headers": {"X-Team": "poets"},
    "timeout": 5, "on_cutoff": "fail", "api_key_env": "CANARY_KEY",
}  # fmt: skip
BODY = {
    "temperature": 0.3, "max_tokens": 90, "top_p": 0.5, "seed": 7, "stop": ["END"],
    "reasoning_effort": "low", "frequency_penalty": 0.5, "presence_penalty": -0.5,
    "num_ctx": 4096, "options": {"a": 1},
}  # fmt: skip
VERDICT = '{"verdict": "yes", "score": 90, "reason": "r", "mark": "m", "score_1": 90, "gap_1": "", "suggestions": []}'


async def requested(step: Any, text: str = VERDICT) -> tuple[Any, Any]:
    """Return the result of a step and the first request that it made."""
    async with FaultyServer(says(text)) as server, ProviderModel(KEYS) as model:
        made = step({**ALL, "base_url": server.url, "model": "openai_compatible:m"})
        result = await run(made, "hello", resources={"models": Models(model, known_prices=False)})
        return result, server.requests[0]


STEPS = {
    "a prompt": lambda s: prompt("{{ value }}", **s),
    "a judge": lambda s: judge("It is short.", **s),
    "a preset": lambda s: judge(preset="quality/moderate", **s),
    "a confidence scorer": lambda s: rubric("It is short.", **s),
    "a score": lambda s: score(of=prompt("{{ value }}", **s)),
    "an agent": lambda s: ReasoningAgent(mode="single", **s),
}


@pytest.mark.usefixtures("loopback")
@pytest.mark.parametrize("name", STEPS)
async def test_every_setting_of_every_step_reaches_the_endpoint(name: str) -> None:
    """Body and headers are as they were given; nothing is left out or added."""
    _, request = await requested(STEPS[name])
    assert {key: request.json.get(key) for key in BODY} == BODY
    assert request.headers["x-team"] == "poets"
    assert request.headers["authorization"] == f"Bearer {KEYS['CANARY_KEY']}"


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"temprature": 0.2},
            "temprature: is not a setting of a model call; did you mean 'temperature'",
        ),
        ({"top_p": 2}, "top_p: 2 is out of range"),
        ({"seed": 1.5}, "seed: 1.5 is not an integer"),
        ({"stop": []}, "stop: .* is not a text or a list of texts"),
        ({"stop": [""]}, "stop: '' is not a text with at least one character"),
        ({"reasoning_effort": "hi"}, "reasoning_effort: 'hi' is unknown"),
        ({"presence_penalty": 3}, "presence_penalty: 3 is not a number from -2 to 2"),
        ({"extra_body": [1]}, "extra_body: .* is not an object"),
        ({"timeout": 0}, "timeout: 0 is out of range"),
        ({"on_cutoff": "ignore"}, "on_cutoff: 'ignore' is unknown; use one of fail, retry, accept"),
        ({"on_cutoff": "accept", "schema": {"type": "object"}}, "on_cutoff: accept is for text"),
        (
            {"extra_headers": {"Authorization": "Bearer x"}},
            "Authorization contains a key; .*api_key_env",
        ),
        ({"extra_headers": {"x-api-key": "x"}}, "x-api-key contains a key"),
        ({"extra_headers": {"X-Auth-Token": "x"}}, "X-Auth-Token contains a key"),
        ({"extra_headers": {"Host": "x"}}, "'Host' cannot be set"),
        ({"extra_headers": {"X-A": "a\r\nb: c"}}, "'X-A' cannot be set"),
        ({"extra_headers": {"X-A": 1}}, "name and value must be text"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_where_it_is_given(
    settings: dict[str, Any], sentence: str
) -> None:
    """The message names the setting, what was given and what to do."""
    with pytest.raises(ConfigurationError, match=sentence):
        prompt("x", **settings)


def test_settings_are_part_of_the_fingerprint_and_header_values_by_digest_only() -> None:
    """Another value is another step; a header's value is nowhere in what is kept."""
    plain = prompt("x", model="openai:m")
    prints = {plain.fingerprint}
    for name, value in ALL.items():
        changed = prompt("x", model="openai:m", **{name: value})
        prints.add(changed.fingerprint)
        assert "poets" not in str(changed.model_settings.to_json())
    other = prompt("x", model="openai:m", extra_headers={"X-Team": "painters"})
    prints.add(other.fingerprint)
    assert len(prints) == len(ALL) + 2


@pytest.mark.usefixtures("loopback")
async def test_what_an_endpoint_does_not_take_is_left_out_with_one_warning() -> None:
    """OpenAI's own API takes no seed: three iterations warn once."""
    from loopwright.models import ScriptedModel

    class Picky:
        """A model that says what it left out, as a provider does."""

        def __init__(self) -> None:
            self.script = ScriptedModel([{"replies": ["fine"]}])

        async def complete(self, request: Any, *, on_text: Any = None) -> Any:
            from dataclasses import replace

            assert request.extra == {"seed": 7}
            reply = await self.script.complete(request, on_text=on_text)
            return replace(reply, warnings=("seed was left out: m does not take it",))

    resources = {"models": Models(Picky(), known_prices=False), "model": "openai:m"}
    loop = Loop(prompt("{{ value }}", seed=7), until=MaxIterations(3))
    result = await run(loop, "x", resources=resources)
    assert result.iterations == 3
    assert result.warnings == ("seed was left out: m does not take it",)


def test_a_model_class_for_schema_names_the_call_that_gives_one() -> None:
    """The hint names model_json_schema()."""
    from pydantic import BaseModel

    class Draft(BaseModel):
        title: str

    with pytest.raises(ConfigurationError, match=r"schema=Draft\.model_json_schema\(\)"):
        prompt("x", schema=Draft)  # type: ignore[arg-type]
