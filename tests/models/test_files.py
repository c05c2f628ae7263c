"""Files in prompts: read once, stored by digest, sent to the model, and kept out of the journal."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from mock_server import serving

from loopwright import File, Models, Status, prompt, run, run_sync
from loopwright.errors import ConfigurationError
from loopwright.journal import open_journal
from loopwright.models import ProviderModel, Reply, Request
from loopwright.models.protocol import MAX_FILE_BYTES
from loopwright.prompts.tool_prompt import tool_prompt

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)


class Crash(BaseException):
    """The end of the process."""


class Reader:
    """A model that keeps its requests, and can end the process."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.crashing = False

    async def complete(self, request: Request, *, on_text: Any = None) -> Reply:
        del on_text
        self.requests.append(request)
        if self.crashing:
            raise Crash
        return Reply("read")

    @property
    def sent(self) -> list[tuple[str, bytes | str]]:
        """The media type and the content, or address, of the files of the last request."""
        request = self.requests[-1]
        return [
            (file.media_type, request.contents[file.digest] if file.digest else file.url)
            for message in request.messages
            for file in message.files
        ]


@pytest.fixture
def reader() -> Reader:
    return Reader()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with two files."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "chart.png").write_bytes(PNG)
    (folder / "notes.txt").write_text("remember", encoding="utf-8")
    monkeypatch.chdir(folder)
    return folder


def look(*files: Any, **options: Any) -> Any:
    return prompt("What is on it?", model="openai:m", name="look", files=list(files), **options)


@pytest.mark.usefixtures("folder")
def test_files_are_paths_addresses_and_bytes(reader: Reader) -> None:
    """Each of the three sources reaches the model with its media type."""
    step = look(
        File("chart.png"),
        File(url="https://example.org/a.jpg"),
        File(data=b"hello", media_type="text/plain"),
    )
    assert run_sync(step, "x", models=Models(reader)).output == "read"
    assert reader.sent == [
        ("image/png", PNG),
        ("image/jpeg", "https://example.org/a.jpg"),
        ("text/plain", b"hello"),
    ]


@pytest.mark.usefixtures("folder")
def test_files_may_depend_on_the_input(reader: Reader) -> None:
    """A template renders to a path or an address; a function returns files."""
    run_sync(look("{{ value }}.png"), "chart", models=Models(reader))
    assert reader.sent == [("image/png", PNG)]
    chosen = prompt("x", model="openai:m", files=lambda value: [File(f"{value}.txt")])
    run_sync(chosen, "notes", models=Models(reader))
    assert reader.sent == [("text/plain", b"remember")]
    with pytest.raises(ConfigurationError, match="nothing supplies 'chart'"):
        run_sync(look("{{ chart }}"), "x", models=Models(reader))


async def test_a_file_is_stored_once_beside_the_journal(reader: Reader, folder: Path) -> None:
    """Two runs share one copy, and the journal has its digest and no content."""
    async with open_journal("sqlite:runs.db") as journal:  # type: ignore[attr-defined]
        for run_id in ("a", "b"):
            await run(
                look(File("chart.png")), "x", models=Models(reader), journal=journal, run_id=run_id
            )
    stored = [path for path in (folder / "runs.db.files").rglob("*") if path.is_file()]
    assert [path.read_bytes() for path in stored] == [PNG]
    database = (folder / "runs.db").read_bytes()
    assert stored[0].name.encode() in database
    assert PNG not in database
    assert base64.b64encode(PNG)[:40] not in database


async def test_a_resumed_run_sends_the_recorded_content(reader: Reader, folder: Path) -> None:
    """A file that disappears after it was read does not change the run that is resumed."""
    reader.crashing = True
    options: Any = {"models": Models(reader), "run_id": "r"}
    async with open_journal("sqlite:runs.db") as journal:  # type: ignore[attr-defined]
        with pytest.raises(Crash):
            await run(look(File("chart.png")), "x", journal=journal, **options)
        (folder / "chart.png").unlink()
        reader.crashing = False
        result = await run(look(File("chart.png")), "x", journal=journal, **options)
        assert result.output == "read"
    assert reader.sent == [("image/png", PNG)]


async def test_a_lost_content_is_an_error(reader: Reader, folder: Path) -> None:
    """Content that is missing from the store fails the resumed run, and says where it was."""
    reader.crashing = True
    options: Any = {"models": Models(reader), "run_id": "r"}
    async with open_journal("sqlite:runs.db") as journal:  # type: ignore[attr-defined]
        with pytest.raises(Crash):
            await run(look(File("chart.png")), "x", journal=journal, **options)
        (stored,) = (p for p in (folder / "runs.db.files").rglob("*") if p.is_file())
        stored.write_bytes(b"other")
        result = await run(look(File("chart.png")), "x", journal=journal, **options)
    assert result.error is not None
    assert result.error.kind == "file_missing"


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("../secret.txt", "is outside"),
        ("/etc/passwd.txt", "is outside"),
        ("none.txt", "cannot be read"),
    ],
)
def test_a_path_outside_the_folder_is_refused(
    path: str, words: str, reader: Reader, tmp_path: Path
) -> None:
    """A value cannot make a prompt read any file of the machine."""
    (tmp_path / "secret.txt").write_text("secret", encoding="utf-8")
    result = run_sync(look("{{ value }}"), path, models=Models(reader))
    assert result.status is Status.FAILED
    assert words in result.detail
    assert not reader.requests


def test_a_link_out_of_the_folder_is_refused(reader: Reader, folder: Path, tmp_path: Path) -> None:
    """The target of a symbolic link counts; `files_root` names another folder."""
    (tmp_path / "secret.txt").write_text("secret", encoding="utf-8")
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    assert "is outside" in run_sync(look(File("link.txt")), "x", models=Models(reader)).detail
    wide = look(File("secret.txt"), files_root=tmp_path)
    assert run_sync(wide, "x", models=Models(reader)).satisfied


def test_a_file_that_cannot_be_sent_is_refused() -> None:
    """Sources, media types, sizes and addresses are checked where the file is named."""
    wrong: list[dict[str, Any]] = [
        {}, {"path": "a.png", "url": "https://x.example/a.png"}, {"path": "a.zip"}, {"data": b"x"},
        {"data": "text", "media_type": "text/plain"}, {"url": "ftp://x.example/a.png"},
        {"url": "https://user:pass@x.example/a.png"}, {"url": "https://x.example/a.pdf"},
        {"data": bytes(MAX_FILE_BYTES + 1), "media_type": "image/png"},
    ]  # fmt: skip
    for options in wrong:
        with pytest.raises(ConfigurationError, match="file"):
            File(**options)
    with pytest.raises(ConfigurationError, match="is not a list"):
        prompt("x", files="chart.png")


@pytest.mark.usefixtures("folder", "loopback")
@pytest.mark.parametrize("with_tools", [False, True])
def test_a_server_receives_image_and_text(with_tools: bool) -> None:
    """An image is sent as a data URL, a text as text, also by a prompt with tools."""
    bodies: list[Any] = []

    def answer(body: dict[str, Any], headers: dict[str, str]) -> tuple[int, str]:
        del headers
        bodies.append(body["messages"][-1]["content"])
        return 200, "a dot"

    def now() -> str:
        """Return the time."""
        return "noon"

    files = [File("chart.png"), File("notes.txt")]
    with serving(answer) as url:
        options: Any = {"model": "openai_compatible:m", "base_url": url}
        step = prompt("What is on it?", files=files, **options)
        if with_tools:
            step = tool_prompt("What is on it?", tools=[now], files=files, **options)
        assert run_sync(step, "x").output == "a dot"
    (content,) = bodies
    assert content[0] == {"type": "text", "text": "What is on it?"}
    assert content[1]["image_url"]["url"].endswith(base64.b64encode(PNG).decode())
    assert content[2]["text"] == "File notes.txt:\nremember"


def test_files_are_part_of_the_fingerprint() -> None:
    """Another file is another prompt; a prompt without files keeps its fingerprint."""
    prints = {look().fingerprint, look(File("a.png")).fingerprint, look(File("b.png")).fingerprint}
    assert len(prints) == 3
    assert look().fingerprint == prompt("What is on it?", model="openai:m", name="look").fingerprint


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("model", "file"),
    [
        ("anthropic:claude-sonnet-4-5", File(data=b"RIFF", media_type="audio/wav")),
        ("gemini:gemini-2.5-flash", File(url="https://example.org/a.png")),
    ],
)
def test_a_model_that_cannot_read_a_file_is_not_called(model: str, file: File) -> None:
    """Where the profile of the model says so, the error comes before the request and names the way out."""
    keys = {"ANTHROPIC_API_KEY": "sk-of-a-test", "GEMINI_API_KEY": "key-of-a-test"}
    step = prompt("What is on it?", model=model, files=[file])
    result = run_sync(step, "x", models=Models(ProviderModel(keys)))
    assert result.error is not None
    assert f"files: {model} does not" in result.error.message
