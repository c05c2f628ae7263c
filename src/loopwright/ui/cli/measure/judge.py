"""`measure judge`: the errors of a judge, from its votes on labelled cases."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from ...._statistics import effective_votes
from ....engine.run import new_run_id
from ....errors import ConfigurationError
from ....insight import (
    JudgeCase,
    JudgeReport,
    PairCase,
    cases_from_jsonl,
    measurement_input,
    pairs_from_jsonl,
)
from ....insight import measure_judge as measured
from ....insight.judge_bench import judge_json
from ....records import Result, Usage
from ....records.codec import Json
from ... import formatting as texts
from ...consent import approved
from ...documents import judge_of, measurement_of
from ...run_summary import result_json
from ...sources import SourceSettings, load_source
from ..live import report_result
from ..options import RunCommandOptions, RunId, expanded
from ..output import Output
from ..run import Job, perform
from ..telemetry_options import TelemetryOptions

VOTES = 3  # for each case
GATE = 3  # exit code of a gate that is not met
_SHARES = (
    "sensitivity", "specificity", "precision", "agreement", "kappa", "flip_rate", "icc",
)  # fmt: skip
_OF_PAIRS = ("consistent_accuracy", "consistency", "first_share")
_OF_VOTES = (
    "recorded", "alpha", "max_votes", "min_kappa", "min_sensitivity", "min_specificity", "certify", "votes", "robust",
)  # fmt: skip
_GATES = ("min_kappa", "min_sensitivity", "min_specificity", "max_flip", "min_consistent")


@dataclass(frozen=True)
class JudgeOptions(RunCommandOptions):
    """Options of `measure judge`."""

    recorded: Annotated[
        bool, typer.Option("--recorded", help="Use the votes in the cases and ask no model.")
    ] = False
    alpha: Annotated[
        float, typer.Option("--alpha", metavar="X", help="Share of bad outputs that may pass.")
    ] = 0.05
    max_votes: Annotated[
        int,
        typer.Option(
            "--max-votes", metavar="N", min=1, max=15, help="Maximum of votes for an output."
        ),
    ] = 7
    min_kappa: Annotated[
        float | None, typer.Option("--min-kappa", metavar="X", help="Minimum kappa.")
    ] = None
    min_sensitivity: Annotated[
        float | None,
        typer.Option("--min-sensitivity", metavar="X", help="Minimum sensitivity."),
    ] = None
    min_specificity: Annotated[
        float | None,
        typer.Option("--min-specificity", metavar="X", help="Minimum specificity."),
    ] = None
    max_flip: Annotated[
        float | None, typer.Option("--max-flip", metavar="X", help="Maximum flip rate.")
    ] = None
    pairs: Annotated[
        Path | None,
        typer.Option(
            "--pairs",
            metavar="FILE",
            help="Measure the judge of a duel on pairs, JSON lines: {id, first, second, label, input}.",
        ),
    ] = None
    min_consistent: Annotated[
        float | None,
        typer.Option(
            "--min-consistent", metavar="X", help="Minimum share of pairs right in both orders."
        ),
    ] = None
    certify: Annotated[
        float | None,
        typer.Option("--certify", metavar="X", help="Certify a threshold for this error share."),
    ] = None
    votes: Annotated[
        int | None,
        typer.Option(
            "--votes", metavar="N", min=1, max=15, help="Votes for each case.  [default: 3]"
        ),
    ] = None
    robust: Annotated[
        bool, typer.Option("--robust", help="Also show outputs that no judge may accept.")
    ] = False
    at_once: Annotated[
        int, typer.Option("--at-once", metavar="N", min=1, help="Maximum at a time: cases.")
    ] = 4
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="Output: the report, as JSON."),
    ] = None
    run_id: RunId = ""

    def report_options(self) -> dict[str, Json]:
        """Return the options of the report."""
        return {"alpha": self.alpha, "max_votes": self.max_votes, "certify": self.certify}

    def gates(self) -> dict[str, tuple[float | None, float | None]]:
        """Return the lowest and the highest accepted value of each figure with a gate.

        Raises:
            ConfigurationError: for a value that the figure cannot have.
        """
        refused = _OF_VOTES if self.pairs is not None else ("min_consistent",)
        for option in refused:
            if getattr(self, option) != getattr(JudgeOptions, option):
                why = "is not for --pairs" if self.pairs is not None else "needs --pairs"
                raise ConfigurationError(f"--{option.replace('_', '-')} {why}. Remove it.")
        for option in _GATES:
            value, lowest = getattr(self, option), -1 if option == "min_kappa" else 0
            if value is not None and not lowest <= value <= 1:
                word = f"--{option.replace('_', '-')}"
                raise ConfigurationError(f"{word}: {value:g} is not a number from {lowest} to 1")
        if self.pairs is not None:
            return {
                "consistent_accuracy": (self.min_consistent, None),
                "flip_rate": (None, self.max_flip),
            }
        return {
            "kappa": (self.min_kappa, None),
            "sensitivity": (self.min_sensitivity, None),
            "specificity": (self.min_specificity, None),
            "flip_rate": (None, self.max_flip),
        }


@expanded
def measure_judge(
    document: Annotated[
        str, typer.Argument(metavar="DOC[#STEP]", help="Document with the judge, and its step.")
    ],
    options: JudgeOptions,
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="CASES", help="JSON lines: {id, output, label, input, votes, score}."
        ),
    ] = None,
) -> int:
    """Measure a judge against human labels.

    The judge is asked for the votes in a recorded run, which --run-id resumes after a crash. With
    --recorded the votes are read from the cases and no model is asked. With --pairs the judge of a duel
    is asked about each pair in both orders.

    Exit codes: 0, 3 if a gate is not met or a text of the robustness set is accepted, 1 if the run
    failed, 2 for wrong input, 130 interrupted.

    Examples:
        loopwright measure judge polish.yaml cases.jsonl --recorded
        loopwright measure judge polish.yaml#improve cases.jsonl --votes 5 --out report.json
        loopwright measure judge duel.yaml --pairs pairs.jsonl --min-consistent 0.5 --max-flip 0.2
    """
    gates = options.gates()
    cases, pairs = _read(file, options)
    if options.out is not None and not options.out.parent.is_dir():
        # The report would be lost after all votes are paid.
        raise ConfigurationError(f"--out: there is no folder {options.out.parent}")
    with Output(as_json=options.as_json) as output:
        if options.recorded:
            values = _of_recorded_votes(document, cases, options)
        else:
            result = _measured(document, cases, pairs, options, output)
            if not result.satisfied:
                if options.as_json:
                    output.write_json(result_json(result))
                else:
                    report_result(result, output, options.journal)
                return result.status.exit_code
            report: dict[str, Json] = result.output or {}
            values = {"run_id": result.run_id, **report, "usage": result.usage.to_json()}
        failed = JudgeReport(values).failed(gates)
        robustness = values.get("robustness")
        if robustness and robustness["accepted"]:
            count = texts.plural(len(robustness["accepted"]), "text")
            failed.append(f"robustness: {count} of {robustness['shown']} accepted")
        values["gate"] = {"ok": not failed, "failed": failed}
        if options.out is not None:
            content = json.dumps(values, indent=2, ensure_ascii=False) + "\n"
            try:
                options.out.write_text(content, "utf-8")
            except OSError as error:
                raise ConfigurationError(f"--out: {options.out}: {error.strerror}") from error
        if options.as_json:
            output.write_json(values)
        elif pairs:
            _write_pairs(values, output)
        else:
            _write(values, output)
    return GATE if failed else 0


def _of_recorded_votes(
    document: str, cases: Sequence[JudgeCase], options: JudgeOptions
) -> dict[str, Json]:
    if options.robust or options.votes is not None or options.run_id:
        raise ConfigurationError(
            "measure judge: --robust, --votes and --run-id ask the judge. Remove --recorded."
        )
    name, _, step = document.partition("#")
    source = load_source(name, SourceSettings.of(options), execute=False)
    judge = judge_of(source.step, name, step)
    report = measured(cases, **options.report_options()).to_json()
    return {"run_id": None, "judge": judge_json(judge), **report, "usage": None}


def _measured(
    document: str,
    cases: Sequence[JudgeCase],
    pairs: Sequence[PairCase],
    options: JudgeOptions,
    output: Output,
) -> Result:
    """Ask the judge in a run, and return the result of the run."""
    name, _, step = document.partition("#")
    load = functools.partial(load_source, name, SourceSettings.of(options))
    source = load(execute=False)
    bench_of: dict[str, Json] = {"step": step, "at_once": options.at_once}
    value: Json = [pair.to_json() for pair in pairs]
    if not pairs:
        # Of the document, only the tools of the judge act on this machine.
        if judge_of(source.step, name, step).tools.tools:
            source = approved(load, output, yes=options.yes)
        bench_of["votes"] = options.votes or VOTES
        value = measurement_input(cases, robust=options.robust, **options.report_options())
    telemetry_options = TelemetryOptions(options.otel, options.log, options.capture_content)
    run_id = options.run_id or new_run_id()
    job = Job(measurement_of(source, bench_of), value, run_id, options, telemetry_options)
    return perform(job, output)[0]


def _read(file: Path | None, options: JudgeOptions) -> tuple[list[JudgeCase], list[PairCase]]:
    """Return the cases or the pairs; one of the two lists is empty."""
    where = options.pairs or file
    if where is None or (options.pairs is not None and file is not None):
        raise ConfigurationError("measure judge: name either CASES or --pairs FILE.")
    try:
        # Editors of Windows begin a file with a byte order mark.
        text = where.read_text("utf-8-sig")
    except OSError as error:
        raise ConfigurationError(f"{where}: it cannot be read ({error.strerror})") from error
    except UnicodeError as error:
        raise ConfigurationError(f"{where}: this file is not UTF-8 text ({error})") from error
    if options.pairs is None:
        return cases_from_jsonl(text, str(where)), []
    pairs = pairs_from_jsonl(text, str(where))
    if options.min_consistent is not None and pairs[0].label is None:
        raise ConfigurationError(
            f"{where}: the pairs have no label, and --min-consistent compares with labels. Add first, second or tie."
        )
    return [], pairs


def _write_pairs(values: dict[str, Json], output: Output) -> None:
    name = "; ".join(values["judge"]["criteria"])
    undecided = f", {values['undecided']} undecided" if values["undecided"] else ""
    pairs = texts.plural(values["pairs"], "pair")
    output.write((f"judge {name!r}", "bold"), f", {pairs} in both orders{undecided}")
    for key in _OF_PAIRS:
        output.write(f"{key:19} {_interval(values[key])}")
    for row in values["persistent"]:
        output.write(
            (f"always wrong: {row['id']} (human {row['label']}): ", "yellow"), row["winner"]
        )
    _write_end(values, output)


def _interval(row: dict[str, Json]) -> str:
    if "why" in row:
        return str(row["why"])
    return f"{row['value']:.3f} [{row['low']:.3f}, {row['high']:.3f}]"


def _write(values: dict[str, Json], output: Output) -> None:
    counts = values["confusion"]
    name = "; ".join(values["judge"]["criteria"])
    cases, votes = texts.plural(values["cases"], "case"), texts.plural(values["votes"], "vote")
    output.write((f"judge {name!r}", "bold"), f", {cases}, {votes}")
    output.write(f"{'':12} {'human yes':>9} {'human no':>9}")
    output.write(f"{'judge yes':12} {counts['tp']:9} {counts['fp']:9}")
    output.write(f"{'judge no':12} {counts['fn']:9} {counts['tn']:9}")
    if counts["undecided"]:
        output.write(f"{'undecided':12} {counts['undecided']:9}")
    for key in _SHARES:
        row = values[key]
        shown = _interval(row)
        if key == "icc" and "value" in row and values["votes"] > 1:
            independent = effective_votes(values["votes"], row["value"])
            shown += f": {values['votes']} votes count as {independent:.1f}"
        output.write(f"{key:12} {shown}")
    if robustness := values["robustness"]:
        refused = robustness["shown"] - len(robustness["accepted"])
        output.write(f"robustness: {refused} of {robustness['shown']} refused")
        for row in robustness["accepted"]:
            output.write((f"accepted: {row['name']}: ", "yellow"), texts.one_line(row["output"]))
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
    _write_end(values, output)


def _write_end(values: dict[str, Json], output: Output) -> None:
    """Write what the measurement spent, and the gates that are not met."""
    if usage := values["usage"]:
        output.write((f"{texts.spent(Usage.from_json(usage))}, run {values['run_id']}", "dim"))
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
