"""The core in an environment of its own: what it brings, what it loads, and what it says about extras."""

from __future__ import annotations

import pytest

from .environment import Environment, create

pytestmark = pytest.mark.slow

MEGABYTES, DISTRIBUTIONS = 28.5, 22  # candidates, chains, data sets and the call cache took 0.5
# Modules that hold the code for a package of an extra, or for pytest; each is imported when it is used.
OF_EXTRAS = {
    "loopwright.models.providers": "models",
    "loopwright.tools.mcp_client": "mcp",
    "loopwright.journal.postgres": "postgres",
    "loopwright.ui.web": "ui",
    "loopwright.coding.agents.acp_client": "acp",
    "loopwright.ui.serving.mcp": "mcp",
    "loopwright.ui.serving.tasks": "mcp",
    "loopwright.ui.serving": "ui",
    "loopwright.testing.fixtures": "pytest",
    "loopwright.cluster.postgres": "postgres",
    "loopwright.cluster.deliverers.celery": "postgres",
    "loopwright.cluster.deliverers.dbos": "postgres",
    "loopwright.cluster.deliverers.pgqueuer": "pgqueuer",
    "loopwright.cluster.deliverers.temporal_workflow": "temporal",
}
FOREIGN = {
    "models": {"httpx2", "pydantic_ai", "openai"},
    "acp": {"acp"},
    "mcp": {"mcp", "mcp_types", "anyio", "httpx2"},
    "postgres": {"psycopg"},
    "ui": {"starlette", "uvicorn"},
    "pytest": {"pytest"},
    "pgqueuer": {"pgqueuer", "psycopg"},
    "temporal": {"temporalio"},
}
WALK = """
import importlib, pkgutil, loopwright
for module in pkgutil.walk_packages(loopwright.__path__, "loopwright."):
    if module.name == "loopwright.__main__":
        continue
    try:
        importlib.import_module(module.name)
    except ModuleNotFoundError as error:
        print(module.name, error.name)
    else:
        print(module.name)
"""
ASK = """
import sys
from loopwright import run_sync
from loopwright.models import Models, ProviderModel
from loopwright.prompts import prompt
result = run_sync(
    prompt("Say hello", model=sys.argv[1]), "Ann",
    resources={"models": Models(ProviderModel({"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"}))},
)
print(result.status, result.reason, result.detail)
"""
PLAIN = """
from loopwright import Loop, Passed, run_sync
from loopwright.evaluators import check
loop = Loop(
    lambda value, ctx: value + "x" * ctx.iteration, check(lambda text: len(text) > 2), until=Passed()
)
for _ in range(2):
    result = run_sync(loop, "x", journal="sqlite:runs.db", run_id="one")
    print(result.status, len(result.history))
"""
COMMAND = """
schema: loopwright/1
name: a
steps:
  - name: b
    shell: echo hello
"""
MODEL = """
schema: loopwright/1
name: a
model: ollama:qwen3
steps:
  - name: b
    prompt: Say hello
"""


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The wheel of the package and its dependencies, without extras."""
    return create(tmp_path_factory.mktemp("core"))


def test_the_core_is_small(core: Environment) -> None:
    """At most 28.5 MB of files and 22 distributions, with this package; no model client and no web server."""
    names = core.distributions()
    assert len(names) <= DISTRIBUTIONS, names
    assert core.megabytes() <= MEGABYTES
    assert not {
        "openai",
        "pydantic-ai-slim",
        "tiktoken",
        "genai-prices",
        "starlette",
        "uvicorn",
    } & {*names}


def test_every_module_of_the_core_can_be_imported(core: Environment) -> None:
    """All modules load, except those that wrap a package of an extra, which miss exactly that package."""
    failed = dict(
        line.split() for line in core.run("python", "-c", WALK).stdout.splitlines() if " " in line
    )
    for module, package in failed.items():
        extra = next((e for name, e in OF_EXTRAS.items() if module.startswith(name)), "")
        assert package.partition(".")[0] in FOREIGN.get(extra, ()), f"{module} needs {package}"


def test_loops_and_journals_need_no_extra(core: Environment) -> None:
    """A loop runs and replays from a SQLite journal in the core."""
    assert core.run("python", "-c", PLAIN).stdout.split() == ["satisfied", "2"] * 2


@pytest.mark.parametrize(
    ("model", "extra"),
    [
        ("openai:gpt-4o-mini", "models"),
        ("ollama:qwen3:4b", "models"),
        ("anthropic:claude", "models"),
    ],
)
def test_a_model_without_its_client_is_one_sentence(
    core: Environment, model: str, extra: str
) -> None:
    """A model call without the extra fails with the model, and the command to type."""
    answer = core.run("python", "-c", ASK, model).stdout
    assert f"{model} needs the model client: pip install 'loopwright[{extra}]'" in answer
    assert "Traceback" not in answer


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["ui", "--no-open"], "the page needs a web server: pip install 'loopwright[ui]'"),
        (
            ["run", "doc.yaml", "--otel", "--yes"],
            "telemetry needs the OpenTelemetry SDK: pip install 'loopwright[otel]'",
        ),
        (
            ["run", "doc.yaml", "--yes", "--journal", "postgres://localhost/runs"],
            "a journal in PostgreSQL needs the PostgreSQL client: pip install 'loopwright[postgres]'",
        ),
        (
            ["check", "model.yaml"],
            "the provider ollama needs the model client: pip install 'loopwright[models]'",
        ),
    ],
)
def test_a_command_without_its_extra_is_one_sentence(
    core: Environment, words: list[str], sentence: str
) -> None:
    """A command that needs a missing extra prints one sentence and ends as a wrong command line does."""
    (core.folder / "doc.yaml").write_text(COMMAND, encoding="utf-8")
    (core.folder / "model.yaml").write_text(MODEL, encoding="utf-8")
    done = core.run("loopwright", *words, check=False)
    assert done.returncode in (1, 2)
    assert sentence in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_a_report_as_html_needs_no_web_server(core: Environment) -> None:
    """`export --format html` works in the core: the report shares the page's templates, not its server."""
    (core.folder / "doc.yaml").write_text(COMMAND, encoding="utf-8")
    core.run("loopwright", "run", "doc.yaml", "--yes", "--run-id", "r1")
    assert "<html" in core.run("loopwright", "export", "r1", "--format", "html").stdout
