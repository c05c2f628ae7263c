"""A model by its name: the default registry, the default model, names, common settings, plain errors."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

import pytest
from faulty_server import FaultyServer, says
from mock_server import serving
from pydantic import BaseModel

from engine.support import entries_of
from loopwright import (
    Loop,
    Models,
    ModelSettings,
    ReasoningAgent,
    judge,
    prompt,
    rubric,
    run,
    run_sync,
    sequence,
    step,
)
from loopwright.errors import ConfigurationError, JournalError
from loopwright.journal import MemoryJournal
from loopwright.models import ProviderModel, Reply, Request
from loopwright.prompts import tool_prompt
from loopwright.testing import ScriptedModel

KEY = "sk-of-the-stand-in"


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a default model nor a key comes from the machine that runs the tests."""
    for name in ("LOOPWRIGHT_MODEL", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)


class Echo:
    """A model that returns its request, without the messages, as JSON text."""

    async def complete(self, request: Request, *, on_text: Any = None) -> Reply:
        del on_text
        return Reply(json.dumps({"messages": None, **request.to_json()}))


def sent(step: Any, **options: Any) -> dict[str, Any]:
    """Return the request of a prompt under some options of run."""
    result = run_sync(step, "x", **options)
    assert result.satisfied, result.detail
    return dict(json.loads(str(result.output)))


# The default registry.


@pytest.mark.usefixtures("loopback")
def test_a_prompt_runs_with_nothing_but_a_key_in_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without models and resources, the key and the model come from the environment."""
    monkeypatch.setenv("STAND_IN_API_KEY", KEY)
    monkeypatch.setenv("LOOPWRIGHT_MODEL", "openai_compatible:m")
    authorised: list[str] = []

    def answer(body: dict[str, Any], headers: dict[str, str]) -> tuple[int, str]:
        authorised.append(headers["authorization"])
        return 200, f"Hello {body['messages'][-1]['content']}"

    with serving(answer) as url:
        greet = prompt("{{ value }}", base_url=url, api_key_env="STAND_IN_API_KEY")
        assert run_sync(greet, "Ann").output == "Hello Ann"
    assert authorised == [f"Bearer {KEY}"]


@pytest.mark.usefixtures("loopback")
def test_a_key_may_have_any_name_and_is_never_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """`api_key_env` may name any variable; its value is removed from what the run records."""
    monkeypatch.setenv("MY_SERVER", KEY)
    with serving(lambda body, headers: (200, headers["authorization"])) as url:
        ask = prompt("x", model="openai_compatible:m", base_url=url, api_key_env="MY_SERVER")
        assert run_sync(ask, "x").output == "Bearer [redacted]"


@pytest.mark.usefixtures("loopback")
async def test_many_runs_share_the_default_registry() -> None:
    """Runs of one event loop use its connections at once, and none closes those of another."""
    async with FaultyServer(says("Hello")) as server:
        ask = prompt("x", model="openai_compatible:m", base_url=server.url)
        results = await asyncio.gather(*(run(ask, number) for number in range(20)))
    assert [result.output for result in results] == ["Hello"] * 20


def test_a_key_that_is_set_after_an_error_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default registry notices a key that was missing before: a notebook need not be restarted."""
    ask = prompt(
        "x", model="openai:gpt-4o-mini", base_url="http://127.0.0.1:1", api_key_env="SOON_KEY"
    )
    assert "set SOON_KEY" in run_sync(ask, "x").detail
    monkeypatch.setenv("SOON_KEY", KEY)
    assert "set SOON_KEY" not in run_sync(ask, "x").detail


# Names and the default model.


def test_the_default_model_comes_from_the_nearest_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """The prompt's own model, else that of the run, of the models, of the environment."""
    monkeypatch.setenv("LOOPWRIGHT_MODEL", "openai:environment")
    plain, models = prompt("x"), Models(Echo(), default="openai:models")
    own = prompt("x", model="openai:own")
    assert sent(own, models=models, model="openai:run")["model"] == "own"
    assert sent(plain, models=models, model="openai:run")["model"] == "run"
    assert sent(plain, models=models)["model"] == "models"
    assert sent(plain, models=Models(Echo()))["model"] == "environment"


def test_without_any_model_the_error_names_the_three_places() -> None:
    """A prompt that nothing names a model for is an error that says where to name one."""
    with pytest.raises(ConfigurationError, match="for the prompt or the run, or LOOPWRIGHT_MODEL"):
        run_sync(prompt("x"), "x", models=Models(Echo()))


def test_a_name_stands_for_a_model() -> None:
    """A name without a colon is looked up in `names`, wherever a model may be named."""
    models = Models(Echo(), default="fast", names={"fast": "ollama:qwen3:4b"})
    request = sent(prompt("x"), models=models)
    assert (request["provider"], request["model"]) == ("ollama", "qwen3:4b")
    assert sent(prompt("x", model="fast"), models=models)["model"] == "qwen3:4b"


def test_an_unknown_name_is_an_error_before_anything_runs() -> None:
    """The error has the nearest name, and no earlier step has run."""
    models = Models(Echo(), names={"fast": "ollama:qwen3:4b"})
    with pytest.raises(ConfigurationError, match="'fats' is not a model.*did you mean 'fast'"):
        run_sync(prompt("x", model="fats"), "x", models=models)
    with pytest.raises(ConfigurationError, match="did you mean 'fast'"):
        run_sync(prompt("x"), "x", models=models, model="fats")
    for names in ({"a:b": "openai:x"}, {"a": "b"}):
        with pytest.raises(ConfigurationError):
            Models(Echo(), names=names)


def test_models_twice_is_an_error() -> None:
    """`models` is an option or a resource, not both; another object is refused."""
    models = Models(Echo())
    with pytest.raises(ConfigurationError, match="models: it is also in resources"):
        run_sync(prompt("x"), "x", models=models, resources={"models": models})
    wrong: Any = Echo()
    with pytest.raises(ConfigurationError, match="is not a Models"):
        run_sync(prompt("x"), "x", models=wrong)


# Settings.


def test_settings_of_the_models_are_defaults_of_each_call() -> None:
    """A prompt's own settings win; the address and its key stay together."""
    common = ModelSettings(
        temperature=0.5, seed=1, top_p=0.9, base_url="http://localhost:1", api_key_env="A_KEY"
    )
    models = Models(Echo(), default="openai:m", settings=common)
    request = sent(prompt("x", seed=2), models=models)
    assert request["extra"] == {"seed": 2, "top_p": 0.9}
    assert (request["temperature"], request["base_url"]) == (0.5, "http://localhost:1")
    assert request["api_key_env"] == "A_KEY"
    other = sent(prompt("x", base_url="http://localhost:2"), models=models)
    assert (other["base_url"], "api_key_env" in other) == ("http://localhost:2", False)


@pytest.mark.parametrize(
    "settings",
    [{"temprature": 1}, {"temperature": 3}, {"max_tokens": 0}, {"seed": "x"}, {"timeout": 0},
     {"extra_headers": {"authorization": "x"}}, {"on_cutoff": "ignore"}, {"base_url": 3}],
)  # fmt: skip
def test_a_wrong_setting_is_refused_where_the_models_are_made(settings: Any) -> None:
    """A registry with an unknown setting, or a value out of range, cannot be made."""
    with pytest.raises(ConfigurationError, match=next(iter(settings))):
        Models(Echo(), settings=settings)


# Errors say what to do.


def test_a_missing_key_says_which_variable_to_set() -> None:
    """The error names the variable, and the way to a server of one's own."""
    detail = run_sync(prompt("x", model="openai:gpt-4o-mini"), "x").detail
    assert "set OPENAI_API_KEY in the environment, or give base_url" in detail


@pytest.mark.usefixtures("loopback")
@pytest.mark.parametrize("provider", ["ollama", "lm_studio"])
def test_a_server_that_is_not_started_is_named(provider: str) -> None:
    """A refused connection on this machine names the address and says to start the server."""
    with socket.socket() as taken:  # bound and not listening: connections are refused
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        ask = prompt("x", model=f"{provider}:m", base_url=url)
        journal = MemoryJournal()
        detail = run_sync(
            ask, "x", models=Models(ProviderModel()), journal=journal, run_id="r"
        ).detail
        ended = [entry.path for entry in entries_of(journal, "r") if entry.kind == "finished"]
    assert f"no server answers at {url}; start it, or give base_url" in detail
    assert len([path for path in ended if "attempt" in path]) == 2


def test_a_scripted_model_is_passed_as_an_option() -> None:
    """`models` takes the same registries as the resource of that name."""
    models = Models(ScriptedModel([{"replies": ["ok"]}]), default="openai:any")
    assert run_sync(prompt("x"), "x", models=models).output == "ok"


@pytest.mark.parametrize(
    "asks",
    [
        Loop(str.upper, judge("It is short.", model="fast")),
        Loop(str.upper, rubric("It is short.", model="fast")),
        ReasoningAgent(model="fast"),
        tool_prompt("x", [], model="fast"),
    ],
    ids=["judge", "rubric", "agent", "tools"],
)
def test_an_unknown_name_of_a_model_is_reported_before_the_run(asks: Any) -> None:
    """The short name of a judge or an agent is looked up before anything is recorded."""
    journal = MemoryJournal()
    with pytest.raises(ConfigurationError, match="'fast' is not a model"):
        run_sync(asks, "x", journal=journal, run_id="r")
    with pytest.raises(JournalError):
        entries_of(journal, "r")


def test_a_key_in_the_input_is_refused_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without models of the run, the keys in the environment are those that the default models read."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-abcdefghijklmnop123")
    calls: list[str] = []
    both = sequence(step(calls.append), prompt("x", model="openai:m"))
    with pytest.raises(ConfigurationError, match="OPENAI_API_KEY"):
        run_sync(both, "my key is sk-abcdefghijklmnop123")
    assert calls == []


class Person(BaseModel):
    """A value to extract."""

    name: str
    born: int


def test_the_output_of_a_prompt_has_the_type_of_its_model() -> None:
    """`prompt(output=Model)` asks for the schema, and each reader gets an instance, live and replayed."""
    reply = '{"name": "Ada", "born": 1815}'
    models = Models(ScriptedModel([{"replies": [reply]}]))
    received: list[object] = []

    def check(person: Person) -> bool:
        received.append(person)
        return person.born == 1815

    loop = Loop(prompt("Who?", output=Person, model="openai:m"), check)
    journal = MemoryJournal()
    for _ in range(2):
        result = run_sync(loop, "x", models=models, journal=journal, run_id="r")
        assert result.unwrap() == Person(name="Ada", born=1815)
    assert received == [Person(name="Ada", born=1815)]
