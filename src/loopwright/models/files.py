"""Files in prompts: images, audio, PDF and text."""

from __future__ import annotations

import hashlib
import mimetypes
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from ..errors import ConfigurationError
from ..records.codec import Json

__all__ = ["MAX_FILE_BYTES", "File", "FileReference"]

MAX_FILE_BYTES = 20_000_000  # the limit of the providers for one request, in which a file is base64
_PREFIXES = ("image/", "audio/", "text/")
_OTHERS = ("application/pdf", "application/json", "application/x-yaml", "application/xml")


@dataclass(frozen=True, slots=True)
class File:
    """A file that a prompt sends to its model; give one of `path`, `url` and `data`.

    Args:
        path: a local file, under `files_root` of the prompt. At most 20 MB.
        url: the address of an image, which the provider loads.
        data: the content, with `media_type`. At most 20 MB.
        media_type: such as `image/png`, `audio/wav`, `application/pdf`, `text/plain`. Default: that of
            the ending of `path` or `url`.

    Raises:
        ConfigurationError: for no source or several, an unknown media type, or content that is too large.

    Example:

    >>> File("chart.png").media_type
    'image/png'
    """

    path: str | os.PathLike[str] = ""
    url: str = field(default="", kw_only=True)
    data: bytes | None = field(default=None, kw_only=True, repr=False)
    media_type: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        path = os.fspath(self.path)
        if sum((bool(path), bool(self.url), self.data is not None)) != 1:
            raise ConfigurationError("file: give one of a path, url= and data=")
        if self.data is not None and not isinstance(self.data, bytes):
            raise ConfigurationError("file: data: is not bytes; read the file in binary mode")
        object.__setattr__(self, "path", path)
        name = path or urlsplit(self.url).path
        kind = self.media_type or mimetypes.guess_type(name)[0] or ""
        object.__setattr__(self, "media_type", kind)
        if not kind.startswith(_PREFIXES) and kind not in _OTHERS:
            unknown = f"{kind} cannot be sent" if kind else "the media type is unknown"
            raise ConfigurationError(
                f"file {name or 'data'!r:.200}: {unknown}; give media_type= of an image, audio, PDF or text"
            )
        if self.url:
            _check_url(self.url, kind)
        check_size(name or "data", len(self.data or b""))

    def described(self) -> Json:
        """Return the file as JSON, with a digest in place of content."""
        description: dict[str, Json] = {"media_type": self.media_type}
        if self.path:
            description["path"] = Path(self.path).as_posix()
        elif self.url:
            description["url"] = self.url
        else:
            description["data"] = hashlib.sha256(self.data or b"").hexdigest()
        return description

    def read(self, root: Path) -> bytes:
        """Return the content of `data`, or of `path` under a folder.

        Raises:
            ConfigurationError: for a path outside the folder, one that cannot be read, or a large file.
        """
        if self.data is not None:
            return self.data
        # Resolved before the check, so that a link inside the folder cannot lead out of it.
        path = Path(os.path.realpath(root / self.path))
        if not path.is_relative_to(os.path.realpath(root)):
            raise ConfigurationError(
                f"file {self.path!r} is outside {root}; give files_root= of another folder"
            )
        try:
            # Checked before reading: the file may be larger than the memory.
            check_size(str(self.path), path.stat().st_size)
            return path.read_bytes()
        except OSError as error:
            raise ConfigurationError(
                f"file {self.path!r} cannot be read: {error.strerror or error}"
            ) from None


def check_size(name: str, size: int) -> None:
    """Raise ConfigurationError for content of more than 20 MB."""
    if size > MAX_FILE_BYTES:
        raise ConfigurationError(
            f"file {name!r:.200} has {size:,} bytes; the limit is {MAX_FILE_BYTES:,}"
        )


def _check_url(url: str, media_type: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigurationError(f"file: {url!r:.200} is not an address; use https://…")
    if parts.username is not None or parts.password is not None:
        raise ConfigurationError(
            "file: the address contains a user or password; give data= instead"
        )
    if not media_type.startswith("image/"):
        raise ConfigurationError(
            f"file {url!r:.200}: only images are sent by address; give the file by path or data="
        )


@dataclass(frozen=True, slots=True)
class FileReference:
    """A file of a message as it is recorded: its digest or address, never its content.

    Args:
        media_type: the media type.
        digest: the SHA-256 digest of the content; default "".
        url: the address of an image; default "".
        name: the name of the file; default "".
        size: the size in bytes; default 0.

    Example:

    >>> FileReference("image/png", url="https://example.org/a.png").to_json()
    {'media_type': 'image/png', 'url': 'https://example.org/a.png'}
    """

    media_type: str
    digest: str = ""
    url: str = ""
    name: str = ""
    size: int = 0

    def to_json(self) -> dict[str, Json]:
        """Return a JSON object without empty fields."""
        names = ("media_type", "digest", "url", "name", "size")
        return {name: value for name in names if (value := getattr(self, name))}

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> FileReference:
        """Return the reference of an object from `to_json`."""
        return cls(**data)
