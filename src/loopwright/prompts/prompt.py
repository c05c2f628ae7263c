"""A prompt as a step: it renders a template, attaches files, calls a model, and returns the reply.

1. The prompt is rendered once; template syntax inside a value is never interpreted.
2. Each attempt is a separate effect, recorded in the journal, reserved in the budget and paid once.
3. A refused reply is an error. A truncated reply is an output only with `on_cutoff: accept`, with a
   warning.
4. Files are read once, stored beside the journal, and recorded by their digest.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any, Unpack, overload
from urllib.parse import urlsplit

from ..engine.context import Context
from ..engine.functions import in_thread
from ..engine.run_record import OnText, text_listener
from ..engine.step import CompositeStep, In, Leaf, Out, digest_of, fingerprinted, former_version
from ..errors import ConfigurationError, StepError
from ..journal.protocol import FileStore
from ..models import Message, Reply, own_words
from ..models.protocol import File, FileReference, ModelSettings
from ..records import Reason, Result, Status, codec
from ..records.codec import Json
from ..records.display import VALUE_CHARS, shortened
from ..records.typed import ValueType, value_type
from ..templates.variables import FIXED, TemplatedValue, fill, rendered
from .settings import Conversation, PromptSettings, continued, settings_of

__all__ = [
    "Files",
    "Prompt",
    "PromptFiles",
    "Reask",
    "Text",
    "file_of",
    "filled_in",
    "hinted",
    "prompt",
    "source_of",
    "unsupplied_names",
]

Files = Sequence[File | str] | Callable[[Json], Iterable[File | str]]


class PromptFiles:
    """The files that a prompt names: files, templates of paths and addresses, or a function of the input.

    Raises:
        ConfigurationError: For another object.
        TemplateError: For an invalid template.
    """

    def __init__(self, files: Files | Sequence[File | TemplatedValue], root: Path | None) -> None:
        self.root = root
        self.function = files if callable(files) else None
        self.items: tuple[File | TemplatedValue, ...] = ()
        if callable(files):
            return
        # A single text would otherwise be a list of its characters.
        if isinstance(files, str | bytes | File):
            raise ConfigurationError(f"files: {files!r:.60} is not a list. Use a list of files.")
        items: list[File | TemplatedValue] = []
        for item in files:
            if isinstance(item, str):
                items.append(fill(item))
            elif isinstance(item, File | TemplatedValue):
                items.append(item)
            else:
                raise ConfigurationError(
                    f"files: {item!r:.60} is not a file. Use a File, or a template of a path."
                )
        self.items = tuple(items)

    def __bool__(self) -> bool:
        return bool(self.items) or self.function is not None

    @property
    def fingerprint(self) -> str:
        """The files as text for the fingerprint of the prompt."""
        if self.function is not None:
            return f"function {getattr(self.function, '__qualname__', '')}"
        return codec.canonical(
            [i.described() if isinstance(i, File) else str(i.source) for i in self.items]
        )

    def files(self, value: Json, ctx: Context) -> list[File]:
        """Return the files for an input."""
        if self.function is not None:
            return [file_of(item) for item in self.function(value)]
        return [i if isinstance(i, File) else file_of(rendered(i, ctx, value)) for i in self.items]

    async def attach(
        self, value: Json, ctx: Context
    ) -> tuple[tuple[FileReference, ...], dict[str, bytes]]:
        """Return the files and their contents by digest. A resumed run uses the stored contents.

        Raises:
            StepError: For a file that cannot be read.
        """
        files = self.files(value, ctx)
        store: FileStore = ctx.run.resources["file_store"]
        reader = _ReadFiles(files, store, self.root or Path.cwd())
        # A recorded effect: the file may change between a crash and the resumed run.
        recorded = await ctx.call("files", reader, [file.described() for file in files])
        references = tuple(FileReference.from_json(one) for one in recorded)
        # Each content once: the same file may be attached twice.
        digests = dict.fromkeys(reference.digest for reference in references if reference.digest)
        return references, {digest: await in_thread(store.get, digest) for digest in digests}


class _ReadFiles(Leaf):
    """An effect that reads files, stores their contents and returns their references."""

    name = "files"
    # The files are chosen before, so the effect depends on its input only.
    wants_context = False
    fingerprint = "note.files/1"
    counts = False  # a note

    def __init__(self, files: Sequence[File], store: FileStore, root: Path) -> None:
        self.files = files
        self.store = store
        self.root = root

    async def act(self, value: Json, ctx: Context | None) -> Json:
        del value, ctx
        return [(await in_thread(self._read, file)).to_json() for file in self.files]

    def _read(self, file: File) -> FileReference:
        if file.url:
            return FileReference(file.media_type, url=file.url)
        content = file.read(self.root)
        digest, name = self.store.put(content), PurePath(file.path).name
        return FileReference(file.media_type, digest=digest, name=name, size=len(content))


def file_of(item: object) -> File:
    """Return the file of an item of a function or a rendered template."""
    if isinstance(item, File):
        return item
    if not isinstance(item, str) or not item.strip():
        raise ConfigurationError(f"files: {item!r:.60} is not a path or an address")
    # The provider reads the address; Loopwright does not.
    if urlsplit(item).scheme in ("http", "https"):
        return File(url=item)
    return File(item)


QUOTED = 4_000  # characters of an unusable reply that are repeated in the second request
Text = str | TemplatedValue | Callable[[Json, Context], str]


class Prompt(CompositeStep[In, Out]):
    """A prompt as a step. See `prompt`.

    Its output is the text of the reply, or its data if there is a schema.

    Args:
        text: A template, a compiled template, or a function of the input and the context.
        name: The name of the step. Default: "prompt".
        system: The system message, like `text`. Default: none.
        model_settings: The models and their settings.
        carried: Whether all iterations of a loop share one conversation. Default: False.
        conversation: The limits of a shared conversation. Default: none.
        read: Returns the output for a reply. Default: its data, otherwise its text.
        on_text: Receives the text of the reply as it arrives. Default: none.
        files: The files of the user message, see `prompt`. Default: none.
        files_root: The folder of relative paths, which files must not leave. Default: the working folder.

    Raises:
        TemplateError: For an invalid template, with its line and column.

    Example:
        >>> Prompt("Capital of {{ input }}?", model_settings=PromptSettings(("openai:gpt-4o",))).name
        'prompt'
    """

    asks_model = True
    noun = "prompt"
    limited = False  # whether `calling_at_most` made it
    reading: tuple[str, ...] = ()  # how a document reads the reply, as texts; empty for plain text

    def __init__(
        self,
        text: Text,
        *,
        name: str = "prompt",
        system: Text = "",
        model_settings: PromptSettings,
        carried: bool = False,
        conversation: Conversation | None = None,
        read: Callable[[Reply], Json] | None = None,
        on_text: OnText | None = None,
        files: Files | Sequence[File | TemplatedValue] = (),
        files_root: Path | None = None,
    ) -> None:
        self.name = name
        self.text = fill(text) if isinstance(text, str) else text
        self.system = fill(system) if isinstance(system, str) else system
        self.model_settings = model_settings
        self.unsupplied: dict[str, str] = model_settings.unsupplied(f"prompt {name!r}")
        self.conversation = conversation or (Conversation() if carried else None)
        self.read = read or _output
        self.input_type: ValueType | None = None
        self.output_type: ValueType | None = None
        self.files = PromptFiles(files, files_root) or None
        self.on_text = on_text if on_text is None else text_listener(on_text)

    def calling_at_most(self, number: int) -> Prompt:
        """Return the same prompt with another limit of tool calls per reply."""
        result = copy.copy(self)
        result.model_settings = replace(self.model_settings, max_tool_calls_per_reply=number)
        result.limited = True
        # The cached value is that of the former limit.
        result.__dict__.pop("fingerprint", None)
        return result

    @fingerprinted
    def fingerprint(self) -> str:
        """The identity of the prompt for replays. It is computed on first use, because a check needs none."""
        if self.limited and former_version() < 2:  # without its tools and its reading
            return Prompt.identity(self)
        identity = self.identity()
        return digest_of("answer", *self.reading, identity) if self.reading else identity

    def identity(self) -> str:
        """Return a digest of what is sent."""
        sources = (
            getattr(t, "source", getattr(t, "__qualname__", "")) for t in (self.text, self.system)
        )
        parts = [
            *(codec.canonical(s) for s in sources),
            codec.canonical(self.model_settings.to_json()),
        ]
        # Only with limits, so that conversations without limits keep their recorded fingerprints.
        if self.conversation is not None and self.conversation.bounded:
            parts.append(codec.canonical(self.conversation.to_json()))
        if self.files is not None:
            parts.append(f"files {self.files.fingerprint}")
        return digest_of("prompt", *parts)

    async def run(self, value: Json, ctx: Context) -> Result:
        """Render the template, call the model and read the reply."""
        question, contents = await self.question(value, ctx)
        system = filled_in(self.system, value, ctx)
        head = [Message("system", system)] if system else []
        if self.conversation is None:
            reply = await self.model_settings.ask(
                [*head, question], ctx, on_text=self.on_text, contents=contents
            )
        else:
            reply = await continued(
                self.model_settings,
                [*head, question],
                self.conversation,
                ctx,
                on_text=self.on_text,
                contents=contents,
            )
        output, declared = self.read(reply), self.output_type
        if declared is not None:
            # It fits the schema of the type, but not always its validators.
            if problem := declared.check(output):
                message = f"{self.name}: the reply is not a {declared.name}: {problem}"
                raise StepError(message, path=ctx.path, kind="bad_output")
            output = declared.attach(output)
        return Result(
            Status.SATISFIED, Reason.COMPLETED, f"{ctx.path} answered", output, name=self.name
        )

    async def question(self, value: Json, ctx: Context) -> tuple[Message, Mapping[str, bytes]]:
        """Return the user message, and the contents of its files by digest."""
        scope = ctx.scope
        carried = self.conversation is not None and scope is not None and scope.begun < scope.number
        text = hinted(filled_in(self.text, value, ctx), self.text, ctx, new=carried)
        if self.files is None:
            return Message("user", text), {}
        references, contents = await self.files.attach(value, ctx)
        return Message("user", text, files=references), contents

    async def ask_again(self, value: Json, reply: str, complaint: str, ctx: Context) -> Json:
        """Send the prompt again with the reply and its problem, and return the output."""
        system = filled_in(self.system, value, ctx)
        # Without its thinking and cut: a reply that cannot be read may be very long.
        quoted = own_words(reply)[:QUOTED]
        question, contents = await self.question(value, ctx)
        messages = [
            *([Message("system", system)] if system else []),
            question,
            *([Message("assistant", quoted)] if quoted.strip() else []),
            Message("user", complaint),
        ]
        reply_again = await self.model_settings.ask(
            messages, ctx, on_text=self.on_text, contents=contents
        )
        return self.read(reply_again)


class Reask(CompositeStep):
    """A prompt that is repeated in the same conversation after an unusable reply.

    Its input is the reply and its problem: `{"reply": ..., "complaint": ...}`.
    """

    def __init__(self, prompt: Prompt, name: str) -> None:
        self.prompt = prompt
        self.name = name

    @fingerprinted
    def fingerprint(self) -> str:
        return digest_of("again", self.prompt.fingerprint)

    async def run(self, value: Mapping[str, Json], ctx: Context) -> Result:
        """Ask again and return the output of the prompt."""
        initial = ctx.scope.initial if ctx.scope else None
        output = await self.prompt.ask_again(initial, value["reply"], value["complaint"], ctx)
        return Result(
            Status.SATISFIED, Reason.COMPLETED, f"{ctx.path} answered", output, name=self.name
        )


def _output(reply: Reply) -> Json:
    return reply.text if reply.data is None else reply.data


def filled_in(text: Text, value: Json, ctx: Context) -> str:
    """Return a text with its template rendered."""
    if isinstance(text, TemplatedValue):
        return codec.text_of(rendered(_bounded(text, ctx), ctx, value))
    return text if isinstance(text, str) else text(value, ctx)


def hinted(prompt: str, text: Text, ctx: Context, *, new: bool = False) -> str:
    """Return a prompt with the hints of people after it, for a step of `execute` whose template does not use the name.

    Args:
        prompt: the rendered template.
        text: the template.
        ctx: the place of the step.
        new: only those that the iteration before had not read, and that did not interrupt the step in it, for a
            conversation that has the others.
    """
    scope = None if ctx.scope is None else ctx.scope.iteration_scope
    if scope is None or not scope.hints or not isinstance(text, TemplatedValue):
        return prompt
    used = re.search(r"""loop\s*(\.|\[\s*['"])\s*hints""", source_of(text)) is not None
    if used or not f"{ctx.path}/".startswith(f"{scope.iteration_path}/execute/"):
        return prompt
    step = ctx.path.removeprefix(f"{scope.path}/{scope.number}")
    shown = (h for h in scope.hints if not new or (h["new"] and step not in h.get("told", ())))
    return with_hints(prompt, [hint["text"] for hint in shown if "step" not in hint])


def with_hints(prompt: str, texts: Sequence[str]) -> str:
    """Return a prompt with hints of people after it."""
    lines = "\n".join(f"<hint>\n{text}\n</hint>" for text in texts)
    return f"{prompt}\n\nHints of a person:\n{lines}" if texts else prompt


def _bounded(text: TemplatedValue, ctx: Context) -> TemplatedValue:
    """Return the template with values cut to the limit of a prompt. A cut value adds a warning."""
    limit = int(ctx.run.resources.get("max_value_chars") or VALUE_CHARS)

    def variables_of(ctx: Context, value: Json) -> Json:
        variables = text.variables_of(ctx, value)
        if not isinstance(variables, dict):  # another template language has a view instead
            return variables
        short = shortened(variables, limit)
        for name in variables:
            if short[name] is not variables[name] and name in text.names | FIXED:
                ctx.warn(
                    f"{name} has a text of more than {limit:,} characters; it was cut in the prompt",
                    code="text_shortened",
                )
        return short

    return replace(text, variables_of=variables_of)


def source_of(text: Text) -> str:
    """Return the source of a text."""
    return text if isinstance(text, str) else str(getattr(text, "source", text))


class PromptOptions(ModelSettings, total=False):
    """The options of `prompt`, which explains them."""

    model: str | Sequence[str]
    name: str
    system: str
    strict: bool
    carried: bool
    conversation: Conversation | None
    on_text: OnText | None
    files: Files
    files_root: str | Path | None


@overload
def prompt(
    text: str, *, schema: Mapping[str, Json], **options: Unpack[PromptOptions]
) -> Prompt[object, Any]: ...
@overload
def prompt(
    text: str, *, input: type[In], output: type[Out], **options: Unpack[PromptOptions]
) -> Prompt[In, Out]: ...
@overload
def prompt(
    text: str, *, output: type[Out], **options: Unpack[PromptOptions]
) -> Prompt[object, Out]: ...
@overload
def prompt(text: str, *, input: type[In], **options: Unpack[PromptOptions]) -> Prompt[In, str]: ...
@overload
def prompt(text: str, **options: Unpack[PromptOptions]) -> Prompt[object, str]: ...
def prompt(
    text: str,
    *,
    input: type | None = None,
    output: type | None = None,
    model: str | Sequence[str] = (),
    name: str = "prompt",
    system: str = "",
    schema: Mapping[str, Json] | None = None,
    strict: bool = False,
    carried: bool = False,
    conversation: Conversation | None = None,
    on_text: OnText | None = None,
    files: Files = (),
    files_root: str | Path | None = None,
    **settings: Unpack[ModelSettings],
) -> Prompt:
    """Make a step that sends a template to a model.

    Args:
        text: The template of the user message. It can use `value` (the input), `loop` and the outputs of
            earlier steps, see `templates.variables`. `run` reports undefined names before it starts.
        model: `provider:model`, or several to try in order. Default: the model of the run.
        name: The name of the step. Default: "prompt".
        system: The template of the system message. Default: none.
        input: The type of its input. Default: any.
        output: The type of its output, such as a dataclass, whose JSON the model must return. Default: text.
        schema: A JSON Schema, instead of `output`. The output is the JSON value of the reply.
        strict: Whether the reply must be one strict JSON value. Default: False.
        carried: Whether all iterations of a loop share one conversation. Default: False.
        conversation: The limits of a shared conversation. Default: none. See `Conversation`.
        on_text: Receives the text of the reply as it arrives, such as `print`; `f(text)` or
            `f(text, call)`. Default: none.
        files: `File` objects and templates of a path or an address, or a function of the input that returns
            these. Default: none.
        files_root: The folder of relative paths, which files must not leave. Default: the working folder.
        **settings: The settings of the model call. See `ModelSettings` for units and defaults.

    Returns:
        A step for a loop or a workflow.

    Raises:
        TemplateError: For an invalid template, with its line and column.
        ConfigurationError: For a template that is not text, a model without its provider, an unknown
            setting, or a value out of range.

    Example:
        >>> from loopwright import run_sync
        >>> from loopwright.models import Models, ScriptedModel
        >>> ask = prompt("Capital of {{ value }}?", model="openai:gpt-4o", temperature=0)
        >>> models = Models(ScriptedModel([{"prompt": "France", "replies": ["Paris"]}]))
        >>> run_sync(ask, "France", resources={"models": models}).output
        'Paris'
    """
    for field, template in dict[str, object](text=text, system=system).items():
        if not isinstance(template, str):
            raise ConfigurationError(
                f"prompt {name!r}: {field}: {template!r:.40} is not a template. Use a text."
            )
    declared = None if output is None else value_type(output, name)
    if declared is not None and not declared.is_text:
        if schema is not None:
            raise ConfigurationError(f"prompt {name!r}: set either output or schema, not both")
        schema = declared.schema
    step: Prompt[Any, Any] = Prompt(
        text,
        name=name,
        system=system,
        model_settings=settings_of(model, settings, schema=schema, strict=strict),
        carried=carried,
        conversation=conversation,
        on_text=on_text,
        files=files,
        files_root=None if files_root is None else Path(files_root),
    )
    items = step.files.items if step.files is not None else ()
    sources = [str(item.source) for item in items if isinstance(item, TemplatedValue)]
    missing: dict[str, str] = {}
    for source in (text, system, *sources):
        missing |= unsupplied_names(step.name, source)
    # A model without a provider is an alias, which only the run's models define.
    step.unsupplied = missing | step.model_settings.unsupplied(f"prompt {step.name!r}")
    step.output_type = declared
    step.input_type = None if input is None else value_type(input, name)
    return step


def unsupplied_names(name: str, text: str) -> dict[str, str]:
    """Return the names that a template needs in addition to the predefined ones, each with a message."""
    missing = {}
    for needed in sorted(fill(text).names - FIXED - {"loop"}):
        if "." not in needed:
            place = re.search(rf"{{[{{%][^}}]*?\b({re.escape(needed)})\b", text)
            before = text[: place.start(1)] if place else ""
            line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
            missing[needed] = (
                f"prompt {name!r}: template line {line}, column {column}: nothing supplies {needed!r}"
            )
    return missing
