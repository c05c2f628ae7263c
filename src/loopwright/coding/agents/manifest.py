"""Manifests: how to start one coding agent, and how to read its events.

A manifest is data: words and names, checked when it is loaded. Only whole words are filled, and no shell
reads them, so a prompt cannot become an option or a command. Six manifests are built in; any other
program has a file of its own, which may begin with `extends: NAME` and replace some of its keys.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from ...errors import ConfigurationError, nearest

__all__ = [
    "BUILT_IN",
    "FAILURES",
    "Ending",
    "Manifest",
    "Patterns",
    "PromptWords",
    "Words",
    "load_manifest",
    "manifest_names",
]

BUILT_IN = ("claude", "codex", "gemini", "qwen", "opencode", "aider")
# A manifest without a program, which only others extend.
ACP = "acp"
# The kinds of a failure of an agent, as for model calls.
FAILURES = (
    "permanent", "throttled", "quota", "transient", "refused", "unknown_outcome", "empty_output",
)  # fmt: skip
ARGUMENT_BYTES = 96 * 1024  # of a prompt as one argument; Linux allows 128 KiB
_FOLDER = Path(__file__).with_name("manifests")
_MAX_BYTES = 256 * 1024  # of a manifest
_PLACES = ("prompt", "session", "permissions", "options")
_FILLED = ("prompt", "prompt_file", "session", "model", "max_turns", "max_usd", "schema_file")
_OPTIONAL = ("model", "max_turns", "max_usd", "schema_file")
_WORD = re.compile(r"\{([a-z_]+)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_POINTER = re.compile(r"(/[^/]*)+")
_FIELDS = ("session", "text", "error", "input_tokens", "output_tokens", "usd", "turns", "tool")


def _words(value: object) -> object:
    return value.split() if isinstance(value, str) else value


def _names_of_variables(names: list[str]) -> list[str]:
    for name in names:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not the name of an environment variable")
    return names


def _patterns(texts: list[str]) -> list[str]:
    for text in texts:
        try:
            re.compile(text)
        except re.error as error:
            raise ValueError(f"{text!r} is not a regular expression: {error}") from None
    return texts


def _inside_home(paths: dict[str, str]) -> dict[str, str]:
    for path in paths:
        if Path(path).is_absolute() or ".." in Path(path).parts:
            raise ValueError(f"{path!r} is not a path inside the home folder")
    return paths


Words = list[str]
Patterns = Annotated[list[str], AfterValidator(_patterns)]
Ending = Literal[
    "max_turns", "max_usd", "permanent", "throttled", "quota", "transient", "refused", "unknown_outcome"
]  # fmt: skip


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class PromptWords(_Part):
    """The words that pass the prompt to a program.

    Args:
        argument: the words for a prompt of up to 96 KiB. Default: the prompt itself.
        stdin: the words where the program reads a longer prompt from standard input.
        file: the words where the program reads a longer prompt from a file.

    Example:
        >>> PromptWords(argument=["-p", "{prompt}"]).argument
        ['-p', '{prompt}']
    """

    argument: Words = ["{prompt}"]
    stdin: Words | None = None
    file: Words | None = None


class Manifest(_Part):
    """The description of one coding agent.

    Args:
        program: the program, or a program with its first words.
        name: its name in steps. Default: that of its file.
        title: its name for people.
        install: the command that installs it, for messages.
        version: the words that print its version.
        tested: the beginnings of versions that were tested; another version gives a warning.
        command: the words of a call. `{prompt}`, `{session}`, `{permissions}` and `{options}` stand for
            the groups of words below; groups without a place follow at the end.
        prompt: the words that pass the prompt.
        session: the words that choose the ID of a new session; without them the program chooses it.
        resume: the words that continue a session.
        optional: the words for `model`, `max_turns`, `max_usd` and `schema_file`, where the program has them.
        permissions: the words for `read`, `edit` and `full`.
        sandboxed: the words in place of `permissions` inside a sandbox of ours, for a program whose own sandbox
            does not work inside of another one.
        own_sandbox: whether the program has a sandbox, which the words of `permissions` begin.
        env: constant environment variables.
        home: files of an empty home folder, by path, for `home: run`.
        home_env: variables that name a folder inside the home folder, for `home: run`.
        keys: the names of variables with its API keys, passed on where they are set.
        state: files and folders of the home folder in which it keeps its state; a sandbox lets it change them.
        interrupt: the signal that asks it to end.
        events: the format of its output. For `acp`, the Agent Client Protocol, the words are those of our client
            (`acp_client.py`), which starts the program.
        fields: for `events: fields`, a JSON pointer (RFC 6901) for each fact, read from JSON lines.
        per: whether its usage counts one call, or everything since the session began.
        usd: whether it reports US dollars.
        end: whether its output has a last event, without which the outcome is unknown.
        exit: what exit codes mean when no event says it.
        failure_text: regular expressions of a last message that is an error.
        missing_session: regular expressions of an error that says that the session does not exist.
        leaves: patterns of empty files that it leaves in the working folder, which are no work of it.
        ignore: patterns of files that it leaves in the working folder.

    Example:
        >>> load_manifest("codex").per
        'thread'
    """

    program: Annotated[Words, BeforeValidator(_words)] = Field(min_length=1)
    name: str = ""
    title: str = ""
    install: str = ""
    version: Words = ["--version"]
    tested: list[str] = []
    command: Words = ["{prompt}"]
    prompt: PromptWords = PromptWords()
    session: Words = []
    resume: Words = []
    optional: dict[str, Words] = {}
    permissions: dict[Literal["read", "edit", "full"], Words] = {}
    sandboxed: dict[Literal["read", "edit", "full"], Words] = {}
    own_sandbox: bool = False
    env: dict[str, str] = {}
    home: Annotated[dict[str, str], AfterValidator(_inside_home)] = {}
    home_env: dict[str, str] = {}
    keys: Annotated[list[str], AfterValidator(_names_of_variables)] = []
    state: list[str] = []
    interrupt: Literal["INT", "TERM"] = "INT"
    events: Literal[
        "claude", "codex", "gemini", "qwen", "opencode", "aider", "acp", "text", "fields"
    ] = "text"
    fields: dict[str, str] = {}
    per: Literal["call", "thread"] = "call"
    usd: bool = False
    end: Literal["required", "none"] = "none"
    exit: dict[int, Ending] = {}
    failure_text: Patterns = []
    missing_session: Patterns = []
    leaves: list[str] = []
    ignore: list[str] = []

    @model_validator(mode="after")
    def _checked(self) -> Manifest:
        _check_words("command", self.command, _PLACES)
        groups: dict[str, Words | None] = {
            "prompt.argument": self.prompt.argument, "prompt.stdin": self.prompt.stdin,
            "prompt.file": self.prompt.file, "session": self.session, "resume": self.resume,
            **{f"optional.{k}": v for k, v in self.optional.items()},
        }  # fmt: skip
        for name, words in groups.items():
            _check_words(name, words or [], _FILLED)
        for name in self.optional:
            if name not in _OPTIONAL:
                raise ValueError(f"optional: unknown option {name!r}{nearest(name, _OPTIONAL)}")
        for name, pointer in self.fields.items():
            if name not in _FIELDS:
                raise ValueError(f"fields: unknown field {name!r}{nearest(name, _FIELDS)}")
            if not _POINTER.fullmatch(pointer):
                raise ValueError(
                    f"fields: {name}: {pointer!r} is not a JSON pointer such as /usage/input"
                )
        if (self.events == "fields") != bool(self.fields):
            raise ValueError("fields and events: fields belong together")
        if "{prompt}" not in self.prompt.argument:
            raise ValueError("prompt.argument has no {prompt}")
        return self

    @property
    def resumable(self) -> bool:
        """Whether it can continue a session."""
        return bool(self.resume)

    @property
    def names_sessions(self) -> bool:
        """Whether its sessions have IDs; Aider has one conversation in each folder."""
        return any("{session}" in word for word in self.resume)

    def words(
        self,
        values: Mapping[str, str],
        session: Words,
        permissions: str,
        args: Sequence[str] = (),
        *,
        sandboxed: bool = False,
    ) -> list[str]:
        """Return the words of a call after the program.

        Args:
            values: the values of the placeholders. `prompt_file` and a missing `prompt` choose how the
                prompt is passed.
            session: the words for the session: `session`, `resume` or none.
            permissions: `read`, `edit` or `full`.
            args: constant words, which follow the options: some programs read no option after the prompt.
            sandboxed: whether the program runs in a sandbox of ours.
        """
        prompt: Words | None = self.prompt.argument
        if "prompt" not in values:
            prompt = self.prompt.file if "prompt_file" in values else self.prompt.stdin
        options = [w for name, words in self.optional.items() if name in values for w in words]
        allowed = cast("Mapping[str, Words]", self.permissions).get(permissions, [])
        if sandboxed:
            allowed = cast("Mapping[str, Words]", self.sandboxed).get(permissions, allowed)
        groups = {
            "session": _filled(session, values),
            "permissions": allowed,
            "options": [*_filled(options, values), *args],
            "prompt": _filled(prompt or [], values),
        }
        rest = [
            w for name, words in groups.items() if f"{{{name}}}" not in self.command for w in words
        ]
        result: list[str] = []
        for word in self.command:
            match = _WORD.fullmatch(word)
            result += [word] if match is None else groups[match[1]]
        return [*result, *rest]


def _filled(words: Words, values: Mapping[str, str]) -> Words:
    """Return words with their placeholders filled, in one pass: a value is not read again."""
    matches = [_WORD.fullmatch(word) for word in words]
    return [
        word if match is None else values.get(match[1], word)
        for word, match in zip(words, matches, strict=True)
    ]


def _check_words(place: str, words: Words, names: tuple[str, ...]) -> None:
    for word in words:
        match = _WORD.fullmatch(word)
        if match is not None and match[1] not in names:
            listed = ", ".join(f"{{{name}}}" for name in names)
            raise ValueError(f"{place}: unknown placeholder {word}; the placeholders are {listed}")
        if match is None and any(f"{{{name}}}" in word for name in names):
            raise ValueError(f"{place}: {word!r}: a placeholder must be a word by itself")


def manifest_names() -> tuple[str, ...]:
    """Return the names of the built-in manifests.

    Returns:
        The names, as `agent` and `cli:` take them.

    Example:
        >>> "codex" in manifest_names()
        True
    """
    return BUILT_IN


def load_manifest(
    name: str, folder: str | Path | None = None, *, content: bytes | None = None
) -> Manifest:
    """Return a built-in manifest by its name, or the manifest in a YAML file.

    Args:
        name: `claude`, `codex`, `gemini`, `qwen`, `opencode`, `aider`, or a path that contains `/` or
            ends with `.yaml`.
        folder: the folder of relative paths. Default: the working folder.
        content: the content of the file, which is not read then.

    Returns:
        The checked manifest.

    Raises:
        ConfigurationError: for an unknown name, or an invalid file, with the place in it.

    Example:
        >>> load_manifest("claude").program
        ['claude']
    """
    if name in BUILT_IN:
        return _built_in(name)
    if name == ACP:
        raise ConfigurationError(
            "agent: acp names no program; write a manifest with `extends: acp` and `program: [words that start the agent]`, "
            "and name its path"
        )
    if "/" not in name and not name.endswith((".yaml", ".yml")):
        hint = nearest(name, BUILT_IN) or f"; use {', '.join(BUILT_IN)}, or the path of a manifest"
        raise ConfigurationError(f"agent: there is no coding agent {name!r}{hint}")
    path = Path(folder or ".") / name
    data = _read(path, content)
    base = data.pop("extends", None)
    if base is not None:
        # Not another file: the approval of a document covers the one file that the document names.
        bases = (*BUILT_IN, ACP)
        if not isinstance(base, str) or base not in bases:
            hint = nearest(str(base), bases) or f"; use one of {', '.join(bases)}"
            raise ConfigurationError(
                f"{path}: extends: there is no built-in manifest {base!r:.60}{hint}"
            )
        data = {**base_of(base), **data}
    return _manifest(path.stem, data, str(path))


def base_of(name: str) -> dict[str, Any]:
    """Return the keys of a manifest that others may extend."""
    return _read(_FOLDER / f"{name}.yaml")


@functools.cache
def _built_in(name: str) -> Manifest:
    path = _FOLDER / f"{name}.yaml"
    return _manifest(name, _read(path), str(path))


def _manifest(name: str, data: dict[str, Any], place: str) -> Manifest:
    try:
        return Manifest.model_validate({"name": name, **data})
    except ValidationError as error:
        lines = []
        for one in error.errors(include_url=False):
            where = ".".join(str(part) for part in one["loc"])
            hint = nearest(where, Manifest.model_fields) if one["type"] == "extra_forbidden" else ""
            message = (
                "this key is unknown" if hint or one["type"] == "extra_forbidden" else one["msg"]
            )
            lines.append(
                f"{place}: {where + ': ' if where else ''}{message.removeprefix('Value error, ')}{hint}"
            )
        raise ConfigurationError("\n".join(lines)) from None


class _Loader(yaml.SafeLoader):
    """A loader that refuses aliases: a few of them can make a small file a very large value."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            raise yaml.composer.ComposerError(
                None, None, "aliases are not allowed", event.start_mark
            )
        return super().compose_node(parent, index)


def _read(path: Path, content: bytes | None = None) -> dict[str, Any]:
    if content is None:
        try:
            with path.open("rb") as file:
                content = file.read(_MAX_BYTES + 1)
        except OSError as error:
            raise ConfigurationError(f"{path}: {error.strerror or error}") from None
    if len(content) > _MAX_BYTES:
        raise ConfigurationError(f"{path}: a manifest has at most {_MAX_BYTES // 1024} KiB")
    try:
        data = yaml.load(content, _Loader)  # noqa: S506 a SafeLoader
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigurationError(
            f"{path}: this is not YAML: {' '.join(str(error).split())}"
        ) from None
    if not isinstance(data, dict):
        raise ConfigurationError(f"{path}: a manifest is a mapping with the key program")
    return data
