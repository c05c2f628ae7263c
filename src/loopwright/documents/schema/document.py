"""The native document: the models that validate YAML and generate the JSON Schema.

Each dialect becomes a `Document` before anything is compiled. Unknown keys are refused. The description of a field is
its documentation, which editors show.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, model_validator
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticCustomError

from ...records.codec import Json
from .datasets import DatasetFile, ErrorsSpec, GateSpec, MinibatchSpec, SplitNames
from .evaluators import (
    AdaptSpec,
    CheckSpec,
    ConfidenceSpec,
    ConfirmSpec,
    DeclaredMetric,
    JudgeSpec,
    MetricScoreSpec,
    MetricSpec,
    PairJudgeSpec,
    TestsSpec,
)
from .extensions import (
    ConsensusSpec,
    LoopMemorySpec,
    MemorySpec,
    NodeSpec,
    Templates,
    Termination,
)
from .fields import (
    CWD,
    MAX_RETRIES,
    ON_FAILURE,
    RETRY_DELAY,
    TIMEOUT,
    Accepted,
    CommandFields,
    Identifier,
    Names,
    Part,
    Pause,
    Seconds,
    ServerSpec,
    SettingsFields,
    ToolSpec,
)
from .inputs import InputName, InputSpec
from .models import (
    BudgetSpec,
    CodingAgentSpec,
    LimitSpec,
    ModelFields,
    PhasedFields,
    PriceSpec,
    PromptFields,
    ReasoningSpec,
)

__all__ = [
    "ACTIONS",
    "Action",
    "CandidatesSpec",
    "Document",
    "EachSpec",
    "EvaluateSpec",
    "LoopSpec",
    "PhasedSpec",
    "ScoreSpec",
    "StepSpec",
    "WorkspaceKind",
    "WorkspaceSpec",
]

WorkspaceKind = Literal["copy", "worktree", "snapshot", "here"]


class WorkspaceSpec(Part):
    """The folder in which commands run: its files are captured in each iteration, and the best ones stay in place."""

    kind: WorkspaceKind = Field(
        "copy",
        description="`copy`: a clone. `worktree`: one that git lists. `snapshot`: a folder without git. `here`: the folder "
        "itself. A copy of a folder without git is a snapshot.",
    )
    path: str = Field(".", description="The folder, relative to the document.")
    dirty: Literal["include", "refuse", "leave"] = Field(
        "include",
        description="Whether uncommitted changes are copied, are an error, or are left out.",
    )
    history: Literal["full", "base"] = Field(
        "full", description="`base`: one commit, without the history of the repository."
    )
    include: list[str] = Field(
        [], description="Patterns of files that are captured although they are ignored."
    )
    exclude: list[str] = Field(
        [], description="Patterns, as in .gitignore, of files that are never captured."
    )
    max_file: int | str = Field("100 MB", description="Size of the largest file that is captured.")
    setup: list[str] | str = Field(
        [], description="A command that prepares each new copy, such as [uv, sync]."
    )
    reset: list[str] | str = Field(
        [],
        description="A command that puts a database or a service into the state of the files. It runs whenever files were "
        "put in place for an iteration.",
    )
    link: list[str] = Field(
        [], description="Folders that the copy contains as links, such as node_modules."
    )
    # Of documents that are recorded with a run; others have it at the loop.
    refine_from: SkipJsonSchema[Literal["last", "best", "accepted"] | None] = None
    on_cancel: Literal["best", "leave"] = Field(
        "best", description="The files of a cancelled loop: the best, or as they are."
    )
    merge: Literal["branch", "patch", "apply", "none"] | None = Field(
        None,
        description="What the end makes of the result: a branch, a patch, or changes in your folder. Default: branch, without "
        "git patch, and none for `here`.",
    )
    branch: str = Field("loopwright/{run}", description="Name of the branch; {run} is the run ID.")
    commits: Literal["squash", "iterations"] = Field(
        "squash", description="One commit, or one for each iteration that led to the result."
    )
    secrets: Literal["warn", "drop"] = Field(
        "warn",
        description="Whether a changed file with a key is handed over with a warning, or left out.",
    )
    retain: str = Field(
        "7d", description="How long the folder stays after the end, for `files prune`."
    )


class WaitedFileSpec(Part):
    """A file that a wait looks at."""

    path: str = Field(min_length=1, description="The file, in the workspace or the current folder.")
    is_: Literal["there", "gone", "changed"] = Field(
        "there", alias="is", description="How the file must be."
    )


class WaitedUrlSpec(Part):
    """A URL that a wait looks at."""

    url: str = Field(description="The URL; templates only after the host.")
    status: int | None = Field(
        None, description="The status of the answer. Default: any of 200 to 299."
    )
    pattern: str = Field("", description="A regular expression that the answer must contain.")
    is_: Literal["there", "changed"] = Field(
        "there", alias="is", description="`changed`: the answer differs from the first one."
    )


class ProbeSpec(Part):
    """The pauses between two looks at a command or a URL; each is 1.5 times the one before."""

    first: Seconds | None = Field(None, description="The first pause. Default: 2s.")
    most: Seconds | None = Field(None, description="The longest pause. Default: 1m.")


class WaitedSpec(Part):
    """What a wait waits for: exactly one of `for`, `at`, `event`, `command`, `file` and `url`."""

    for_: Pause | None = Field(None, alias="for", description="A duration.")
    at: str | None = Field(
        None, description="A time with an offset, such as 2026-12-01T08:00+01:00."
    )
    event: str | None = Field(None, description="The name of an event.")
    key: str | None = Field(
        None, description="The key of the event, a template. Default: the ID of the run."
    )
    since: Literal["run", "wait"] | None = Field(
        None,
        description="`run`: events that came since the run was created count. `wait`: since the wait began. Default: run.",
    )
    schema_: dict[str, Json] | None = Field(
        None, alias="schema", description="The JSON Schema of the value of the event."
    )
    file: str | WaitedFileSpec | None = Field(
        None, description="A file that must exist, or `{path, is: there, gone or changed}`."
    )
    command: list[str] | None = Field(
        None,
        min_length=1,
        description="A command that must exit with 0; with another code, it is run again later.",
    )
    failed: list[int] | None = Field(
        None, description="Exit codes of the command with which the wait fails."
    )
    cwd: str | None = Field(None, description="Folder of the command, inside the project.")
    env: dict[str, str] = Field(
        {}, description="Environment variables of the command, with templates."
    )
    pass_env: Names = Field(
        [], description="Variables of the environment that the command receives, for keys."
    )
    probe_timeout: Seconds | None = Field(
        None, description="Time after which the command is ended and run again later. Default: 1m."
    )
    url: str | WaitedUrlSpec | None = Field(
        None,
        description="A URL that must answer, or `{url, status, pattern, is: there or changed}`.",
    )
    every: ProbeSpec | None = Field(
        None, description="The pauses between two looks at the command or the URL."
    )


class WaitSpec(WaitedSpec):
    """A wait for something outside of the run, which costs nothing until it comes."""

    first_of: dict[str, WaitedSpec] | None = Field(
        None, min_length=2, description="Several by name; the first one ends the wait."
    )
    timeout: Seconds | Literal["none"] | None = Field(
        None, description="After this time it ends without; `none`: never. Default: 7 days."
    )
    default: Json = Field(
        None, description="The value with which it then ends. Without it, the step fails."
    )


# The order of messages, of the JSON Schema and of printed documents.
ACTIONS = (
    "python", "shell", "workflow", "loop", "each", "steps", "parallel", "fallback", "prompt", "consensus", "phased",
    "reasoning", "agent", "gepa", "memory", "tool", "wait", "set",
)  # fmt: skip


class Action(SettingsFields, CommandFields, PromptFields):
    """An action of a step: exactly one of the ACTIONS."""

    python: str | None = Field(
        None,
        description="`package.module:function`; called with the input, or with input and context.",
    )
    shell: list[str] | str | None = Field(
        None,
        description="A command as a list, or a constant script. Pass values through `env` and `stdin`.",
    )
    workflow: str | None = Field(
        None, description="Another document: its name, or its file relative to this one."
    )
    loop: LoopSpec | None = Field(None, description="A loop.")
    each: EachSpec | None = Field(None, description="The same action on each item of a list.")
    steps: list[StepSpec] | None = Field(
        None, description="Steps that run one after the other, as one step.", min_length=1
    )
    parallel: list[StepSpec] | None = Field(
        None, description="Steps that run concurrently on the same input.", min_length=1
    )
    fallback: list[StepSpec] | None = Field(
        None, description="Steps tried in order until one is satisfied.", min_length=1
    )
    prompt: str | None = Field(
        None, description="A template sent to a model; the reply is the output."
    )
    consensus: ConsensusSpec | None = Field(
        None, description="One prompt to several models, which must agree."
    )
    phased: PhasedSpec | None = Field(
        None, description="An agent that plans, executes and refines."
    )
    reasoning: ReasoningSpec | None = Field(
        None, description="An agent that reasons in one conversation until it states its answer."
    )
    agent: CodingAgentSpec | None = Field(
        None, description="A task for a coding agent, which edits files."
    )
    gepa: GepaSpec | None = Field(
        None, description="Texts, such as a prompt, that GEPA improves on the cases of a data set."
    )
    memory: MemorySpec | None = Field(
        None, description="An operation on texts or facts that are kept between runs."
    )
    tool: str | None = Field(
        None, description="A call of a tool: its name in `tools`, or `server.tool`."
    )
    wait: WaitSpec | None = Field(
        None, description="A wait for a time, an event or a file, which costs nothing meanwhile."
    )
    set: Json = Field(None, description="A value; its templates are rendered.")

    arguments: dict[str, Json] | None = Field(
        None, description="The arguments of the tool, with templates. Default: the input."
    )

    input: Json = Field(
        None,
        description="The input of the step, with templates. Default: the output of the step before.",
    )
    with_: dict[str, Json] | None = Field(
        None, alias="with", description="Variables of the called workflow."
    )
    expose: Names = Field(
        [],
        description="Steps of the called workflow whose outputs a loop keeps, as `loop.steps.NAME`.",
    )
    output: Json = Field(
        None,
        description="`text`, `json` or `result` of a command; `{schema: …}` of a prompt, where `otherwise: FIELD` "
        "puts the text of a reply without such a value into a field; `all` of steps or parallel: all outputs by "
        "name, where inner groups are replaced by their steps; `last` of steps: the same for templates, but the "
        "workflow continues with the output of the last one.",
    )
    idempotent: bool | None = Field(
        None, description="Whether it can run again if the process ended during the step."
    )

    timeout: Seconds | None = Field(None, description="Seconds, or text like 30s.")
    on_failure: Literal["halt", "continue", "retry"] | None = Field(None, description=ON_FAILURE)
    max_retries: int = Field(2, ge=0, le=100, description=MAX_RETRIES)
    retry_delay: Pause = Field(0.5, description=RETRY_DELAY)

    @property
    def kind(self) -> str:
        """The name of the action."""
        # By the fields that are set: `set: null` is an action too.
        return next(name for name in ACTIONS if name in self.model_fields_set)

    @model_validator(mode="after")
    def _one_kind(self) -> Action:
        fields = self.model_fields_set
        value = [name for name in ACTIONS if name in fields]
        if len(value) != 1:
            result = f"has {' and '.join(value)}" if value else "has none"
            raise PydanticCustomError(
                "action", "needs exactly one of {kinds}, but {present}",
                {"kinds": ", ".join(ACTIONS), "present": result},
            )  # fmt: skip
        for name, kinds in _ONLY.items():
            if name in fields and value[0] not in kinds:
                raise PydanticCustomError(
                    "misplaced", "{name} belongs to {kinds}, not to {kind}",
                    {"name": name.rstrip("_"), "kinds": " or ".join(kinds), "kind": value[0]},
                )  # fmt: skip
        return self


# The fields of some actions only. In another action they would have no effect, which is refused.
_ONLY = {
    "with_": ("workflow",),
    "expose": ("workflow",),
    "output": ("shell", "prompt", "workflow", "steps", "parallel"),
    "idempotent": ("shell", "python"),
    "arguments": ("tool",),
    **dict.fromkeys(CommandFields.model_fields, ("shell",)),
    "pass_env": ("shell", "tool"),
    **dict.fromkeys((*PromptFields.model_fields, *SettingsFields.model_fields), ("prompt",)),
}


class Inline(Action):
    """The action that a loop or a list executes; a name is the name of its loop or agent."""

    name: Identifier | None = Field(None, description="The name of the loop or agent in results.")


class StepSpec(Action):
    """A named step of a workflow."""

    name: Identifier = Field(description="The name of the step, and of its output in templates.")
    needs: Names = Field([], description="Steps that must run before this one.")
    if_: str | None = Field(
        None, alias="if", description="An expression; the step is skipped unless it is true."
    )
    required: bool = Field(
        False, description="Whether the workflow ends if this loop is not satisfied."
    )
    accept: Accepted = Field(
        [],
        description="The statuses of this loop with which the workflow can still be satisfied. It changes the status "
        "of the workflow, not whether the workflow continues.",
    )
    otherwise: Json = Field(
        None,
        description="The output of the step if it has none: it was skipped, it failed under on_failure: continue, or it has no output.",
    )
    description: str = Field("", description="Text for readers.")


class ScoreSpec(Part):
    """A score in a text: `number`, `number/den` or `number%` after a label."""

    label: str = Field("score", min_length=1, description="The word before the number.")
    scale: list[float] = Field(
        [0.0, 1.0], min_length=2, max_length=2, description="Scale of a number without a unit."
    )
    pattern: str | None = Field(
        None, description="A regular expression whose first group is the number."
    )
    of: Action | None = Field(
        None, description="A step whose output holds the score; default: the output itself."
    )
    tests: list[str] | str | None = Field(
        None, description="A test command; the score is the share that passes."
    )
    report: str | None = Field(
        None,
        description="The report that `tests` writes: JUnit's XML, TRX, `go test -json` or TAP. Default: pytest's summary.",
    )
    cwd: str | None = Field(None, description=CWD)
    timeout: Seconds | None = Field(None, description=TIMEOUT)


class EvaluateSpec(Part):
    """How an output is evaluated. Deterministic evaluators run first, and a model cannot overrule them."""

    check: CheckSpec | Literal["equals_expected"] | None = Field(
        None,
        description="A deterministic check. `equals_expected`: the output is what the case of a data set expects.",
    )
    checklist: list[CheckSpec] | None = Field(
        None,
        min_length=1,
        description="A list of checks. The score is the weighted share that passes.",
    )
    score: ScoreSpec | None = Field(
        None, description="A score that is read from text, or the share of tests that pass."
    )
    tests: TestsSpec | list[str] | str | None = Field(
        None, description="A test command. The score is the share of tests that pass."
    )
    metric: MetricSpec | None = Field(
        None,
        description="A number that a command prints. It runs after the other deterministic evaluators passed.",
    )
    judge: JudgeSpec | str | None = Field(
        None, description="A model decides whether the output meets a criterion."
    )
    confidence: ConfidenceSpec | None = Field(None, description="A model rates weighted criteria.")
    python: str | None = Field(
        None, description="`package.module:function` that returns a score, a verdict or both."
    )
    dataset: DatasetSpec | None = Field(
        None, description="The mean score of the cases of a data set, on which the output is used."
    )
    graded: bool = Field(
        False,
        description="Whether an output that fails at one of several evaluators keeps a score: the evaluators that passed, and the "
        "score of the one that failed, as a share of all.",
    )

    @model_validator(mode="after")
    def _something(self) -> EvaluateSpec:
        # By the fields that are set and not by their values: `python: null` is a mistake in that field.
        if not self.model_fields_set - {"graded"}:
            kinds = "check, checklist, score, tests, metric, judge, confidence, python, dataset"
            raise PydanticCustomError("evaluate", "needs one of {kinds}", {"kinds": kinds})
        return self

    @property
    def tests_spec(self) -> TestsSpec | None:
        """The test command with its settings, also if only the command is written."""
        value = self.tests
        return TestsSpec(command=value) if isinstance(value, str | list) else value

    @property
    def judge_spec(self) -> JudgeSpec | None:
        """The judge with its settings, also if only the criterion is written."""
        return JudgeSpec(criterion=self.judge) if isinstance(self.judge, str) else self.judge


class CaseFields(Part):
    """How the cases of a data set run and are evaluated."""

    evaluate: EvaluateSpec | list[EvaluateSpec] = Field(
        description="Evaluates an output of the task, with `case.expected`."
    )
    at_once: int = Field(
        8, ge=1, le=1024, description="The maximum of cases that run concurrently."
    )
    repeat: int = Field(1, ge=1, le=1000, description="How often each case runs.")
    errors: ErrorsSpec | None = Field(None, description="What happens after errors of cases.")
    show: int = Field(
        5,
        ge=0,
        le=100,
        description="How many of the worst cases are shown; as feedback of a loop only training cases.",
    )


class DatasetSpec(DatasetFile, CaseFields):
    """The cases of a data set as the evaluator of a loop."""

    use: SplitNames | None = Field(
        None, description="The splits that score an output. Default: all that is not held out."
    )
    run: Inline = Field(
        description="Uses an output of the loop, which is its `value`, on a `case`. It does not see what is expected."
    )
    minibatch: MinibatchSpec | None = Field(
        None, description="Cases on which an output must not be worse than its parent."
    )


class GepaSpec(Part):
    """Texts that GEPA improves. The output has the best ones by name."""

    optimise: dict[str, str] = Field(
        min_length=1,
        description="The texts to begin with, by name. A case has them as `value.NAME`.",
    )
    run: Inline = Field(
        description="What runs on a `case`; its input are the texts and the `inputs` of the case. It does not see what is "
        "expected."
    )
    dataset: DatasetFile = Field(
        description="The cases. With splits, GEPA learns from `train` and scores with `validation`."
    )
    evaluate: EvaluateSpec | list[EvaluateSpec] = Field(
        description="Evaluates an output, with `case.expected`. GEPA reads its feedback."
    )
    max_metric_calls: int = Field(
        400, ge=1, description="The cases after which no other proposal begins."
    )
    patience: int = Field(
        20, ge=1, description="The proposals in a row without a better one that end the step."
    )
    model: str | None = Field(
        None, description="The model that proposes texts. Default: that of the document."
    )


class EvalSpec(CaseFields):
    """A task that runs on the cases of a data set, and how its outputs are evaluated."""

    dataset: DatasetFile = Field(description="The data set.")
    use: SplitNames | None = Field(
        None, description="The splits whose cases run. Default: all that is not held out."
    )
    task: Inline = Field(
        description="What runs on each case; its input is `case.inputs`. It does not see what is expected."
    )
    gate: GateSpec | None = Field(None, description="What the result must reach.")


LifecycleEvent = Literal["iteration", "limit"]


class HintsSpec(Part):
    """Where hints come from, besides `loopwright steer`."""

    event: str = Field(
        description="Name of the events whose texts are hints; their key is the ID of the run."
    )


StallThen = Literal["best", "last", "fresh", "ask", "stop"]
ParentRule = Literal["last", "best", "sample", "pareto"]


class OnStallSpec(Part):
    """What a loop does after iterations without progress: a new chain of iterations, with new sessions."""

    then: StallThen = Field(
        "best",
        description="Where a new chain begins: at the `best` iteration, the `last` one, or `fresh` with the input and the "
        "files of the beginning. `ask` asks a person, `stop` ends the loop.",
    )
    patience: int = Field(
        2, ge=1, le=1000, description="Iterations without progress that are a stall."
    )
    restarts: int = Field(5, ge=0, le=1000, description="How many stalls begin a new chain.")
    min_delta: float = Field(
        0.0, ge=0, le=1, description="The smallest difference of scores that is progress."
    )


Optimiser = Literal["random", "tpe", "nsga2", "cma"]


class OptimiseSpec(Part):
    """An optimiser that proposes the parameters of each iteration, in place of `adapt`."""

    space: dict[str, Json] = Field(
        description="The parameters by name: `{float: [LOW, HIGH]}` or `{int: [LOW, HIGH]}`, also with `log: true`, or "
        "`{choice: [VALUE, VALUE]}`."
    )
    by: Optimiser | list[Optimiser] = Field(
        "tpe",
        description="`random`, `tpe` and `nsga2` are of Optuna; `cma` needs two numbers or more and knows no choice. Several "
        "are the strategies of the loop: a stall hands over to the next one.",
    )
    startup: int = Field(
        10,
        ge=1,
        description="The evaluated proposals before `tpe` models them. Until then it draws.",
    )
    reuse: bool = Field(
        False,
        description="Whether another proposal takes the place of one that was evaluated before.",
    )


class RefineFromSpec(Part):
    """The rule for the iteration from which the next one continues."""

    rule: ParentRule = Field(
        description="`last` of the chain, `best` of the chain, `sample` from all chains, better ones more often, or `pareto`: "
        "from those that no other one is better than in every case or objective."
    )
    power: float = Field(
        1.0, ge=0, description="Of `sample`: how much more often better ones are drawn."
    )
    fresh_share: float = Field(
        0.15,
        ge=0,
        le=1,
        description="Of `sample`: the share of iterations that start from the beginning.",
    )


class ImpossibleSpec(Part):
    """When evaluations that call the task impossible end a loop."""

    floor: int = Field(3, ge=1, le=1000, description="The first iteration that counts.")
    looks: int = Field(
        2, ge=2, le=1000, description="Decided iterations in a row that must say so."
    )


class UndecidedSpec(Part):
    """What a loop does after evaluations in a row that could not decide."""

    after: int = Field(2, ge=1, le=1000, description="The evaluations in a row.")
    then: Literal["fail", "pause", "accept_check", "reject"] = Field(
        "fail",
        description="`fail` ends the loop, `pause` asks a person, `accept_check` lets the deterministic evaluators decide "
        "alone, `reject` counts the output as not met.",
    )


Number = Annotated[int, Field(ge=1, le=1024)]


class PickSpec(Part):
    """A rule for the choice."""

    python: str = Field(
        description="A function, as `package.module:function`, from a list of `Candidate` to a number."
    )


class CandidatesSpec(Part):
    """Several outputs of each iteration, of which one is chosen."""

    n: Number = Field(description="The candidates of an iteration.")
    first: Number | None = Field(
        None, description="Those of the first iteration of each chain. Default: `n`."
    )
    at_once: Number | None = Field(
        None, description="The maximum that run concurrently. Default: the smaller of `n` and 8."
    )
    vary: list[Json] = Field(
        [],
        description="Values of which candidate k sees the k-th as `loop.vary`, from the start again after the last. "
        "`loop.candidate` is its number.",
    )
    pick: Literal["score", "duel", "first_pass", "combine", "ask"] | PickSpec = Field(
        "score",
        description="Which one is chosen: the best by `score`, a `duel` of the two best, the `first_pass` that passed, "
        "`combine` with one more that a step makes of them, `ask` for a person, or a function.",
    )
    judge: PairJudgeSpec | None = Field(
        None, description="Compares the two best; only with `pick: duel`."
    )
    combine: Inline | None = Field(
        None,
        description="Makes one more candidate; only with `pick: combine`. Its templates have the eligible ones as `value`: "
        "a list of `number`, `output`, `score`, `feedback` and `changes`, the best first.",
    )
    stop_rest: Literal["never", "passed"] | dict[str, Json] = Field(
        "never",
        description="A condition of success that ends the other candidates when one meets it, such as `passed` or "
        "`{score_at_least: 0.95}`.",
    )
    min_ok: Number = Field(
        1, description="With fewer eligible candidates, the iteration fails as `candidates_failed`."
    )
    budget: BudgetSpec | None = Field(None, description="The maximum cost of one candidate.")

    @model_validator(mode="after")
    def _of_its_pick(self) -> CandidatesSpec:
        # A key of another pick would have no effect.
        for pick, key in (("duel", "judge"), ("combine", "combine")):
            words = {"pick": pick, "key": key}
            if self.pick == pick and getattr(self, key) is None:
                raise PydanticCustomError("loop", "pick: {pick} needs the key {key}", words)
            if self.pick != pick and getattr(self, key) is not None:
                raise PydanticCustomError(
                    "loop", "{key} is a key of pick: {pick}; write that too", words
                )
        return self


class LoopSpec(Part):
    """Execute, evaluate, adapt, and repeat until a condition ends the loop."""

    execute: Inline = Field(description="Creates an output from an input.")
    node: NodeSpec | None = Field(
        None, description="Scores iterations by the outputs of agents, and passes their lessons on."
    )
    evaluate: EvaluateSpec | list[EvaluateSpec] | None = Field(
        None, description="Evaluates an output."
    )
    adapt: AdaptSpec | Literal["feedback", "keep_input", "use_output"] | None = Field(
        None, description="Creates the next input. Default: the input stays the same."
    )
    until: Json = Field(
        None,
        description="The conditions, any of which ends the loop: a list, a tree of any_of and all_of, or sentences for a judge.",
    )
    termination: Termination = None
    guards: Json = Field(None, description="Conditions that are also checked before each effect.")
    on_failure: Literal["halt", "continue", "retry"] = Field("halt", description=ON_FAILURE)
    max_retries: int = Field(2, ge=0, le=100, description=MAX_RETRIES)
    retry_delay: Pause = Field(0.5, description=RETRY_DELAY)
    max_failures: Annotated[int, Field(ge=1, le=1000)] | Literal["none"] = Field(
        3,
        description="The maximum of consecutive failed iterations, with on_failure: continue. `none`: no maximum besides the limits.",
    )
    keep: Literal["best", "last"] = Field(
        "best",
        description="Output of a loop that is not satisfied: the best by score, or the last.",
    )
    min_iterations: int = Field(
        1,
        ge=1,
        le=1000,
        description="Completed iterations before a condition that is not a limit may end the loop.",
    )
    max_iterations: int | None = Field(
        None, ge=1, le=1000, description="The same as the condition of that name."
    )
    required: bool = Field(
        False, description="Whether the workflow ends if this loop is not satisfied."
    )
    approve: LifecycleEvent | list[LifecycleEvent] = Field(
        [],
        description="When a person decides whether the loop continues: between iterations, at the limit.",
    )
    baseline: bool = Field(
        False,
        description="Whether the input is evaluated before the first iteration. If it passes, the loop is satisfied at once.",
    )
    metrics: dict[str, Literal["minimise", "maximise"] | DeclaredMetric] = Field(
        {},
        description="Metrics of the evaluations by name: `minimise`, `maximise`, or an object with the unit and more. "
        "Others are recorded and order nothing.",
    )
    objective: str | list[str] = Field(
        "",
        description="The metric that orders the iterations, or several: the first one orders them, and `Result.front` has "
        "those that no other one is better than. Default: the only one with a direction, else the score.",
    )
    confirm: ConfirmSpec | None = Field(
        None,
        description="Accept an iteration only after a test of new measurements. The loop then continues from the last "
        "accepted iteration.",
    )
    score: MetricScoreSpec | None = Field(
        None, description="The score that a metric makes. Default: a metric makes no score."
    )
    on_stall: OnStallSpec | StallThen | None = Field(
        None, description="What happens after iterations without progress."
    )
    candidates: Number | CandidatesSpec | None = Field(
        None,
        description="Several outputs of each iteration, of which one is chosen: a number, or more.",
    )
    strategies: dict[str, Json] | None = Field(
        None,
        description="Values by name, as `loop.strategy`: each chain takes the next one. They need on_stall.",
    )
    strategy_order: Literal["declared", "learned"] = Field(
        "declared",
        description="`learned`: those first that improved the best iteration of past runs most often for their cost.",
    )
    refine_from: RefineFromSpec | ParentRule | None = Field(
        None,
        description="The iteration from which the next one continues, with its files and its record. Default: the last one "
        "of the chain.",
    )
    optimise: OptimiseSpec | None = Field(
        None,
        description="An optimiser that proposes the parameters of each iteration, in place of `adapt`. They are merged into "
        "the input of the loop.",
    )
    impossible: ImpossibleSpec | None = Field(
        None,
        description="When evaluations that call the task impossible end the loop, with the status `impossible`.",
    )
    hints: HintsSpec | None = Field(
        None, description="Events whose texts are hints for the next iterations, as of `steer`."
    )
    explore: float = Field(
        0.0,
        ge=0,
        le=1,
        allow_inf_nan=False,
        description="The share of runs that continue to the limits after their normal end, for replay.",
    )
    undecided: UndecidedSpec | None = Field(
        None, description="What happens after evaluations in a row that could not decide."
    )
    persist_across_runs: bool = Field(
        False,
        description="Whether the loop receives the results of its earlier runs, as `memory` in templates: `memory.text` in "
        "words, `memory.lessons`, `memory.facts`, `memory.success_rate`.",
    )
    memory: LoopMemorySpec | None = Field(
        None, description="The same, with the memory space and the amounts."
    )
    workspace: WorkspaceSpec | WorkspaceKind | None = Field(
        None,
        description="The folder in which the commands of the loop run. Default: that of the document, if it has one.",
    )

    @property
    def ends(self) -> tuple[str, Json]:
        """The key of the conditions that end the loop, and its value."""
        return (
            ("until", self.until) if self.termination is None else ("termination", self.termination)
        )

    @property
    def optimises(self) -> bool:
        """Whether a metric orders its iterations."""
        values = self.metrics.values()
        return any(isinstance(item, str) or item.minimise or item.maximise for item in values)

    @model_validator(mode="after")
    def _one_end(self) -> LoopSpec:
        # Two lists of conditions would hide which one ended the loop.
        if self.until is not None and self.termination is not None:
            raise PydanticCustomError("loop", "has both until and termination; keep one", {})
        return self


class PhasedSpec(PhasedFields):
    """An agent with three phases, whose templates have the additional names `task`, `plan` and `results`."""

    planning: Action | None = Field(None, description="The step of a planning iteration.")
    execution: Action | None = Field(None, description="The step of an execution iteration.")
    refinement: Action | None = Field(None, description="The step of a refinement iteration.")
    evaluate: EvaluateSpec | list[EvaluateSpec] | None = Field(
        None,
        description="Evaluates the output of execution and refinement. The score is the confidence.",
    )


class EachSpec(Part):
    """The same action on each item of a list. Its templates have the item as `loop.current`."""

    items: Json = Field(
        description="A list, or a template of one or of its text: a JSON array, JSON lines, lines of text, or "
        "`file://` and a path inside the project."
    )
    execute: Inline = Field(description="Creates an output from an item.")
    at_once: int = Field(1, ge=1, le=256, description="The maximum of items that run concurrently.")
    max_items: int | None = Field(
        None,
        ge=1,
        le=100_000,
        description="The maximum of items; further items are left out with a warning.",
    )
    min_success_rate: float = Field(
        1.0, ge=0, le=1, description="The share of items that must be satisfied."
    )
    unmet: Literal["by_items", "failed"] = Field(
        "by_items",
        description="The status if fewer items are satisfied: `by_items` is failed if an item failed, else exhausted; `failed` is always failed.",
    )
    on_failure: Literal["halt", "continue", "retry"] = Field("halt", description=ON_FAILURE)
    max_retries: int = Field(2, ge=0, le=100, description=MAX_RETRIES)
    retry_delay: Pause = Field(0.5, description=RETRY_DELAY)
    item_timeout: Seconds | None = Field(None, description="The time limit of one item.")
    timeout: Seconds | None = Field(
        None, description="The time limit of all items; finished items are kept."
    )
    keep: Literal["all", "last"] = Field(
        "all", description="The output: the list of outputs, or the last one."
    )


class Document(ModelFields):
    """A workflow: named steps, and the settings for all of them."""

    schema_: Literal["loopwright/1"] = Field(
        alias="schema", description="The version of this format."
    )
    name: Identifier = Field(
        description="Name: letters of any script, digits, `_`, `.`, `-` and spaces, at most 64 characters."
    )
    description: str = Field("", description="Text for readers.")
    version: str = Field("", description="Text for readers.")
    templates: Templates = "native"
    input: Json = Field(None, description="The input if the caller sets none.")
    inputs: dict[InputName, InputSpec] = Field(
        {},
        description="The inputs of a run by name, as `input.NAME` in templates. Commands, pages and callers check their "
        "values and show their descriptions.",
    )
    env: dict[str, str] = Field({}, description="Constants, as `env.NAME` in templates.")
    prices: dict[str, PriceSpec | Literal["free"]] = Field(
        {}, description="Prices of models, by name."
    )
    budget: BudgetSpec | None = Field(None, description="Maximum cost of the run.")
    limits: dict[str, LimitSpec] = Field(
        {},
        description="Limits on calls over all runs and workers: by provider, by model as `provider:model`, by tool or "
        "step, as `queue:NAME`, or `default` for all other models.",
    )
    tools: dict[str, ToolSpec] = Field(
        default_factory=dict, description="Tools by name, for prompts and `tool:` steps."
    )
    servers: dict[str, ServerSpec] = Field(
        default_factory=dict,
        description="MCP servers by name. Steps call their tools like other tools.",
    )
    timeout: Seconds | None = Field(None, description="Time limit for the run.")
    at_once: int = Field(1, ge=1, le=256, description="The maximum of steps that run concurrently.")
    steps: list[StepSpec] = Field(
        [], min_length=1, description="Steps, in order. `needs` changes the order."
    )
    eval: EvalSpec | None = Field(
        None,
        description="In place of steps: a task that runs on the cases of a data set, and is scored.",
    )
    output: str | None = Field(
        None, description="The step whose output is the workflow's; default: the last."
    )
    workspace: WorkspaceSpec | WorkspaceKind | None = Field(
        None,
        description="The folder in which all commands run: one for the run. A loop continues from the files of the step before.",
    )

    # For editors: no other model has two keys of which it needs one.
    model_config = ConfigDict(
        json_schema_extra={"anyOf": [{"required": ["steps"]}, {"required": ["eval"]}]}
    )

    @model_validator(mode="after")
    def _one_kind(self) -> Document:
        if not self.steps and self.eval is None:
            raise PydanticCustomError("document", "needs 'steps'")
        if self.steps and self.eval is not None:
            raise PydanticCustomError(
                "document",
                "has both steps and eval; put the steps into a document of their own, and name it as the task",
            )
        return self

    @model_validator(mode="after")
    def _one_input(self) -> Document:
        if self.inputs and self.input is not None:
            raise PydanticCustomError(
                "input", "has both input and inputs; give each input a default instead", {}
            )
        return self


# Built once, with all of its parts. Otherwise each part would be built again for each model that contains it.
Document.model_rebuild()
