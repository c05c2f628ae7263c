"""`bench judge`: the errors of a judge, from its recorded votes on labelled cases."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from ...engine.loop import Loop
from ...engine.step import Step
from ...errors import ConfigurationError, nearest
from ...evaluators.judge.judge import Judge
from ...insight import cases_from_jsonl, measure_judge
from ...records.codec import Json
from ..sources import SourceSettings, load_source
from .options import AsJson
from .output import Output

GATE = 3  # exit code of a gate that is not met
_SHARES = (
    "sensitivity", "specificity", "precision", "agreement", "kappa", "flip_rate", "icc",
)  # fmt: skip


def bench(
    kind: Annotated[str, typer.Argument(metavar="judge", help="What to measure: judge.")],
    document: Annotated[
        str, typer.Argument(metavar="DOC[#STEP]", help="Document with the judge, and its step.")
    ],
    cases: Annotated[
        Path,
        typer.Argument(metavar="CASES", help="JSON lines: {id, output, label, votes, score}."),
    ],
    recorded: Annotated[
        bool, typer.Option("--recorded", help="Use the votes in the cases and ask no model.")
    ] = False,
    alpha: Annotated[
        float, typer.Option("--alpha", metavar="X", help="Share of bad outputs that may pass.")
    ] = 0.05,
    max_votes: Annotated[
        int, typer.Option("--max-votes", metavar="N", min=1, max=15, help="Most votes per output.")
    ] = 7,
    min_kappa: Annotated[
        float | None, typer.Option("--min-kappa", metavar="X", help="Lowest accepted kappa.")
    ] = None,
    min_sensitivity: Annotated[
        float | None,
        typer.Option("--min-sensitivity", metavar="X", help="Lowest accepted sensitivity."),
    ] = None,
    min_specificity: Annotated[
        float | None,
        typer.Option("--min-specificity", metavar="X", help="Lowest accepted specificity."),
    ] = None,
    max_flip: Annotated[
        float | None, typer.Option("--max-flip", metavar="X", help="Highest accepted flip rate.")
    ] = None,
    certify: Annotated[
        float | None,
        typer.Option("--certify", metavar="X", help="Certify a threshold for this error share."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write the report as JSON.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Measure a judge against labels of people. Exit code 3: a gate is not met."""
    if kind != "judge":
        hint = nearest(kind, ("judge",)) or "; use judge"
        raise ConfigurationError(f"bench: {kind!r} cannot be measured{hint}")
    judge = _judge_of(document)
    if not recorded:
        raise ConfigurationError(
            "bench judge: pass --recorded. The votes are read from the cases; no model is asked."
        )
    try:
        text = cases.read_text("utf-8")
    except (OSError, UnicodeError) as error:
        raise ConfigurationError(f"{cases}: it cannot be read ({error})") from error
    report = measure_judge(
        cases_from_jsonl(text, str(cases)), alpha=alpha, max_votes=max_votes, certify=certify
    )
    failed = report.failed({
        "kappa": (min_kappa, None), "sensitivity": (min_sensitivity, None),
        "specificity": (min_specificity, None), "flip_rate": (None, max_flip),
    })  # fmt: skip
    values = {**report.to_json(), "gate": {"ok": not failed, "failed": failed}}
    if out is not None:
        try:
            out.write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", "utf-8")
        except OSError as error:
            raise ConfigurationError(f"--out: {out}: {error.strerror}") from error
    with Output(as_json=as_json) as output:
        if as_json:
            output.write_json(values)
        else:
            _write(judge, values, output)
    return GATE if failed else 0


def _judge_of(document: str) -> Judge:
    name, _, step = document.partition("#")
    judges = dict(_judges(load_source(name, SourceSettings(), execute=False).step, ""))
    if not judges:
        raise ConfigurationError(f"{name}: this document has no judge")
    paths = [path for path in judges if not step or step in path.split("/")]
    if not paths:
        names = sorted({part for path in judges for part in path.split("/")})
        raise ConfigurationError(f"{name}: no judge in step {step!r}{nearest(step, names)}")
    if len(paths) > 1:
        raise ConfigurationError(
            f"{name}: there are {len(paths)} judges. Name a step, such as {name}#{paths[0]}."
        )
    return judges[paths[0]]


def _judges(step: Step, path: str) -> Iterator[tuple[str, Judge]]:
    here = f"{path}/{step.name}".strip("/")
    if isinstance(step, Judge):
        yield here, step
        return
    for part in _parts(step):
        yield from _judges(part, here)


def _parts(step: Step) -> list[Step]:
    parts = getattr(step, "parts", None)
    inner = list(parts()) if callable(parts) else []
    # Gates have members and no parts.
    members = () if isinstance(step, Loop) else getattr(step, "members", ())
    return inner or [part for _, part in members]


def _write(judge: Judge, values: dict[str, Json], output: Output) -> None:
    counts = values["confusion"]
    name = "; ".join(judge.criteria)
    output.write((f"judge {name!r}", "bold"), f", {values['cases']} cases, {values['votes']} votes")
    output.write(f"{'':12} {'human yes':>9} {'human no':>9}")
    output.write(f"{'judge yes':12} {counts['tp']:9} {counts['fp']:9}")
    output.write(f"{'judge no':12} {counts['fn']:9} {counts['tn']:9}")
    if counts["undecided"]:
        output.write(f"{'undecided':12} {counts['undecided']:9}")
    for key in _SHARES:
        row = values[key]
        shown = (
            row["why"]
            if "why" in row
            else f"{row['value']:.3f} [{row['low']:.3f}, {row['high']:.3f}]"
        )
        output.write(f"{key:12} {shown}")
    error = values["error"]
    many = "" if error["unlimited"] is None else f", unlimited votes {error['unlimited']:.3f}"
    output.write(f"error: one vote {error['one']:.3f}, majority {error['majority']:.3f}{many}")
    output.write(("advice: ", "dim"), _advice_text(values["advice"]), wrap=True)
    if certified := values["certified"]:
        text = certified.get("why") or (
            f"score ≥ {certified['threshold']:g} "
            f"({certified['labels']} labels, {certified['errors']} errors)"
        )
        output.write(("certified: ", "dim"), text)
    for row in values["persistent"]:
        label = "yes" if row["label"] else "no"
        output.write((f"always wrong: {row['id']} (human {label}): ", "yellow"), row["output"])
    for sentence in values["gate"]["failed"]:
        output.write((f"gate: {sentence}", "red"))


def _advice_text(advice: dict[str, Json]) -> str:
    if why := advice.get("why"):
        return str(why)
    if reason := advice.get("unattainable"):
        return f"unattainable: {reason}"
    return (
        f"accept_lead {advice['accept_lead']}, reject_lead {advice['reject_lead']}, "
        f"max_votes {advice['max_votes']}: {advice['false_accept']:.1%} false accepts, "
        f"{advice['false_reject']:.1%} false rejects"
    )
