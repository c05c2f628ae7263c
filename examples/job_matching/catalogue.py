"""A catalogue of invented job postings in SQLite with full-text search, the same every time."""

from __future__ import annotations

import random
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

SEED = 14
SIZE = 420
CITIES = ("Lisbon", "Porto", "Madrid", "Barcelona", "Berlin", "Paris", "Dublin", "Remote")
LEVELS = {"junior": 34_000, "mid": 50_000, "senior": 68_000, "lead": 84_000}
FIELDS = {
    "Data Engineer": ("python", "sql", "spark", "airflow", "dbt", "kafka", "aws", "docker"),
    "Analytics Engineer": ("sql", "dbt", "python", "airflow", "tableau", "excel", "snowflake"),
    "Machine Learning Engineer": ("python", "pytorch", "spark", "docker", "kubernetes", "sql"),
    "Backend Developer": ("python", "django", "postgres", "docker", "redis", "kafka", "sql"),
    "Platform Engineer": ("kubernetes", "terraform", "aws", "docker", "linux", "python", "kafka"),
    "Frontend Developer": ("typescript", "react", "css", "testing", "accessibility", "graphql"),
    "Data Analyst": ("sql", "excel", "tableau", "python", "statistics", "dbt"),
    "Site Reliability Engineer": ("linux", "kubernetes", "terraform", "monitoring", "python"),
}
COMPANIES = ("Acorn", "Brightwater", "Cobalt", "Dune", "Ember", "Foxglove", "Granite", "Harbour")
TRADES = ("Logistics", "Health", "Energy", "Games", "Banking", "Travel", "Retail", "Media")
SENTENCES = (
    "You join a team of {n} and own what you build.",
    "We work in small steps and review each other's changes.",
    "Most days you will use {a} and {b}.",
    "Knowing {a} helps; curiosity helps more.",
    "Our stack has grown for {n} years and shows it in places.",
    "You will be on call one week in {n}.",
)

SCHEMA = """
CREATE TABLE posting (
    id INTEGER PRIMARY KEY, title TEXT, company TEXT, location TEXT, seniority TEXT, salary INTEGER,
    skills TEXT, description TEXT
);
CREATE VIRTUAL TABLE posting_text USING fts5 (
    title, skills, description, content = 'posting', content_rowid = 'id'
);
"""


def open_catalogue(folder: Path | None = None) -> sqlite3.Connection:
    """Open the catalogue for reading, and make it first if there is none yet.

    It lies in `.loopwright/job_matching/` of the working directory, or in `folder`.
    """
    folder = folder or Path.cwd() / ".loopwright" / "job_matching"
    file = folder / f"catalogue-{SEED}-{SIZE}.db"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        _make(file)
    return sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)


def _make(file: Path) -> None:
    # Made in a place of its own first: nobody ever opens a half-written catalogue.
    with tempfile.TemporaryDirectory(dir=file.parent) as scratch:
        made = Path(scratch, file.name)
        with closing(sqlite3.connect(made)) as database, database:
            database.executescript(SCHEMA)
            database.executemany("INSERT INTO posting VALUES (?, ?, ?, ?, ?, ?, ?, ?)", postings())
            database.execute("INSERT INTO posting_text (posting_text) VALUES ('rebuild')")
        made.replace(file)


def postings() -> Iterator[tuple[int | str, ...]]:
    """Invent the postings, one row each."""
    rng = random.Random(SEED)
    for number in range(1, SIZE + 1):
        field, known = rng.choice(list(FIELDS.items()))
        level, pay = rng.choice(list(LEVELS.items()))
        skills = rng.sample(known, k=rng.randint(3, min(6, len(known))))
        text = " ".join(
            sentence.format(n=rng.randint(3, 9), a=rng.choice(skills), b=rng.choice(known))
            for sentence in rng.sample(SENTENCES, k=3)
        )
        yield (
            number,
            f"{level.title()} {field}",
            f"{rng.choice(COMPANIES)} {rng.choice(TRADES)}",
            rng.choice(CITIES),
            level,
            int(round(pay * rng.uniform(0.85, 1.25), -3)),
            ", ".join(skills),
            text,
        )
