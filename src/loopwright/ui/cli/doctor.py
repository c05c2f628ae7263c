"""`doctor`: try the providers of models with the keys in the environment.

Each provider that has a key, and each server of this machine, is asked for its list of models, which costs
nothing. The exit code is 1 if a key is refused, a named provider is not ready, or no provider can be used.
"""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from ..._extras import needs
from ...errors import ConfigurationError, nearest
from ...models.providers.endpoints import ALIASES, PROVIDERS, Allowed
from .options import AsJson, ModelUrl
from .output import Output

if TYPE_CHECKING:
    from ...models.providers.transport import ProviderReport

_COLOURS = {"ready": "green", "no key": "dim", "not tried": "dim"}


def doctor(
    providers: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PROVIDER]...", help="Providers.  [default: all]"),
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
    as_json: AsJson = False,
) -> int:
    """Try the providers of models with the keys in the environment.

    Exit codes: 0 a provider can be used and none fails, 1 a key is refused, a named provider is not ready, or no
    provider can be used.

    Examples:
        loopwright doctor
        loopwright doctor openai anthropic
        loopwright doctor --model-url http://127.0.0.1:8080 --json
    """
    names = []
    for given in providers or ():
        name = given.partition(":")[0]  # also of `provider:model`
        if ALIASES.get(name, name) not in PROVIDERS:
            hint = nearest(name, PROVIDERS) or f"; use one of {', '.join(PROVIDERS)}"
            raise ConfigurationError(f"provider: {name!r} is unknown{hint}")
        names.append(ALIASES.get(name, name))
    if model_url and not names:
        names = ["openai_compatible"]
    with needs("doctor", "models"):
        from ...models.providers.transport import try_providers
    named = bool(names)
    # This provider has no address of its own to try.
    wanted = names or [name for name in PROVIDERS if name != "openai_compatible"]
    with Output(as_json=as_json) as output:
        reports = asyncio.run(
            try_providers(
                wanted,
                os.environ,
                base_url=model_url or "",
                api_key_env=api_key_env,
                allowed=Allowed(allow_host or ()),
            )
        )
        if as_json:
            data = {"providers": [{**asdict(report), "ok": report.ok} for report in reports]}
            output.write_result(json.dumps(data, ensure_ascii=False) + "\n")
        without = [report.provider for report in reports if report.state == "no key" and not named]
        for report in reports:
            if report.provider not in without:
                colour = _COLOURS.get(report.state, "yellow")
                state = (report.state, colour)
                output.write((report.provider, "bold"), ": ", state, f": {report.detail}")
        if without:
            output.write(("no key", "dim"), f": {', '.join(without)}", wrap=True)
    failed = any(_is_failure(report, named=named) for report in reports)
    usable = any(report.ok or _is_configured(report) for report in reports)
    return 1 if failed or not usable else 0


def _is_configured(report: ProviderReport) -> bool:
    """Return whether a provider that cannot be tried has its variables in the environment."""
    provider = PROVIDERS[report.provider]
    names = (*provider.keys, *provider.places)
    return report.state == "not tried" and any(os.environ.get(name) for name in names)


def _is_failure(report: ProviderReport, *, named: bool) -> bool:
    """Whether a report is a failure: a provider without a key, or a server that is off, only if named."""
    if named:
        return not report.ok
    # A server of this machine that does not run is no failure, unless the user named it.
    return report.state in ("refused", "error") and bool(report.account)
