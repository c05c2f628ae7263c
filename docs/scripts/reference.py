"""Generate the reference pages that the code determines: `python docs/scripts/reference.py`.

`make docs` runs it before it builds the site. The pages are not committed, so a change in the code cannot
leave an outdated page behind. `tests/docs/test_reference.py` checks that the pages name everything.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import yaml

from loopwright import errors
from loopwright.conditions.base import TAGS
from loopwright.documents import export_schema
from loopwright.documents.schema.document import ACTIONS
from loopwright.models import scripted as scripted_rules
from loopwright.records import Reason, Status
from loopwright.templates.filters import FILTERS, METHODS, PREDICATES
from loopwright.templates.template import TAGS as TEMPLATE_TAGS
from loopwright.templates.variables import OF_ITEMS, OF_LOOPS
from loopwright.ui.cli import COMMANDS, GROUPS
from loopwright.ui.cli.parser import documented, leaf

ROOT = Path(__file__).parents[2]
TARGET = ROOT / "docs" / "reference"
SOURCE = ROOT / "src" / "loopwright"

# The warnings of a run and the notes of `check` by code, each with its cause and its remedy.
CODES = yaml.safe_load(Path(__file__).with_name("warning_codes.yaml").read_text(encoding="utf-8"))

# Modules with public names, and the title of each page.
MODULES = {
    "loopwright": "The package",
    "loopwright.conditions": "Conditions",
    "loopwright.evaluators": "Evaluators",
    "loopwright.datasets": "Data sets",
    "loopwright.adapters": "Adapters",
    "loopwright.recipes": "Recipes",
    "loopwright.interop": "Other libraries",
    "loopwright.prompts": "Prompts",
    "loopwright.search": "Search",
    "loopwright.models": "Models",
    "loopwright.agents": "Agents",
    "loopwright.tools": "Tools",
    "loopwright.coding.agents": "Coding agents",
    "loopwright.journal": "Journals",
    "loopwright.journal.questions": "Questions to people",
    "loopwright.memory": "Memory",
    "loopwright.engine.loop_memory": "Loops with a memory",
    "loopwright.documents": "Documents",
    "loopwright.cluster": "Workers",
    "loopwright.telemetry": "Telemetry",
    "loopwright.progress": "Progress",
    "loopwright.testing": "Testing",
    "loopwright.testing.fixtures": "Fixtures for pytest",
    "loopwright.testing.deliverers": "Conformance of deliverers",
    "loopwright.errors": "Errors",
    "loopwright.types": "Types of signatures",
    "loopwright.insight": "Insight",
}

# Methods that only Loopwright calls, by class. The reference does not show them.
INTERNAL = {
    "CommandTool": ("stub_output",),
    "Condition": ("applies_to", "field_values", "flat", "limits", "parts"),
    "Context": ("below", "child", "outcome", "within"),
    "Conversation": ("kept",),
    "Evaluation": ("has_only_score", "sealed", "view"),
    "FunctionStep": ("act", "declared", "making_input_of", "types"),
    "Failure": ("from_json", "of", "to_error"),
    "History": (
        "at_time", "fall", "label", "latest_eligible", "recent_scores", "redact", "redact_with", "stalled", "can_satisfy",
        "view", "with_iteration",
    ),
    "Iteration": ("from_json", "lineage_json", "lineage_of", "view"),
    "Journal": ("listing", "view", "watch"),
    "Loop": ("decide", "ending", "iteration_types", "limit", "parts", "remarks", "run"),
    "Candidates": ("check_workspace", "fingerprint", "most", "step", "varied", "with_step"),
    "MemoryJournal": ("call_cache", "listing", "view", "watch"),
    "Models": ("enter",),
    "Optimise": ("begin", "fingerprint", "strategies_of"),
    "ObjectStep": ("declared", "types"),
    "Leaf": ("declared", "types"),
    "PhasedAgent": ("depth", "parts", "run", "tokens", "warnings"),
    "ReasoningAgent": ("parts", "run", "settings", "single"),
    "Redactor": ("filtered", "streamed"),
    "Result": ("loop_json", "view"),
    "Stop": ("from_json",),
    "Tool": ("stub_output",),
    "Usage": ("at_most", "from_json", "less", "most", "settled_at"),
    "Workflow": ("in_workspace", "inside", "parts", "run"),
    "Workspace": ("copies", "fingerprint_with", "state"),
}  # fmt: skip

# Parts of a document: the model of the JSON Schema, its heading and the page that explains it.
PARTS = {
    "Document": ("The document", "../guide/documents.md"),
    "InputSpec": ("Inputs", "../guide/documents.md#inputs"),
    "StepSpec": ("Steps", "../guide/documents.md"),
    "LoopSpec": ("Loops", "../concepts/loop.md"),
    "EvaluateSpec": ("Evaluators", "../guide/score.md"),
    "CheckSpec": ("Checks", "../guide/checklist.md"),
    "ScoreSpec": ("Scores", "../guide/score.md"),
    "WorkspaceSpec": ("Workspaces", "../guide/coding/workspaces.md"),
    "TestsSpec": ("Tests", "../guide/coding/until.md"),
    "JudgeSpec": ("Judges", "../guide/judge.md"),
    "CacheSpec": ("Caches of replies", "../guide/cache.md"),
    "ConversationSpec": ("Conversations of loops", "../guide/models.md"),
    "ConfidenceSpec": ("Confidence", "../guide/judge.md"),
    "OnStallSpec": ("Stalls", "../guide/stalls.md"),
    "RefineFromSpec": ("Parents", "../guide/stalls.md"),
    "EvalSpec": ("Evaluations", "../guide/data-sets.md"),
    "DatasetFile": ("Data sets", "../guide/data-sets.md"),
    "DatasetSpec": ("Data sets of loops", "../guide/data-sets.md"),
    "MinibatchSpec": ("Minibatches", "../guide/data-sets.md"),
    "ErrorsSpec": ("Errors of cases", "../guide/data-sets.md"),
    "GateSpec": ("Gates", "../guide/data-sets.md"),
    "CandidatesSpec": ("Candidates", "../guide/candidates.md"),
    "PairJudgeSpec": ("The judge of a duel", "../guide/candidates.md"),
    "PickSpec": ("A rule for the choice", "../guide/candidates.md"),
    "OptimiseSpec": ("Optimisers", "../guide/optimise.md"),
    "GepaSpec": ("Prompts that GEPA improves", "../guide/optimise.md#prompts"),
    "MetricSpec": ("Metrics", "../guide/metrics.md"),
    "EarlySpec": ("Measurements that end early", "../guide/metrics.md"),
    "ConfirmSpec": ("Confirmation", "../guide/metrics.md"),
    "DeclaredMetric": ("Metrics of a loop", "../guide/metrics.md"),
    "MetricScoreSpec": ("Scores of metrics", "../guide/metrics.md"),
    "ImpossibleSpec": ("Tasks that cannot be done", "../guide/judge.md"),
    "UndecidedSpec": ("Undecided evaluations", "../guide/judge.md"),
    "AdaptSpec": ("The next input", "../concepts/loop.md"),
    "EachSpec": ("Lists", "../guide/lists.md"),
    "ConsensusSpec": ("Consensus", "../guide/models.md"),
    "VoterSpec": ("Voters", "../guide/models.md"),
    "PhasedSpec": ("The phased agent", "../guide/agents.md"),
    "ReasoningSpec": ("The reasoning agent", "../guide/agents.md"),
    "BudgetSpec": ("Budgets", "../guide/budget.md"),
    "LimitSpec": ("Limits on calls", "../guide/two_machines.md"),
    "PriceSpec": ("Prices", "../guide/budget.md"),
    "CodingAgentSpec": ("Coding agents", "../guide/coding/agents.md"),
    "AgentWaitsSpec": ("Waits of coding agents", "../guide/coding/agents.md"),
    "SandboxSpec": ("Sandboxes", "../guide/coding/sandbox.md"),
    "ToolSpec": ("Tools", "../guide/tools.md"),
    "ServerSpec": ("MCP servers", "../guide/tools.md"),
    "WaitSpec": ("Waits", "../guide/waiting.md"),
    "WaitedSpec": ("What a wait waits for", "../guide/waiting.md"),
    "WaitedFileSpec": ("The file of a wait", "../guide/waiting.md"),
    "WaitedUrlSpec": ("The URL of a wait", "../guide/waiting.md"),
    "HintsSpec": ("Events that are hints", "../guide/steering.md"),
    "ProbeSpec": ("The pauses of a wait", "../guide/waiting.md"),
    "MemorySpec": ("Memory steps", "../guide/memory.md"),
    "LoopMemorySpec": ("The memory of a loop", "../guide/memory.md"),
    "NodeSpec": ("Loop nodes", "../more/from-loop-nodes.md"),
    "StrategySpec": ("Strategies of loop nodes", "../more/from-loop-nodes.md"),
    "LessonsSpec": ("Lessons of loop nodes", "../more/from-loop-nodes.md"),
    "PresetSpec": ("Presets of criteria", "../more/from-loop-nodes.md"),
}
WITHIN = {"Action", "Inline"}  # the same keys as a step
SETTINGS = (
    "model", "models", "model_url", "api_key_env", "temperature", "max_tokens", "call_timeout", "answer_timeout",
    "on_cutoff", "top_p", "seed", "stop", "reasoning_effort", "frequency_penalty", "presence_penalty",
    "extra_body", "extra_headers", "cache",
)  # fmt: skip

REASONS = {
    "condition_met": "A success condition was met.",
    "completed": "All steps ran.",
    "accepted": "A person accepted the output.",
    "improved": "An improvement loop ran out of improvements above its first score.",
    "already_satisfied": "The input met the condition before the first iteration.",
    "tampered": "A protected file changed during the run.",
    "cancelled": "A person, a signal or the program cancelled the run.",
    "deadline": "The date and time of a `Deadline` passed.",
    "timeout": "A time limit was reached.",
    "budget": "The next call did not fit into the budget.",
    "error": "A step, an evaluator or a condition failed.",
    "evaluator_unusable": "The evaluator could not judge any output, or was undecided twice in a row.",
    "repeated_failure": "Too many iterations in a row failed under `on_failure: continue`.",
    "all_failed": "Every iteration failed.",
    "items_failed": "Too few items of a list were satisfied, and an item failed.",
    "impossible": "The evaluator reported that the goal cannot be reached.",
    "items_exhausted": "Too few items of a list were satisfied, and none failed.",
    "repeated_output": "The output repeated itself.",
    "degrading": "The scores fell by more than noise explains.",
    "no_progress": "Neither the score nor the set of failing tests improved.",
    "no_change": "Several iterations in a row changed no file.",
    "no_improvement": "Several scores in a row did not beat the best score.",
    "success_rate_not_met": "Too few items of a `workflow/v2.0` list succeeded.",
    "phase_limit": "A phase of an agent used its iterations.",
    "max_iterations": "The limit of iterations was reached.",
    "ceiling": "The hard limit of 1000 iterations was reached.",
    "stopped": "A person or a condition of yours ended the loop without success.",
    "approval": "The run waits for a person's answer.",
    "needs_attention": "A step that may not be repeated was in progress at a crash. A person decides.",
    "throttled": "The provider asks for a longer wait than the run allows.",
    "quota": "The provider's quota or the account's credit is used up.",
    "waiting": "All of the run waits for a time, an event, a command, a file or a URL, and its process left it.",
    "held": "A person holds the run.",
}
STATUSES = {
    "satisfied": "A success condition was met, or every step completed.",
    "exhausted": "A limit ended the run first. The output is the best one so far.",
    "failed": "An error ended the run.",
    "impossible": "The goal cannot be reached.",
    "suspended": "The run waits for a person, a quota, a time or an event. Resume it later.",
    "cancelled": "The run was cancelled or interrupted. Resume it later if it was interrupted.",
}
KINDS = {
    "transient": ("yes", "The endpoint, or the connection to it, failed temporarily."),
    "throttled": ("yes", "Too many requests. The retry waits for `retry_after`."),
    "quota": ("no", "The quota or the credit is used up."),
    "permanent": ("no", "The request cannot succeed. `reason` names the cause."),
    "truncated": ("no", "The reply reached `max_tokens`. `on_cutoff` decides what follows."),
    "refused": ("no", "The model or a safety filter declined."),
    "malformed": (
        "no",
        "The reply does not fit the schema. The model is asked again, at most twice.",
    ),
    "unknown_outcome": (
        "yes",
        "The request was sent and the reply was incomplete. It may have been billed.",
    ),
    "cancelled": ("no", "A person or a signal cancelled the call."),
    "empty_output": ("no", "The reply was empty. The model is asked once more."),
}
EXITS = {
    2: "The command line or the document is wrong. Nothing ran.",
}


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a Markdown table."""
    lines = [list(header)]
    lines.append(["---"] * len(lines[0]))
    lines += [[_cell(text) for text in row] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _cell(text: str) -> str:
    """Return a text for a cell; in a code span a bar ends no cell, and a backslash would be shown."""
    parts = re.split(r"(`[^`]*`)", text.replace("\n", " "))
    return "".join(p if p.startswith("`") else p.replace("|", "\\|") for p in parts)


def page(title: str, intro: str, *parts: str) -> str:
    """Return a generated page."""
    return "\n".join([f"# {title}\n", f"{intro}\n", *parts])


# Python.


def public_names(module: str) -> list[str]:
    """Return the public names of a module, in the order of its `__all__`."""
    target = import_module(module)
    names = getattr(target, "__all__", None)
    if names is None:
        names = [
            n
            for n, v in vars(target).items()
            if getattr(v, "__module__", "") == module and n[0] != "_"
        ]
    return list(names)


def homes() -> dict[int, tuple[str, str]]:
    """Return the module and the name under which each public value is documented: once, on the page of its topic."""
    topics = [
        "loopwright.errors",
        *(module for module in MODULES if module != "loopwright"),
        "loopwright",
    ]
    places: dict[int, tuple[str, str]] = {}
    for module in topics:
        for name in public_names(module):
            places.setdefault(id(getattr(import_module(module), name)), (module, name))
    return places


def place_of(module: str, name: str) -> str:
    """Return where mkdocstrings finds a name: where it is defined, as a module can have the same path as a function."""
    value = getattr(import_module(module), name)
    defined = getattr(value, "__module__", "") or ""
    if defined.startswith("loopwright.") and getattr(value, "__qualname__", ""):
        return f"{defined}.{value.__qualname__}"
    return f"{module}.{name}"


def page_file(module: str) -> str:
    """Return the file of a module's page."""
    return f"{module.removeprefix('loopwright.').replace('.', '_')}.md"


def python_pages() -> Iterator[tuple[str, str]]:
    """Iterate over the pages of the Python reference: file name and text."""
    listed = []
    documented = homes()
    for module, title in MODULES.items():
        names = public_names(module)
        first = ", ".join(f"`{name}`" for name in names[:6]) + (", ..." if names[6:] else "")
        listed.append((f"[`{module}`]({page_file(module)})", title, first))
        body, elsewhere = [], []
        for name in names:
            value = getattr(import_module(module), name)
            home, original = documented[id(value)]
            if (home, original) != (module, name) and callable(value):
                link = f"[`{original}`][{place_of(home, original)}]"
                elsewhere.append((f"`{name}`", link, f"[`{home}`]({page_file(home)})"))
            elif callable(value):
                body.append(f"::: {place_of(module, name)}\n{_hiding(value)}")
            else:
                body.append(f"## `{name}` {{ #{module}.{name} }}\n\n{_constant(value)}\n")
        links = [table(("name", "documentation", "module"), elsewhere)] if elsewhere else []
        yield (
            f"python/{page_file(module)}",
            page(title, f"Import these names from `{module}`.", *links, *body),
        )
    intro = "Each page is generated from the docstrings of one module. A name in `__all__` of its module is public."
    yield (
        "python/index.md",
        page("Python reference", intro, table(("module", "contents", "names"), listed)),
    )


def _hiding(value: object) -> str:
    """Return the options of mkdocstrings that hide the internal methods of a class and of its base classes."""
    kinds = value.__mro__ if inspect.isclass(value) else ()
    names = [name for kind in kinds for name in INTERNAL.get(kind.__name__, ())]
    if not names:
        return ""
    return f'    options:\n      filters: ["!^_", "!^({"|".join(sorted(set(names)))})$"]\n'


def _constant(value: object) -> str:
    shown = (
        json.dumps(value, default=str)
        if isinstance(value, dict | list | tuple | str)
        else repr(value)
    )
    return f"A constant: `{shown if len(shown) < 200 else shown[:200] + ' ...'}`."


# Documents.


def yaml_page() -> str:
    """Return the reference of native documents, from the JSON Schema."""
    schema = export_schema()
    parts = []
    for name, (heading, guide) in PARTS.items():
        part: dict[str, Any] = schema if name == "Document" else schema["$defs"][name]
        has_settings = set(SETTINGS[:5]) <= part["properties"].keys()
        parts.append(f"## {heading}\n\nSee [the guide]({guide}).\n")
        for subheading, keys in _groups(name, part["properties"], schema):
            rows = [
                (
                    f"`{key}`",
                    _type(part["properties"][key]),
                    default,
                    part["properties"][key]["description"],
                )
                for key in sorted(keys, key=lambda key: key not in part.get("required", ()))
                if not (has_settings and key in SETTINGS)
                for default in [
                    _default(key, part["properties"][key], set(part.get("required", ())))
                ]
            ]
            parts.append(f"### {subheading}\n" if subheading else "")
            parts.append(table(("key", "value", "default", "meaning"), rows))
        if has_settings:
            parts.append(
                "The [settings of models](#settings-of-models) are keys of this part too.\n"
            )
    settings = [
        (f"`{key}`", _type(field), _default(key, field, set()), field["description"])
        for key in SETTINGS
        if (field := schema["properties"].get(key))
    ]
    parts.insert(
        parts.index(f"## {PARTS['StepSpec'][0]}\n\nSee [the guide]({PARTS['StepSpec'][1]}).\n"),
        "## Settings of models\n\nThe settings of a document apply to all of its prompts and judges. A prompt or judge "
        f"can override them.\n\n{table(('key', 'value', 'default', 'meaning'), settings)}",
    )
    parts += [_conditions(), _templates(), _replies()]
    intro = (
        "This page is generated from the JSON Schema of native documents, which `loopwright schema` prints. A key that "
        "is not on this page is refused with its line and the nearest valid key. Durations are seconds, or text such as "
        "`500ms`, `30s`, `5m`, `1h30m`. A list of names may be a single name."
    )
    return page("YAML reference", intro, *parts)


def _groups(
    name: str, properties: Mapping[str, Any], schema: Mapping[str, Any]
) -> Iterator[tuple[str, list[str]]]:
    """Iterate over the tables of a part; the keys of a step are three tables."""
    if name != "StepSpec":
        yield "", list(properties)
        return
    action = schema["$defs"]["Action"]["properties"]
    yield "", [key for key in properties if key not in action]
    yield "Actions", [key for key in properties if key in ACTIONS]
    yield "Options of actions", [key for key in properties if key in action and key not in ACTIONS]


def _type(field: Mapping[str, Any]) -> str:
    kinds = list(dict.fromkeys(_kinds(field)))
    return ", ".join(kinds) or "any value"


def _kinds(field: Mapping[str, Any]) -> Iterator[str]:
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        heading = PARTS.get(name, ("step", ""))[0] if name not in WITHIN else "step"
        anchor = "steps" if name in WITHIN else heading.lower().replace(" ", "-")
        yield f"[{heading.lower()}](#{anchor})"
    elif "enum" in field:
        yield from (f"`{json.dumps(v) if isinstance(v, bool) else v}`" for v in field["enum"])
    elif "const" in field:
        yield f"`{field['const']}`"
    elif "anyOf" in field:
        duration = any("pattern" in one for one in field["anyOf"])
        for one in field["anyOf"]:
            if one.get("type") == "null" or (duration and one.get("type") == "number"):
                continue
            yield from ["duration"] if "pattern" in one and duration else _kinds(one)
    else:
        kind = field.get("type", "")
        if kind == "array":
            inner = " or ".join(dict.fromkeys(_kinds(field.get("items", {})))) or "any value"
            yield f"list of {inner}"
        elif kind in ("integer", "number"):
            yield f"{kind}{_range(field)}"
        elif kind == "boolean":
            yield "true, false"
        elif kind == "object" and isinstance(field.get("additionalProperties"), dict):
            inner = " or ".join(dict.fromkeys(_kinds(field["additionalProperties"])))
            yield f"names to {inner or 'any value'}"
        elif kind:
            yield {"string": "text", "object": "object"}[kind]


def _range(field: Mapping[str, Any]) -> str:
    low = field.get("minimum", field.get("exclusiveMinimum"))
    high = field.get("maximum", field.get("exclusiveMaximum"))
    above = "above " if "exclusiveMinimum" in field else "at least "
    if low is not None and high is not None:
        return f" from {low:g} to {high:g}"
    return f", {above}{low:g}" if low is not None else ""


def _default(key: str, field: Mapping[str, Any], required: set[str]) -> str:
    if key in required:
        return "required"
    value = field.get("default")
    if value in (None, "", [], {}) and value is not False:
        return ""
    return f"`{value}`" if isinstance(value, str) else f"`{json.dumps(value)}`"


def _conditions() -> str:
    rows = []
    for tag, kind in TAGS.items():
        fields = []
        for one in dataclasses.fields(kind):
            default = one.default
            has_default = default is not dataclasses.MISSING and default not in (None, ())
            fields.append(f"`{one.name}`" + (f" ({json.dumps(default)})" if has_default else ""))
        summary = (inspect.getdoc(kind) or "").partition("\n\n")[0]
        rows.append((f"`{tag}`", ", ".join(fields), " ".join(summary.split())))
    return (
        "## Conditions\n\nSee [the concept](../concepts/conditions.md). A condition is its name, `{name: value}` for its "
        "first field, or `{name: {field: value}}`. The default of a field is in parentheses. "
        '`{python: "package.module:Class", field: value}` is a condition of your own.\n\n'
        + table(("condition", "fields", "meaning"), rows)
    )


def _templates() -> str:
    def names(values: Iterable[str]) -> str:
        return ", ".join(f"`{name}`" for name in sorted(values) if name.isalpha())

    rows = [
        ("tags", names(TEMPLATE_TAGS)),
        ("filters", names(FILTERS)),
        ("methods", names(METHODS)),
        ("tests", names(PREDICATES)),
        ("fields of `loop`", names(OF_LOOPS)),
        ("fields of `loop` in a list", names(OF_ITEMS)),
    ]
    return "## Templates\n\nSee [the guide](../guide/documents.md#templates).\n\n" + table(
        ("kind", "names"), rows
    )


def _replies() -> str:
    rows = [
        ("keys of a rule", scripted_rules.Rule.model_fields),
        (
            "keys of a reply",
            [
                field.alias or name
                for name, field in scripted_rules.ScriptedReply.model_fields.items()
            ],
        ),
        ("values of `error`", scripted_rules.ERRORS),
        ("values of `finish`", scripted_rules.FINISHES),
    ]
    return "## Replies\n\nSee [the guide](../guide/models.md#scripted-replies).\n\n" + table(
        ("kind", "names"), [(kind, ", ".join(f"`{n}`" for n in words)) for kind, words in rows]
    )


# The command line.


def cli_page() -> str:
    """Return the reference of the command line, from the commands themselves."""
    parts = [
        table(
            ("group", "command", "summary"),
            [
                (title, f"[`{c.name}`](#{c.name.replace(' ', '-')})", c.summary)
                for title, commands in GROUPS.items()
                for c in commands
            ],
        )
    ]
    for command in COMMANDS:
        made: Any = leaf(command)
        arguments, options = [], []
        for one in made.params:
            meaning = getattr(one, "help", None) or ""
            name = "/".join(f"`{opt}`" for opt in (*one.opts, *one.secondary_opts))
            if one.param_type_name == "argument":
                arguments.append((f"`{one.name.upper()}`", meaning))
            elif one.name != "help":
                options.append((name, _value(one), _option_default(one), meaning))
        text, examples = documented(command.load())
        parts.append(f"## {command.name}\n\n{text}\n")
        if arguments:
            parts.append(table(("argument", "meaning"), arguments))
        if options:
            parts.append(table(("option", "value", "default", "meaning"), options))
        parts.append("```console\n" + "".join(f"$ {line}\n" for line in examples) + "```\n")
    intro = (
        "This page is generated from the commands. `loopwright COMMAND --help` prints the same text. "
        "`LOOPWRIGHT_JOURNAL` sets the default journal, `LOOPWRIGHT_MODEL` the default model, and "
        "`LOOPWRIGHT_DEBUG=1` prints tracebacks of internal errors. "
        "[Exit codes](outcomes.md#exit-codes) have a table of their own."
    )
    return page("Command line reference", intro, *parts)


def _value(one: Any) -> str:
    if one.is_flag:
        return ""
    kind = one.type_descriptor.annotation
    choices = [v.value for v in kind] if isinstance(kind, enum.EnumMeta) else get_args(kind)
    if choices and all(isinstance(choice, str) for choice in choices):
        return ", ".join(f"`{choice}`" for choice in choices)
    return f"`{one.metavar or getattr(kind, '__name__', 'text').upper()}`"


def _option_default(one: Any) -> str:
    shown = (
        ""
        if not one.default or callable(one.default)
        else f"`{getattr(one.default, 'value', one.default)}`"
    )
    return ", ".join(filter(None, [shown, f"`${one.envvar}`" if one.envvar else ""]))


# Outcomes, errors and warnings.


def outcomes_page() -> str:
    """Return the reference of statuses, exit codes and reasons."""
    statuses = [(f"`{s.value}`", str(s.exit_code), STATUSES[s.value]) for s in Status]
    exits = sorted({**{s.exit_code: STATUSES[s.value] for s in Status}, **EXITS}.items())
    reasons = [(f"`{r.value}`", f"`{r.status.value}`", REASONS[r.value]) for r in Reason]
    return page(
        "Statuses, exit codes and reasons",
        "A run ends with one status, one reason and one sentence. This page is generated from the code.",
        "## Statuses\n\n" + table(("status", "exit code", "meaning"), statuses),
        "## Exit codes\n\n`loopwright run` and `loopwright resume` exit with the code of the run's status. "
        "`loopwright check` exits with 1 if the document is correct and something that it needs is missing on this "
        "machine.\n\n"
        + table(("code", "meaning"), [(str(code), meaning) for code, meaning in exits]),
        "## Reasons\n\nThe order is the order of preference: if several reasons hold at the same time, the first one is "
        "reported and the others are in `Result.also`.\n\n"
        + table(("reason", "status", "meaning"), reasons),
    )


def error_classes() -> list[type[BaseException]]:
    """Return the public error classes, in the order of the module."""
    values = [getattr(errors, name) for name in errors.__all__]
    classes = [
        value for value in values if isinstance(value, type) and issubclass(value, BaseException)
    ]
    return sorted(classes, key=lambda kind: inspect.getsourcelines(kind)[1])


def errors_page() -> str:
    """Return the reference of error classes and of the kinds of failed model calls."""
    rows = []
    for kind in error_classes():
        base = kind.__mro__[1].__name__
        summary = (inspect.getdoc(kind) or "").partition("\n\n")[0]
        rows.append((f"`{kind.__name__}`", f"`{base}`", " ".join(summary.split())))
    kinds = [(f"`{kind}`", *KINDS[kind]) for kind in errors.MODEL_ERROR_KINDS]
    return page(
        "Errors",
        "Every exception that Loopwright raises on purpose derives from `LoopwrightError`. `StepError.kind` is a word "
        "that a program can test. This page is generated from the code. "
        "[Troubleshooting](../more/troubleshooting.md) lists messages.",
        "## Classes\n\n" + table(("class", "base", "meaning"), rows),
        "## Kinds of failed model calls\n\n`ModelError.kind` decides whether the call is retried.\n\n"
        + table(("kind", "retried", "meaning"), kinds),
    )


def warnings_page() -> str:
    """Return the reference of the codes of warnings and notes."""

    def rows(codes: Mapping[str, Mapping[str, str]]) -> str:
        cells = [
            (f"`{code}`", codes[code]["cause"], codes[code]["remedy"]) for code in sorted(codes)
        ]
        return table(("code", "cause", "remedy"), cells)

    return page(
        "Warnings",
        "A warning does not end a run. It begins with a code that a program can test. This page is generated, and a test "
        "compares it with the code.",
        "## Warnings of a run\n\nThey are in `Result.warnings`, on the command line and on the page, as `code: path: sentence`. "
        "A warning that is certain at construction is also raised as `LoopwrightWarning`, whose `code` is this word. "
        "`check` reports the warnings that are certain in a document as notes.\n\n"
        + rows(CODES["warnings"]),
        "## Notes of check\n\n`loopwright check` prints `note: place: code: sentence`. "
        "With `--json`, each note has the member `code`.\n\n" + rows(CODES["notes"]),
    )


def decisions_page() -> str:
    """Return the list of decisions, from their headings."""
    rows = []
    for file in sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md")):
        number, _, title = file.read_text("utf-8").partition("\n")[0].lstrip("# ").partition(". ")
        rows.append((number, f"[{title}](../decisions/{file.name})"))
    return page(
        "Decisions",
        "Each decision about the design has a page: the decision, the reason, and the alternative that it closed.",
        table(("number", "decision"), rows),
    )


def pages() -> dict[str, str]:
    """Return every generated page by its path below `docs/reference`."""
    return {
        **dict(python_pages()),
        "yaml.md": yaml_page(),
        "cli.md": cli_page(),
        "outcomes.md": outcomes_page(),
        "errors.md": errors_page(),
        "warnings.md": warnings_page(),
        "decisions.md": decisions_page(),
    }


def main() -> None:
    """Write every page whose text changed."""
    for name, text in pages().items():
        target = TARGET / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists() or target.read_text("utf-8") != text:
            target.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
