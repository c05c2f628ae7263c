"""The translation of Archon's workflows to native documents.

1. A prompt is a task for a coding agent in a copy of the repository, as it is there, and a loop repeats one until its
   signal stands in the reply or its check passes.
2. A node whose `when:` does not hold is skipped, and so are the nodes that need it, unless their `trigger_rule` says otherwise.
3. Values reach commands as environment variables, because no shell may read what an agent wrote as words.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ...documents.detect import CalledDocument
from ...documents.project import Project
from ...documents.schema.document import Document
from ...documents.yaml.reader import Location, Source
from ...errors import DocumentError, Problem, nearest
from ...records.codec import Json
from ..translation import CHOOSE, Translation, literal, quoted, reference
from .fields import IGNORED, KINDS, REFUSED, ArchonLoop, ArchonNode, GroupSpec, WorkflowSpec

__all__ = ["remarks", "translate"]

AGENTS = ("claude", "codex", "gemini", "opencode", "qwen")
TIMEOUT = 120.0  # seconds of a command, as there
ARTIFACTS = ".archon/artifacts"
_NAME = re.compile(r"\$([A-Za-z_][\w-]*(?:\.[A-Za-z_][\w-]*)*)")
_COMPARED = re.compile(
    r"\s*\$([\w.-]+)\s*(==|!=|<=|>=|<|>)\s*(?:'([^']*)'|\"([^\"]*)\"|([\w.-]+))\s*(&&|\|\||$)"
)
_INLINE = re.compile(r"[\s({;=]")
_WRITES = {"Edit", "Write", "MultiEdit", "NotebookEdit", "Bash"}
_NONE = {
    "WORKFLOW_ID": "the run has its ID in the environment of commands, as LOOPWRIGHT_RUN",
    "BASE_BRANCH": "write the name of the branch",
    "REJECTION_REASON": "a rejection ends the run",
    "CONTEXT": "write it into the input", "ISSUE_CONTEXT": "write it into the input",
    "EXTERNAL_CONTEXT": "write it into the input",
}  # fmt: skip
_EITHER = {"one_success": " or ", "none_failed_min_one_success": " or ", "all_success": " and "}


@dataclass(frozen=True)
class TextScope:
    """The nodes that a text may name: by ID, the expression of its output.

    `around` are those outside of the loop whose body has the text; `looping` says that it has one.
    """

    known: Mapping[str, tuple[str, ...]]  # the path of the output: the step, and fields in it
    around: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    body: frozenset[str] = frozenset()
    looping: bool = False
    provider: str = ""
    model: str | None = None
    session: str = ""  # of agents; "" depends on the node


def translate(source: Source, project: Project) -> tuple[Source, Document]:
    """Return a workflow of Archon as a native document, and a source that takes native paths.

    Raises:
        DocumentError: with every problem of the document.
    """
    project.notes += source.notes
    return _Archon(source, project).run()


def remarks(_document: Document, _source: Source, _called: CalledDocument) -> Iterable[Problem]:
    """Return no notes, because the translation reports them all."""
    return ()


@dataclass
class _Archon(Translation):
    """The translation of one workflow."""

    inputs: Mapping[str, Json] = field(default_factory=dict)

    def run(self) -> tuple[Source, Document]:
        """Return the native document and its source."""
        spec = self.model(WorkflowSpec, self.source.value, ())
        if spec is None:
            raise DocumentError(self.problems)
        self.unknown(spec, (), IGNORED, REFUSED)
        self.inputs = spec.inputs
        scope = TextScope({}, provider=spec.provider, model=spec.model)
        steps = self.nodes(spec.nodes, ("nodes",), ("steps",), scope)
        kind = "copy" if spec.worktree.enabled else "here"
        native: dict[str, Json] = {"schema": "loopwright/1", "name": spec.name}
        if spec.description:
            native["description"] = spec.description
        native |= {"input": "", "workspace": {"kind": kind, "path": self.root}, "steps": steps}
        if spec.returns is not None:
            native["output"] = spec.returns
            self.places["output",] = ("returns",)
        return self.document(native)

    @property
    def folder(self) -> Path:
        """The folder of the document."""
        return Path(self.source.file).resolve().parent

    @property
    def root(self) -> str:
        """The repository, relative to the document: workflows are in `.archon/workflows`."""
        parts = self.folder.parts
        if ".archon" not in parts:
            return "."
        return os.path.relpath(Path(*parts[: parts.index(".archon")]), self.folder)

    # Nodes.

    def nodes(
        self, specs: Sequence[ArchonNode], at: Location, to: Location, scope: TextScope
    ) -> list[Json]:
        """Return nodes as native steps."""
        names = [spec.id for spec in specs]
        outputs = {spec.id: _output(spec) for spec in specs}
        scope = replace(scope, known=outputs, around={**scope.around, **scope.known})
        layers = _layers(specs)
        skipped: set[str] = set()
        steps: list[Json] = []
        for i, spec in enumerate(specs):
            place, target = (*at, i), (*to, i)
            self.unknown(spec, place, IGNORED, REFUSED)
            self.places[target] = place
            for j, need in enumerate(spec.depends_on):
                if need not in names:
                    self.report(
                        (*place, "depends_on", j),
                        f"there is no node {need!r}{nearest(need, names)}",
                    )
            alone = layers.count(layers[i]) == 1
            condition = self._condition(spec, place, scope, skipped)
            step: dict[str, Json] = {"name": spec.id}
            if spec.depends_on:
                step["needs"] = list(spec.depends_on)
                self.places[(*target, "needs")] = (*place, "depends_on")
            if condition:
                step["if"] = condition
                skipped.add(spec.id)
                self.places[(*target, "if")] = (*place, "when")
            action = getattr(
                self, f"_{next((k for k in KINDS if getattr(spec, k) is not None), 'none')}"
            )
            step |= action(spec, place, target, scope, alone=alone)
            steps.append(step)
        return steps

    def _condition(
        self, spec: ArchonNode, at: Location, scope: TextScope, skipped: set[str]
    ) -> str:
        """Return the condition of a node: that the nodes it needs were not skipped, and its own."""
        parts = []
        joined = _EITHER.get(spec.trigger_rule, "")
        ran = [f"{reference(name)} is not none" for name in spec.depends_on if name in skipped]
        # With `or`, one that is never skipped makes the condition true.
        if joined == " and " and ran:
            parts.append(joined.join(ran))
        elif joined == " or " and len(ran) == len(spec.depends_on) and ran:
            parts.append(f"({joined.join(ran)})" if len(ran) > 1 else ran[0])
        if spec.when is not None:
            parts.append(self._when(spec.when, (*at, "when"), scope))
        return " and ".join(parts)

    def _when(self, text: str, at: Location, scope: TextScope) -> str:
        """Return a condition as an expression: comparisons with a text or a number, joined by `&&` and `||`."""
        parts, offset, sign = list[str](), 0, "&&"
        while sign:
            match = _COMPARED.match(text, offset)
            if match is None:
                example = "$node.output == 'VALUE', joined by && and ||"
                self.report(at, f"{text!r:.80} is not a condition like {example}")
                return "false"
            name, how, *words, sign = match.groups()
            word = next(w for w in words if w is not None)
            parts.append(self._compared(self._named(name, at, scope) or quoted(""), how, word))
            parts.append({"&&": "and", "||": "or", "": ""}[sign])
            offset = match.end()
        joined = " ".join(parts).strip()
        return f"({joined})" if " or " in joined else joined

    @staticmethod
    def _compared(value: str, how: str, word: str) -> str:
        if how in ("==", "!="):
            # JSON's words for the truth values, and not those of Python.
            shown = f"{value} | string | trim"
            return (
                f"({shown}{' | lower' if word in ('true', 'false') else ''}) {how} {quoted(word)}"
            )
        number = float(word) if re.fullmatch(r"-?\d+(\.\d+)?", word) else None
        return f"({value} | float) {how} {number:g}" if number is not None else "false"

    # The kinds of nodes.

    def _prompt(
        self, spec: ArchonNode, at: Location, to: Location, scope: TextScope, *, alone: bool
    ) -> dict[str, Json]:
        text = self._text(spec.prompt or "", (*at, "prompt"), scope)
        self.places[(*to, "agent", "prompt")] = (*at, "prompt")
        return {
            "agent": self._agent(spec, at, to, scope, text, self._session(spec, at, scope, alone))
        }

    def _command(
        self, spec: ArchonNode, at: Location, to: Location, scope: TextScope, *, alone: bool
    ) -> dict[str, Json]:
        text = self._file(str(spec.command), (*at, "command"), scope)
        self.places[(*to, "agent", "prompt")] = (*at, "command")
        return {
            "agent": self._agent(spec, at, to, scope, text, self._session(spec, at, scope, alone))
        }

    def _agent(
        self,
        spec: ArchonNode,
        at: Location,
        to: Location,
        scope: TextScope,
        prompt: str,
        session: str,
    ) -> dict[str, Json]:
        provider, model = spec.provider or scope.provider, spec.model or scope.model
        place = (*at, "provider") if spec.provider else ("provider",)
        if provider not in AGENTS:
            self.report(
                place,
                f"there is no coding agent {provider!r} here{nearest(provider, AGENTS)}; convert the document and name "
                "a manifest in cli:",
            )
        agent: dict[str, Json] = {"cli": provider, "prompt": prompt}
        if model:
            agent["model"] = model
        if session != "fresh":
            agent["session"] = session
        if spec.allowed_tools is not None and not _WRITES & set(spec.allowed_tools):
            agent["permissions"] = "read"
            self.places[(*to, "agent", "permissions")] = (*at, "allowed_tools")
        if spec.idle_timeout is not None:
            agent["idle_timeout"] = spec.idle_timeout / 1000
        if spec.max_usd is not None:
            agent["max_usd"] = spec.max_usd
            self.places[(*to, "agent", "max_usd")] = (*at, "maxBudgetUsd")
        if spec.output_format is not None:
            agent["output"] = {"schema": spec.output_format}
            self.places[(*to, "agent", "output", "schema")] = (*at, "output_format")
        return agent

    def _session(self, spec: ArchonNode, at: Location, scope: TextScope, alone: bool) -> str:
        if isinstance(spec.context, dict):
            what = "a conversation cannot be forked; name the output of the node in the prompt, or write context: shared"
            self.report((*at, "context"), what)
        if scope.session:
            return scope.session
        # Nodes that run one after the other continue one conversation.
        return (
            "fresh" if spec.context == "fresh" or (spec.context is None and not alone) else "nodes"
        )

    def _bash(
        self, spec: ArchonNode, at: Location, to: Location, scope: TextScope, *, alone: bool
    ) -> dict[str, Json]:
        script, env = self._shell(str(spec.bash), (*at, "bash"), scope)
        self.places[(*to, "shell")] = (*at, "bash")
        return {
            "shell": ["bash", "-c", script],
            **self._run(spec, at),
            **({"env": env} if env else {}),
        }

    def _script(
        self, spec: ArchonNode, at: Location, to: Location, scope: TextScope, *, alone: bool
    ) -> dict[str, Json]:
        code, place = str(spec.script), (*at, "script")
        self.places[(*to, "shell")] = place
        if self._names_in(code, scope):
            self.report(
                place,
                "values cannot be put into code; read them in a bash node, which gets them as variables",
            )
        if spec.runtime is None:
            self.report(at, "needs runtime: bun or uv")
        words = (
            ["bun", "run"]
            if spec.runtime == "bun"
            else ["uv", "run", *(w for d in spec.deps for w in ("--with", d))]
        )
        if _INLINE.search(code):
            words = ["bun", "-e", code] if spec.runtime == "bun" else [*words, "python", "-c", code]
        else:
            file = self._find(
                "scripts", [f"{code}{end}" for end in (".ts", ".js", ".py")], code, place
            )
            words.append("" if file is None else os.path.relpath(file, self.folder / self.root))
        return {"shell": words, **self._run(spec, at)}

    def _run(self, spec: ArchonNode, at: Location) -> dict[str, Json]:
        if spec.on_timeout == "skip":
            self.report(
                (*at, "on_timeout"),
                "a command that takes too long fails; give it its own limit, such as `timeout 60 …`",
            )
        return {"timeout": TIMEOUT if spec.timeout is None else spec.timeout / 1000}

    def _cancel(
        self, spec: ArchonNode, at: Location, to: Location, scope: TextScope, *, alone: bool
    ) -> dict[str, Json]:
        self.places[(*to, "env")] = (*at, "cancel")
        reason = self._text(str(spec.cancel), (*at, "cancel"), scope)
        return {"shell": ["sh", "-c", 'echo "$REASON" >&2; exit 1'], "env": {"REASON": reason}}

    def _approval(
        self, spec: ArchonNode, at: Location, to: Location, scope: TextScope, *, alone: bool
    ) -> dict[str, Json]:
        assert spec.approval is not None
        self.unknown(spec.approval, (*at, "approval"), IGNORED, REFUSED)
        message = self._text(spec.approval.message, (*at, "approval", "message"), scope)
        options = [
            {"value": word, "label": word, "text": "comment"} for word in ("approve", "reject")
        ]
        self.places[(*to, "input")] = (*at, "approval")
        return {
            "python": CHOOSE,
            "input": {"question": message, "options": options, "ends": ["reject"]},
        }

    def _workflow(
        self, spec: ArchonNode, at: Location, to: Location, scope: TextScope, *, alone: bool
    ) -> dict[str, Json]:
        text = self._text("$ARGUMENTS" if spec.input is None else spec.input, (*at, "input"), scope)
        return {"workflow": spec.workflow, "input": text}

    def _none(self, *_: object, **__: object) -> dict[str, Json]:
        return {"set": ""}  # of a kind that is reported

    # Loops.

    def _loop(
        self, spec: ArchonNode, at: Location, to: Location, scope: TextScope, *, alone: bool
    ) -> dict[str, Json]:
        loop, place = spec.loop, (*at, "loop")
        assert loop is not None
        self.unknown(loop, place, IGNORED, REFUSED)
        inside = replace(scope, looping=True)
        if loop.command is not None:
            text = self._file(loop.command, (*place, "command"), inside)
        else:
            text = self._text(loop.prompt or "", (*place, "prompt"), inside)
        inner = (*to, "loop", "execute")
        self.places[(*inner, "agent", "prompt")] = (
            *place,
            "prompt" if loop.command is None else "command",
        )
        session = "fresh" if loop.fresh_context else "loop"
        signal = {"matches": _signal(loop.until)} if loop.until else None
        execute = {"agent": self._agent(spec, at, inner, inside, text, session)}
        return self._repeated(loop, place, to, inside, execute, signal)

    def _loop_group(
        self, spec: ArchonNode, at: Location, to: Location, scope: TextScope, *, alone: bool
    ) -> dict[str, Json]:
        group, place = spec.loop_group, (*at, "loop_group")
        assert group is not None
        self.unknown(group, place, IGNORED, REFUSED)
        body = frozenset(node.id for node in group.nodes)
        inside = replace(
            scope, looping=True, body=body, session="fresh" if group.fresh_context else "loop",
            provider=spec.provider or scope.provider, model=spec.model or scope.model,
        )  # fmt: skip
        steps = self.nodes(
            group.nodes, (*place, "nodes"), (*to, "loop", "execute", "steps"), inside
        )
        last = _last_of(group)
        signal = None
        if group.until:
            reply = {"type": "string", "pattern": _signal(group.until)}
            signal = {"schema": {"type": "object", "properties": {last: reply}, "required": [last]}}
        execute = {"steps": steps, "output": "all"}
        return self._repeated(group, place, to, inside, execute, signal)

    def _repeated(
        self, spec: ArchonLoop | GroupSpec, at: Location, to: Location, scope: TextScope,
        execute: dict[str, Json], signal: Json,
    ) -> dict[str, Json]:  # fmt: skip
        """Return a loop that ends with its signal or with its check, whichever comes first."""
        checks = [] if signal is None else [{"name": "signal", **signal}]
        if spec.until_bash is not None:
            script, env = self._shell(spec.until_bash, (*at, "until_bash"), scope)
            checks.append(
                {
                    "name": "until_bash",
                    "command": ["bash", "-c", script],
                    **({"env": env} if env else {}),
                }
            )
        both = len(checks) == 2
        self.places[(*to, "loop")] = at
        loop: dict[str, Json] = {
            "execute": execute,
            "evaluate": {"checklist": checks} if both else {"check": checks[0]},
            # One of two is enough.
            "until": [
                {"score_at_least": 0.5} if both else "passed",
                {"max_iterations": spec.max_iterations},
            ],
            "keep": "last",
        }
        if spec.interactive:
            loop["approve"] = "iteration"
        return {"loop": loop, "required": True}

    # Texts.

    def _names_in(self, text: str, scope: TextScope) -> list[str]:
        known = {*scope.known, *scope.around, *_VALUES, *_NONE}
        return [m[1] for m in _NAME.finditer(text) if m[1].partition(".")[0] in known]

    def _text(self, text: str, at: Location, scope: TextScope) -> str:
        """Return a text as a native template."""
        return self._replaced(text, at, scope, lambda value, _: f"{{{{ {value} }}}}", literal)

    def _shell(self, text: str, at: Location, scope: TextScope) -> tuple[str, dict[str, Json]]:
        """Return a constant script, and the values that it reads as variables."""
        env: dict[str, Json] = {}

        def variable(value: str, quoted_already: bool) -> str:
            name = next(
                (n for n, v in env.items() if v == f"{{{{ {value} }}}}"), f"VALUE_{len(env) + 1}"
            )
            env[name] = f"{{{{ {value} }}}}"
            return f"${{{name}}}" if quoted_already else f'"${{{name}}}"'

        return self._replaced(text, at, scope, variable, str), env

    def _replaced(
        self, text: str, at: Location, scope: TextScope, value: Callable[[str, bool], str], rest: Callable[[str], str]
    ) -> str:  # fmt: skip
        parts, done = list[str](), 0
        for match in _NAME.finditer(text):
            expression = self._named(match[1], at, scope)
            if expression is None:
                continue
            parts.append(rest(text[done : match.start()]))
            within = text[match.start() - 1 : match.start()] == '"'
            # A constant is a text of the document.
            constant = expression[1:-1] if expression.startswith('"') else None
            parts.append(rest(constant) if constant is not None else value(expression, within))
            done = match.end()
        return "".join([*parts, rest(text[done:])])

    def _named(self, name: str, at: Location, scope: TextScope) -> str | None:
        """Return the expression of a name; None for one that is not of Archon, such as a variable of the shell."""
        head, *rest = name.split(".")
        if head in _NONE:
            self.report(at, f"${head} has no counterpart: {_NONE[head]}")
            return quoted("")
        if head == "INPUTS" and rest:
            declared = self.inputs.get(rest[0])
            given = reference(rest[0]).replace("steps", "given", 1)
            default = declared.get("default") if isinstance(declared, Mapping) else None
            return given if default is None else f"({given} | default({quoted(str(default))}))"
        if head == "LOOP_PREV" and rest[1:2] == ["output"]:
            if rest[0] not in scope.body:
                self.report(
                    at,
                    f"$LOOP_PREV.{rest[0]}: there is no node of this loop {rest[0]!r}{nearest(rest[0], scope.body)}",
                )
                return quoted("")
            path = reference("output", rest[0], *rest[2:]).replace("steps", "loop", 1)
            return f'({path} | default(""))'
        if head in _VALUES:
            if head.startswith("LOOP_") and not scope.looping:
                self.report(at, f"${head} is known in a loop only")
            if head == "ARTIFACTS_DIR":
                self.project.notes.append(
                    self.source.problem(
                        at, f"$ARTIFACTS_DIR is {ARTIFACTS} of the copy", code="dialect_difference"
                    )
                )
            return _VALUES[head]
        path_of = {**scope.around, **scope.known}.get(head)
        if path_of is None or rest[:1] != ["output"]:
            return None
        return reference(*path_of, *rest[1:])

    def _file(self, name: str, at: Location, scope: TextScope) -> str:
        """Return the text of a command, which is a file."""
        file = self._find("commands", [f"{name}.md"], name, at)
        if file is None:
            return "-"
        try:
            text = self.project.content(file).decode("utf-8")
        except UnicodeDecodeError:
            self.report(at, f"{file.name} is not UTF-8")
            return "-"
        # The approval covers what the run uses.
        self.project.contents[file] = text.encode()
        if text.startswith("---\n"):
            text = text.partition("\n---\n")[2] or text
        return self._text(text.strip(), at, scope) or "-"

    def _find(self, kind: str, names: list[str], name: str, at: Location) -> Path | None:
        """Return a file that a node names, beside the workflow or in `.archon`."""
        if not re.fullmatch(r"[\w][\w.-]*", name) or ".." in name:
            self.report(at, f"{name!r:.60} is not the name of a file in {kind}")
            return None
        archon = self.folder / self.root / ".archon" / kind
        for folder in (self.folder / kind, archon, archon / "defaults"):
            for place in (folder / one for one in names):
                if place.is_file():
                    return place.resolve()
        self.report(
            at,
            f"there is no {' or '.join(names)} in {kind}/ beside the workflow, or in .archon/{kind}/",
        )
        return None


_VALUES = {
    "ARGUMENTS": "input", "USER_MESSAGE": "input", "LOOP_PREV_OUTPUT": "loop.output", "LOOP_USER_INPUT": "loop.feedback",
    "ARTIFACTS_DIR": quoted(ARTIFACTS), "DOCS_DIR": quoted("docs/"), "INPUTS": '""', "LOOP_PREV": '""',
}  # fmt: skip


def _output(spec: ArchonNode) -> tuple[str, ...]:
    """Return the path of a node's output."""
    if spec.loop_group is not None:
        return (spec.id, _last_of(spec.loop_group))
    return (spec.id, "text") if spec.approval is not None else (spec.id,)


def _last_of(group: GroupSpec) -> str:
    """Return the node whose output is that of the group: the last one that no other needs."""
    needed = {need for node in group.nodes for need in node.depends_on}
    free = [node.id for node in group.nodes if node.id not in needed]
    return (free or [group.nodes[-1].id])[-1]


def _layers(specs: Sequence[ArchonNode]) -> list[int]:
    """Return the layer of each node: nodes of one layer do not need each other. A cycle is reported by the compiler."""
    layers = dict.fromkeys((spec.id for spec in specs), 0)
    for _ in range(min(len(specs), 200)):
        before = dict(layers)
        for spec in specs:
            layers[spec.id] = max((layers.get(n, 0) + 1 for n in spec.depends_on), default=0)
        if layers == before:
            break
    return [layers[spec.id] for spec in specs]


def _signal(word: str) -> str:
    """Return the pattern of a signal: in its tag, on a line of its own, or at the end."""
    text = re.escape(word)
    return rf"(?i:<promise>\s*{text}\s*</promise>)|(?m:^[ \t]*{text}[ \t]*$)|\b{text}[\s.!?]*\Z"
