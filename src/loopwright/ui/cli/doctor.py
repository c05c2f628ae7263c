"""`doctor`: what this machine has for loops, and what each missing part needs.

Each provider that has a key, and each server of this machine, is asked for its list of models, which costs
nothing. The exit code is 1 if something that is configured does not work, or if neither a model nor an agent can be
used.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.util import cache_from_source
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..._extras import EXTRAS, missing, needs, sentence
from ...coding.agents.manifest import load_manifest, manifest_names
from ...errors import ConfigurationError, LoopwrightError, RunNotFound, listed
from ...journal.protocol import shown_url
from ...models.providers.endpoints import ALIASES, PROVIDERS, Allowed
from ...tools.sandbox import sandbox_problem
from .. import formatting as texts
from ..journals import DEFAULT, opened
from .journal import stored
from .options import AsJson, JournalUrl, ModelUrl
from .output import Output

if TYPE_CHECKING:
    from ...models.providers.transport import ProviderReport

READY, ABSENT, FAILED = "ready", "absent", "failed"
_COLOURS = {READY: "green", FAILED: "red"}
_TOOLS = {
    "git": "branches of coding runs",
    "node": "coding agents and MCP servers from npm",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One part of this machine.

    Args:
        part: `byte code`, `extra`, `tool`, `sandbox`, `journal`, `agent` or `provider`.
        name: which one.
        state: `ready`, `absent`, or `failed` for one that is configured and does not work.
        detail: the facts, or the reason and what to do.
    """

    part: str
    name: str
    state: str
    detail: str


def doctor(
    providers: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PROVIDER]...", help="Only these providers.  [default: everything]"
        ),
    ] = None,
    model_url: ModelUrl = None,
    api_key_env: Annotated[
        str,
        typer.Option(
            "--api-key-env",
            metavar="NAME",
            help="Environment variable with the key for the address.",
        ),
    ] = "",
    allow_host: Annotated[
        list[str] | None,
        typer.Option("--allow-host", metavar="HOST", help="A private host that may be called."),
    ] = None,
    journal: JournalUrl = DEFAULT,
    as_json: AsJson = False,
) -> int:
    """Check what this machine has for loops: models, agents, tools, extras and the journal.

    Exit codes: 0 what is configured works, 1 a part that is configured does not, a named provider is not ready, or
    neither a model nor an agent can be used.

    Examples:
        loopwright doctor
        loopwright doctor openai anthropic
        loopwright doctor --model-url http://127.0.0.1:8080 --json
    """
    names = []
    for given in providers or ():
        name = given.partition(":")[0]  # also of `provider:model`
        if ALIASES.get(name, name) not in PROVIDERS:
            hint = listed(name, PROVIDERS, lead="use one of", more="loopwright doctor")
            raise ConfigurationError(f"provider: {name!r} is unknown{hint}")
        names.append(ALIASES.get(name, name))
    if model_url and not names:
        names = ["openai_compatible"]
    with Output(as_json=as_json) as output:
        findings = [] if names else [*_parts(), asyncio.run(_journal(journal))]
        reports: list[ProviderReport] = []
        if names or not missing("models"):
            with needs("doctor", "models"):
                from ...models.providers.transport import try_providers
            # This provider has no address of its own to try.
            wanted = names or [name for name in PROVIDERS if name != "openai_compatible"]
            allowed = Allowed(allow_host or ())
            reports = asyncio.run(
                try_providers(
                    wanted,
                    os.environ,
                    base_url=model_url or "",
                    api_key_env=api_key_env,
                    allowed=allowed,
                )
            )
        findings += [_provider(report, named=bool(names)) for report in reports]
        usable = [
            one for one in findings if one.part in ("agent", "provider") and one.state == READY
        ]
        ok = bool(usable) and not any(one.state == FAILED for one in findings)
        if as_json:
            data = {
                "ok": ok,
                "findings": [asdict(one) for one in findings],
                "providers": [{**asdict(report), "ok": report.ok} for report in reports],
            }
            output.write_result(json.dumps(data, ensure_ascii=False) + "\n")
        else:
            _write(findings, output)
            if not usable and not names:
                output.note(
                    "neither a model nor a coding agent can be used; set a key, or start a local server"
                )
    return 0 if ok else 1


def _parts() -> Iterator[Finding]:
    """Iterate over the parts that are looked up here without a call."""
    package = Path(__file__).parents[2]
    if Path(cache_from_source(str(package / "errors.py"))).is_file():
        yield Finding("byte code", "", READY, "")
    else:
        why = "unset PYTHONDONTWRITEBYTECODE, or run: " if sys.dont_write_bytecode else "run: "
        remedy = f"{why}{sys.executable} -m compileall -q {package}"
        yield Finding("byte code", "", ABSENT, f"every start compiles the package; {remedy}")
    for name in EXTRAS:
        state = ABSENT if missing(name) else READY
        yield Finding("extra", name, state, sentence(name, name) if state == ABSENT else "")
    for name, use in _TOOLS.items():
        found = shutil.which(name)
        yield Finding("tool", name, READY if found else ABSENT, found or f"install it for {use}")
    problem = sandbox_problem()
    yield Finding("sandbox", "bubblewrap", ABSENT if problem else READY, problem)
    for manifest in map(load_manifest, manifest_names()):
        found = shutil.which(manifest.program[0])
        remedy = (
            f"try it with: loopwright agents try {manifest.name}" if found else manifest.install
        )
        yield Finding("agent", manifest.name, READY if found else ABSENT, remedy)


async def _journal(url: str) -> Finding:
    """Return whether the journal can be read, with its size and the runs that processes hold."""
    name = shown_url(url)
    try:
        async with opened(url) as store:
            notes = await stored(store, url).notes()
            running = await store.runs(status="running")
            held = [f"{row.run_id} is held by {row.owner}" for row in running[:5] if row.owner]
            path = Path(url.partition(":")[2].partition("?")[0])
            files = [path, path.with_name(f"{path.name}-wal")] if url.startswith("sqlite:") else []
            size = sum(file.stat().st_size for file in files if file.is_file())
            facts = [f"{size / 1e6:.2f} MB"] if size else []
            count = texts.plural(len(running), "running run")
            return Finding("journal", name, READY, "; ".join([*facts, *notes, count, *held]))
    except RunNotFound as error:
        return Finding("journal", name, ABSENT, str(error))
    except LoopwrightError as error:
        return Finding("journal", name, FAILED, str(error))


def _provider(report: ProviderReport, *, named: bool) -> Finding:
    """Return the state of a provider: a missing key, or a server that is off, is a failure only if it is named."""
    own = PROVIDERS[report.provider]
    configured = any(os.environ.get(name) for name in (*own.keys, *own.places))
    if report.ok or (report.state == "not tried" and configured and not named):
        state = READY
    elif named or (report.state in ("refused", "error") and report.account):
        state = FAILED
    else:
        state = ABSENT
    detail = report.detail if report.ok else f"{report.state}: {report.detail}"
    return Finding("provider", report.provider, state, detail)


def _write(findings: list[Finding], output: Output) -> None:
    """Write a line for each part; what is absent, and needs the same, shares a line."""
    for one in findings:
        unset = one.part == "provider" and one.state == ABSENT and one.detail.startswith("no key")
        if unset or (one.part == "extra" and one.state == READY):
            continue
        title = f"{one.part} {one.name}".rstrip()
        detail = f": {one.detail}" if one.detail else ""
        output.write((title, "bold"), ": ", (one.state, _COLOURS.get(one.state, "dim")), detail)
    extras = [one.name for one in findings if one.part == "extra" and one.state == READY]
    if extras:
        output.write(
            ("extras", "bold"), ": ", (READY, "green"), f": {', '.join(extras)}", wrap=True
        )
    without = [
        one.name for one in findings if one.detail.startswith("no key") and one.state == ABSENT
    ]
    if without:
        output.write(("providers without a key", "bold"), f": {', '.join(without)}", wrap=True)
