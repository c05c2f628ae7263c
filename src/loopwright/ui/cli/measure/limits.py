"""`measure limits`: what other limits would have done on recorded runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ....documents.yaml.reader import read
from ....errors import ConfigurationError
from ....insight import (
    PolicyResult,
    Replay,
    StoppingPolicy,
    policy_from_json,
)
from ....insight import replay as replayed
from ... import formatting as texts
from ...documents import recordings_in, selected_runs
from ...journals import DEFAULT, reading
from ..options import AsJson, JournalUrl, LoopName
from ..output import Output

_LONGEST = 60  # columns of a policy's name; a longer name moves its row


def measure_limits(
    selectors: Annotated[
        list[str],
        typer.Argument(
            metavar="SELECTOR...",
            help="Run IDs, name:DOC, since:7d or fp:FINGERPRINT. Filters apply together.",
        ),
    ],
    loop: LoopName = "",
    until: Annotated[
        list[str] | None,
        typer.Option("--until", metavar="YAML", help="Conditions to compare; repeatable."),
    ] = None,
    policy: Annotated[
        Path | None,
        typer.Option("--policy", metavar="FILE", help="File with a policy, or a list of policies."),
    ] = None,
    grid: Annotated[
        bool, typer.Option("--grid", help="Try a grid of thresholds, patience and limits.")
    ] = False,
    price: Annotated[
        float,
        typer.Option(
            "--call-price",
            metavar="X",
            help="Quality that one call is worth. It selects the suggested policy of --until, --policy and --grid.",
        ),
    ] = 0.0,
    mix: Annotated[bool, typer.Option("--mix", help="Mix runs of several fingerprints.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="DIR", help="Output: limits.json, pairs.csv and frontier.svg."
        ),
    ] = None,
    journal: JournalUrl = DEFAULT,
    as_json: AsJson = False,
) -> int:
    """Compare the results and the cost that other limits would have had on recorded runs. No model is called.

    Examples:
        loopwright measure limits name:polish --until '[{score_at_least: 0.8}, {max_iterations: 2}]'
        loopwright measure limits name:polish since:7d --grid
        loopwright measure limits last --grid --out report
    """
    if not 0 <= price < float("inf"):
        raise ConfigurationError(
            f"--call-price: {price} is not a price. Use 0 or a positive number."
        )
    policies = []
    for position, text in enumerate(until or (), start=1):
        where = f"--until {position}" if len(until or ()) > 1 else "--until"
        policies.append(policy_from_json(read(text, where).value, where))
    if policy:
        policies += _from_file(policy)
    with Output(as_json=as_json) as output:
        runs = reading(journal, lambda store: selected_runs(store, selectors, mix=mix))
        recordings = recordings_in(runs, loop)
        report = replayed(recordings, policies, use_grid=grid, price=price)
        if out is not None:
            files = {
                "limits.json": json.dumps(report.to_json(), indent=2, ensure_ascii=False) + "\n",
                "pairs.csv": report.pairs_csv(),
                "frontier.svg": report.frontier_svg(),
            }
            try:
                out.mkdir(parents=True, exist_ok=True)
                for file, content in files.items():
                    (out / file).write_text(content, "utf-8")
            except OSError as error:
                raise ConfigurationError(f"--out: {out}: {error.strerror}") from error
        if as_json:
            output.write_json(report.to_json())
        else:
            _write(report, runs[0][0].name, output)
            if out is not None:
                output.write((f"written to {out}", "dim"))
    return 0


def _from_file(path: Path) -> list[StoppingPolicy]:
    try:
        source = read(path.read_bytes(), str(path))
    except OSError as error:
        raise ConfigurationError(f"--policy: {path}: {error.strerror}") from error
    value = source.value
    if not value:
        raise ConfigurationError(
            f"--policy: {path} is empty; write a policy such as {{until: [{{max_iterations: 3}}]}}, or a list of them"
        )
    several = isinstance(value, list) and all(
        isinstance(item, dict) and "until" in item for item in value
    )
    policies = []
    for place, item in enumerate(value if several else [value]):
        line, column = source.position((place,) if several else ())
        policies.append(policy_from_json(item, f"{path}:{line}:{column}"))
    return policies


def _write(report: Replay, document: str, output: Output) -> None:
    data = report.recordings
    name = document if document == data.loop else f"{document}/{data.loop}"
    output.write(
        (f"recorded stops reproduced: {data.reproduced}", "bold"),
        f", {name}, quality: {data.quality}, {texts.plural(report.full_length, 'full-length run')}"
        + (f", price of a call: {report.price:g}" if report.price else ""),
    )
    for one in data.left_out:
        output.write((f"left out: {one.run_id}: {one.why}", "yellow"), wrap=True)
    titles = [
        f"{title} (suggested)" if title == report.suggested else title
        for title in (result.policy.title for result in report.policies)
    ]
    width = min(_LONGEST, max(map(len, titles)))
    columns = f"{'policy':{width}} {'exact':>6} {'censored':>9} {'iterations':>10} {'calls':>7}" + (
        "" if report.policies[0].satisfied is None else f" {'satisfied':>9}"
    )
    output.write((f"{columns}  {'quality':22} difference to recorded", "dim"))
    for title, result in zip(titles, report.policies, strict=True):
        output.write(f"{title:{width}} {_row(result)}".rstrip())
    for suggestion in report.suggestions:
        output.write(
            (f"suggestion: {suggestion.key} {suggestion.old} to {suggestion.new}", "green"),
            f" ({suggestion.why})",
        )
    if report.unknown:
        output.write((report.unknown, "yellow"))


def _row(result: PolicyResult) -> str:
    total = result.exact + result.censored
    censored = f"{result.censored} {result.censored / total:.0%}" if result.censored else "0"
    start = f"{result.exact:6} {censored:>9}"
    bounds = f"; bounds [{result.bounds[0]:.3f}, {result.bounds[1]:.3f}]" if result.bounds else ""
    if not result.judged:
        runs = texts.plural(result.needed, "more full-length run")
        return f"{start}  cannot be judged from these logs: record {runs}{bounds}"
    quality, delta = "-", ""
    if result.quality is not None:
        mean, low, high = result.quality
        quality = f"{mean:.3f} [{low:.3f}, {high:.3f}]"
    if result.difference is not None and result.quality is not None:
        mean, low, high = result.difference
        delta = f"{mean:+.3f} [{low:+.3f}, {high:+.3f}]"
    if result.sample:
        delta += f" (from {texts.plural(result.sample, 'explored run')})"
    satisfied = "" if result.satisfied is None else f" {result.satisfied[0]:9.0%}"
    return f"{start} {result.iterations:10.2f} {result.calls:7.2f}{satisfied}  {quality:22} {delta}{bounds}"
