"""Optional dependencies: the extras of the package, and the one sentence about a missing extra.

The core has no model client, web server, MCP client or telemetry SDK. Code that needs one imports it
inside `needs`, so a missing package is reported as a sentence with the command to type.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from typing import NamedTuple

from .errors import ConfigurationError

__all__ = ["EXTRAS", "Extra", "missing", "needs", "require", "sentence"]


class Extra(NamedTuple):
    """The packages that only one extra brings, what they are, and the requirements to install."""

    packages: tuple[str, ...]
    contents: str
    requirements: str


EXTRAS: dict[str, Extra] = {
    "models": Extra(
        ("pydantic_ai", "openai", "genai_prices"), "the model client", "'loopwright[models]'"
    ),
    "anthropic": Extra(
        ("pydantic_ai", "anthropic"), "the client of Anthropic", "'loopwright[anthropic]'"
    ),
    "google": Extra(
        ("pydantic_ai", "google.genai"), "the client of Google", "'loopwright[google]'"
    ),
    # Its client is 30 MB for one provider, so it is no extra of this package.
    "bedrock": Extra(
        ("pydantic_ai", "boto3"),
        "the client of Amazon Bedrock",
        "'loopwright[models]' 'pydantic-ai-slim[bedrock]'",
    ),
    "ui": Extra(("starlette", "uvicorn"), "a web server", "'loopwright[ui]'"),
    "mcp": Extra(("mcp",), "the MCP client", "'loopwright[mcp]'"),
    "acp": Extra(("acp",), "the ACP client", "'loopwright[acp]'"),
    "pgqueuer": Extra(("pgqueuer", "psycopg"), "the engine PgQueuer", "'loopwright[pgqueuer]'"),
    "celery": Extra(("celery", "kombu"), "the engine Celery", "'loopwright[celery]'"),
    "temporal": Extra(("temporalio",), "the client of Temporal", "'loopwright[temporal]'"),
    "dbos": Extra(("dbos",), "the engine DBOS", "'loopwright[dbos]'"),
    "postgres": Extra(("psycopg",), "the PostgreSQL client", "'loopwright[postgres]'"),
    "otel": Extra(
        ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"),
        "the OpenTelemetry SDK",
        "'loopwright[otel]'",
    ),
    "optimise": Extra(("optuna", "cma"), "Optuna and cma", "'loopwright[optimise]'"),
    "gepa": Extra(("gepa",), "GEPA", "'loopwright[gepa]'"),
}


def sentence(subject: str, extra: str) -> str:
    """Return the sentence about a missing extra, with the command that installs it.

    Args:
        subject: the feature, as the singular subject of the sentence.
        extra: a name of EXTRAS.

    Example:
        >>> sentence("openai:gpt-4o-mini", "models")
        "openai:gpt-4o-mini needs the model client: pip install 'loopwright[models]'"
    """
    return f"{subject} needs {EXTRAS[extra].contents}: pip install {EXTRAS[extra].requirements}"


def missing(extra: str) -> bool:
    """Return whether a package of an extra is not installed. Nothing is imported except parents.

    Example:
        >>> missing("models")
        False
    """
    # An extra may be installed in part, for example without its provider's SDK.
    return not all(_installed(package) for package in EXTRAS[extra].packages)


def _installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ImportError:  # its parent package is not installed
        return False
    except ValueError:  # Celery, once it is imported, is a module without a specification
        return package in sys.modules


def require(subject: str, extra: str) -> None:
    """Report a missing extra before anything of it is imported.

    Raises:
        ConfigurationError: with `sentence(subject, extra)`, if a package of the extra is missing.

    Example:
        >>> require("the page", "ui")
    """
    if missing(extra):
        raise ConfigurationError(sentence(subject, extra))


@contextlib.contextmanager
def needs(subject: str, extra: str) -> Iterator[None]:
    """Report a failed import inside this context as a missing extra.

    Args:
        subject: the feature, as the singular subject of the sentence.
        extra: a name of EXTRAS.

    Raises:
        ConfigurationError: with `sentence(subject, extra)`, if a package of others cannot be imported.

    Example:
        >>> with needs("the page", "ui"):
        ...     import starlette
    """
    try:
        yield
    except ImportError as error:
        if (error.name or "").partition(".")[0] == __package__:
            raise  # a mistake in this package, which no installation repairs
        raise ConfigurationError(sentence(subject, extra)) from error
