"""Real coding agents from npm against the loopback provider, each with a home folder of its own."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from loopwright import agent
from loopwright.coding.agents import AgentStep, Manifest, load_manifest
from loopwright.coding.agents.manifest import base_of

from .provider import Provider

BIN = Path(__file__).parents[2] / "npm" / "agents" / "node_modules" / ".bin"
NAMES = ("codex", "gemini", "qwen", "opencode")


def settings_of(name: str, provider: Provider, home: Path) -> tuple[dict[str, str], list[str], str]:
    """Return the variables, the words and the model that make a program call the provider."""
    if name == "codex":
        (home / ".codex").mkdir(parents=True, exist_ok=True)
        fields = {
            "name": "mock",
            "base_url": f"{provider.url}/v1",
            "wire_api": "responses",
            "env_key": "OPENAI_API_KEY",
        }
        words = [
            w
            for key, value in fields.items()
            for w in ("-c", f"model_providers.mock.{key}={json.dumps(value)}")
        ]
        words += [
            "-c",
            'model_provider="mock"',
            "-c",
            "analytics.enabled=false",
            "-c",
            "check_for_update_on_startup=false",
        ]
        return (
            {"OPENAI_API_KEY": "sk-mock-key-0001", "CODEX_HOME": str(home / ".codex")},
            words,
            "gpt-5",
        )
    if name == "gemini":
        return (
            {"GEMINI_API_KEY": "mock-key-0001", "GOOGLE_GEMINI_BASE_URL": provider.url},
            [],
            "gemini-2.5-pro",
        )
    if name == "qwen":
        variables = {
            "OPENAI_API_KEY": "sk-mock-key-0001",
            "OPENAI_BASE_URL": f"{provider.url}/v1",
            "OPENAI_MODEL": "mock",
        }
        return variables, ["--auth-type", "openai"], ""
    config = {
        "autoupdate": False, "share": "disabled",
        "provider": {"openai": {"options": {"baseURL": f"{provider.url}/v1", "apiKey": "sk-mock-key-0001"}}},
        "model": "openai/gpt-5", "small_model": "openai/gpt-5",
    }  # fmt: skip
    return {"OPENCODE_CONFIG_CONTENT": json.dumps(config)}, [], "openai/gpt-5"


def real_agent(
    name: str,
    provider: Provider,
    tmp_path: Path,
    changes: Mapping[str, Any] | None = None,
    *,
    programs: Path = BIN,
    acp: Sequence[str] = (),
    **options: Any,
) -> AgentStep:
    """Return a step that runs the installed program, from a folder of programs, against the provider.

    With `acp`, the words that make it speak the Agent Client Protocol, it is driven by that protocol.
    """
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    made = load_manifest(name)
    for path, text in made.home.items():
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_text(text)
    env, words, model = settings_of(name, provider, home)
    program = [str(programs / made.program[0])]
    manifest = Manifest.model_validate(
        {**made.model_dump(exclude_unset=True), "program": program, **(changes or {})}
    )
    if acp:
        keys = {"keys": made.keys, "state": made.state, "env": made.env, "name": name}
        program = [str(programs / made.program[0]), *acp]
        manifest = Manifest.model_validate({**base_of("acp"), **keys, "program": program})
        model = ""  # OpenCode has one in its settings
    settings: dict[str, Any] = {
        "permissions": "full",
        "output": "result",
        "timeout": 60,
        "model": model,
        **options,
    }
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    return agent(
        manifest, settings.pop("prompt", "Write the answer."), workspace="here", cwd=provider.folder, args=words,
        env={**env, "HOME": str(home), "PATH": path, "XDG_CONFIG_HOME": "", "NO_COLOR": "1"}, **settings,
    )  # fmt: skip
