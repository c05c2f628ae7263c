"""What operators of a shared journal rely on: damaged rows, old records of the queue, roles with few rights, plain answers."""

from __future__ import annotations

import asyncio
import re
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from cluster.process import Process, add, ask, sums
from cluster.waiting import until_status
from loopwright.cluster import Submission, submit, submit_all
from loopwright.errors import JournalError
from loopwright.journal import open_journal
from loopwright.journal.postgres.journal import PostgresJournal, page_query
from loopwright.journal.questions import answer, pending
from loopwright.journal.views import Wanted
from postgres_server import PostgresServer

from .conftest import Project

pytestmark = pytest.mark.timeout(120)
GUIDE = (Path(__file__).parents[3] / "docs/guide/postgres.md").read_text("utf-8")
ROLES = ("reader", "submitter", "worker", "administrator")
GRANTS = {
    role: re.findall(rf"^    ((?:GRANT|REVOKE) .* (?:TO|FROM) {role});$", GUIDE, re.MULTILINE)
    for role in ROLES
}
# Of workers that delete old runs.
[RETAIN] = [grant for grant in GRANTS["worker"] if grant.startswith("GRANT DELETE ON ")]
GRANTS["worker"].remove(RETAIN)
SUBMIT = ("submit", "steps:refine", "--input", "x")
PRUNE = ("journal", "prune", "--ended-before", "2099-01-01")


@pytest.fixture
def shared(project: Project, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A folder whose commands use a journal in PostgreSQL."""
    monkeypatch.setenv("LOOPWRIGHT_JOURNAL", postgres_url)
    return project


@pytest.fixture
def as_role(
    shared: Project, postgres_server: PostgresServer, postgres_url: str
) -> Iterator[Callable[[str], str]]:
    """Create a role with the grants of the guide, and return the URL with which it reaches the journal."""
    assert shared.call("journal", "init").code == 0
    made: list[str] = []

    def granted(role: str) -> str:
        with psycopg.connect(postgres_url, autocommit=True) as db:
            db.execute(f"CREATE ROLE {role} LOGIN")
            made.append(role)
            for statement in GRANTS[role]:
                db.execute(statement)
        assert shared.call(*SUBMIT, "--id", "first").code == 0
        assert shared.call(*SUBMIT, "--id", "ended").code == 0
        assert shared.call("cancel", "ended").code == 0
        return postgres_server.url_of(postgres_url.rpartition("/")[2], user=role)

    yield granted
    with psycopg.connect(postgres_url, autocommit=True) as db:
        for role in made:
            db.execute(f"DROP OWNED BY {role}")
            db.execute(f"DROP ROLE {role}")


def _damage(url: str, queue: str) -> None:
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("UPDATE loopwright.runs SET name = 'changed' WHERE queue = %s", (queue,))


def test_a_damaged_row_is_listed_beside_the_others(shared: Project, postgres_url: str) -> None:
    """`runs` shows the damaged run as such, and all others."""
    shared.call(*SUBMIT, "--id", "sound")
    shared.call(*SUBMIT, "--id", "broken", "--queue", "other")
    _damage(postgres_url, "other")
    listed = shared.call("runs")
    assert listed.code == 0, listed.err
    assert len(listed.out.splitlines()) >= 2
    assert "damaged" in listed.out
    assert any(line.startswith("sound") for line in listed.out.splitlines())


def test_a_damaged_row_does_not_keep_a_schedule_from_ending(
    shared: Project, postgres_url: str
) -> None:
    """`cancel` of one schedule does not read the damaged run of another one, which is submitted anew, and ends too."""
    for name, queue in (("nightly", "default"), ("weekly", "other")):
        shared.call(*SUBMIT, "--id", name, "--cron", "0 6 * * *", "--queue", queue)
    _damage(postgres_url, "other")
    ended = shared.call("cancel", "nightly")
    assert ended.code == 0, ended.err
    assert "the schedule nightly has ended" in ended.out
    assert (
        "is damaged; restore it from a backup, or submit" in shared.call("worker", "schedules").out
    )
    again = shared.call(*SUBMIT, "--id", "weekly", "--cron", "0 6 * * *", "--queue", "other")
    assert again.code == 0, again.err
    assert shared.call("worker", "schedules").out.startswith("weekly  0 6 * * *  next: ")
    assert "the schedule weekly has ended" in shared.call("cancel", "weekly").out


def test_a_worker_starts_and_serves_beside_a_damaged_row(
    shared: Project, postgres_url: str, tmp_path: Path
) -> None:
    """The latest row is damaged; a worker starts and runs what is sound."""

    async def served() -> bool:
        async with open_journal(postgres_url) as journal:
            sound = await submit(sums, {"number": 1}, journal=journal)
            await submit(sums, {"number": 2}, journal=journal, queue="other")
            _damage(postgres_url, "other")
            worker = Process(postgres_url, "", tmp_path / "ledger")
            try:
                await until_status(journal, sound, "exhausted", patience=8.0)
            except TimeoutError:
                return False
            finally:
                worker.kill()
            return True

    assert asyncio.run(served())


def test_prune_deletes_the_log_of_the_queue(
    shared: Project, postgres_url: str, tmp_path: Path
) -> None:
    """After all runs were deleted, the queue keeps no record of them either."""

    async def run_some() -> None:
        async with open_journal(postgres_url) as journal:
            ids = await submit_all(Submission(add), [({"number": 1}, "")] * 3, journal=journal)
            worker = Process(postgres_url, "", tmp_path / "ledger")
            try:
                for run_id in ids:
                    await until_status(journal, run_id, "satisfied")
            finally:
                worker.kill()

    asyncio.run(run_some())
    with psycopg.connect(postgres_url, autocommit=True) as db:
        # An hour ago, so that no run or record is too young.
        db.execute("UPDATE loopwright_queue.pgqueuer_log SET created = created - interval '1 hour'")
        before = _count(db)
        assert (
            "deleted 3 runs" in shared.call("journal", "prune", "--ended-before", "2099-01-01").out
        )
        assert before > 0
        assert _count(db) == 0


def _count(db: psycopg.Connection[tuple[int]]) -> int:
    [(count,)] = db.execute("SELECT count(*) FROM loopwright_queue.pgqueuer_log").fetchall()
    return int(count)


def test_the_runs_of_a_queue_are_found_by_an_index(postgres_url: str) -> None:
    """`runs --queue` reads no row of another queue."""

    async def create() -> None:
        async with open_journal(postgres_url) as journal:
            await journal.runs()
            many = [Submission(sums, queue="many").row({"number": n}, "") for n in range(5000)]
            few = [Submission(sums, queue="few").row({"number": n}, "") for n in range(10)]
            await journal.create([*few, *many])

    asyncio.run(create())
    query, values = page_query(Wanted(queue="few", limit=20), [], "run_id")
    with psycopg.connect(postgres_url, autocommit=True) as db:
        db.execute("ANALYZE loopwright.runs")
        [(plan,)] = db.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {query}", values).fetchall()
    assert "Rows Removed by Filter" not in str(plan), plan


def test_submit_says_that_nobody_serves_the_queue(
    shared: Project, postgres_url: str, tmp_path: Path
) -> None:
    """Without a worker for the queue a sentence says so; with one it does not."""
    alone = shared.call(*SUBMIT)
    assert "no worker serves the queue default" in alone.out + alone.err

    async def beside_a_worker() -> tuple[str, str]:
        async with open_journal(postgres_url) as journal:
            worker = Process(postgres_url, "", tmp_path / "ledger")
            try:
                run_id = await submit(sums, {"number": 1}, journal=journal)
                await until_status(journal, run_id, "exhausted")
                served = await asyncio.to_thread(shared.call, *SUBMIT)
                other = await asyncio.to_thread(shared.call, *SUBMIT, "--queue", "other")
            finally:
                worker.kill()
        return served.out + served.err, other.out + other.err

    served, other = asyncio.run(beside_a_worker())
    assert "no worker" not in served
    assert "no worker serves the queue other" in other


def test_the_extra_all_has_the_default_engine() -> None:
    """Who installs `loopwright[all]` can start a worker."""
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    [everything] = project["project"]["optional-dependencies"]["all"]
    assert "pgqueuer" in re.split(r"[\[\],]", everything)


@pytest.mark.parametrize(
    ("role", "command"),
    [
        *(("reader", command) for command in [("runs",), ("show", "first"), ("worker", "list")]),
        ("submitter", SUBMIT),
        ("submitter", ("runs",)),
        ("worker", ("runs",)),
        ("worker", ("cancel", "first")),
        ("administrator", SUBMIT),
        ("administrator", ("cancel", "first")),
        ("administrator", PRUNE),
        *((role, ("journal", "init")) for role in ROLES[1:]),
    ],
    ids=lambda value: value if isinstance(value, str) else value[0],
)
def test_a_role_may_do_what_it_is_for(
    shared: Project, as_role: Callable[[str], str], role: str, command: tuple[str, ...]
) -> None:
    """The documented grants are enough."""
    done = shared.run(*command, LOOPWRIGHT_JOURNAL=as_role(role))
    assert done.code == 0, done.err


@pytest.mark.parametrize(
    ("role", "command"),
    [
        ("reader", SUBMIT),
        ("reader", ("cancel", "first")),
        ("reader", PRUNE),
        ("submitter", ("cancel", "first")),
        ("submitter", PRUNE),
        ("worker", PRUNE),
    ],
    ids=lambda value: value if isinstance(value, str) else value[0],
)
def test_a_role_that_may_not_is_told_which_right_it_lacks(
    shared: Project, as_role: Callable[[str], str], role: str, command: tuple[str, ...]
) -> None:
    """One sentence names the role, and the guide's grants as the remedy; nothing changed."""
    url = as_role(role)
    refused = shared.run(*command, LOOPWRIGHT_JOURNAL=url)
    assert refused.code == 1
    assert role in refused.err.replace(url, "")
    assert "GRANT" in refused.err.upper()
    assert "defect" not in refused.err
    assert "journal init" not in refused.err
    assert len(refused.err.strip().splitlines()) == 1


def test_a_role_without_any_right_is_told_so(
    shared: Project, postgres_server: PostgresServer, postgres_url: str
) -> None:
    """Tables that are missing, old or closed to a role each have a sentence of their own."""
    with psycopg.connect(postgres_url, autocommit=True) as db:
        db.execute("CREATE ROLE stranger LOGIN")
        url = postgres_server.url_of(postgres_url.rpartition("/")[2], user="stranger")
        missing = shared.run("runs", LOOPWRIGHT_JOURNAL=url)
        assert shared.call("journal", "init").code == 0
        closed = shared.run("runs", LOOPWRIGHT_JOURNAL=url)
        db.execute("GRANT USAGE ON SCHEMA loopwright TO stranger")
        db.execute("GRANT SELECT ON loopwright.format TO stranger")
        db.execute("UPDATE loopwright.format SET version = 4")
        old = shared.run("runs", LOOPWRIGHT_JOURNAL=url)
        db.execute("DROP OWNED BY stranger")
        db.execute("DROP ROLE stranger")
    assert (missing.code, closed.code, old.code) == (1, 1, 1)
    assert "a user that may create the schema 'loopwright' runs once" in missing.err
    assert "must GRANT more to the role 'stranger'" in closed.err
    assert "its tables are of an older version" in old.err
    assert "their owner runs once: loopwright journal init" in old.err
    for one in (missing, closed, old):
        assert len(one.err.strip().splitlines()) == 1, one.err


def test_a_server_that_only_reads_serves_readers(shared: Project, postgres_url: str) -> None:
    """What writes is refused at once in a sentence, and what reads works."""
    assert shared.call(*SUBMIT, "--id", "first").code == 0
    replica = f"{postgres_url}?options=-c%20default_transaction_read_only%3Don"
    assert shared.run("runs", LOOPWRIGHT_JOURNAL=replica).code == 0
    for command in (SUBMIT, ("cancel", "first"), ("worker", "start", "--queue", "default=1")):
        refused = shared.run(*command, LOOPWRIGHT_JOURNAL=replica)
        assert refused.code == 1
        assert "this server only reads" in refused.err
        assert "the primary server" in refused.err
        assert len(refused.err.strip().splitlines()) == 1


def test_only_the_owner_creates_the_tables_of_the_engine(
    shared: Project,
    postgres_server: PostgresServer,
    postgres_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`init` says if it could not create them; then a worker with few rights names the command that does."""
    with monkeypatch.context() as without:
        without.setattr("loopwright.ui.cli.journal.init.missing", lambda _: True)
        first = shared.call("journal", "init")
    assert first.code == 0
    assert "repeat this command after: pip install 'loopwright[pgqueuer]'" in first.err
    url = postgres_server.url_of(postgres_url.rpartition("/")[2], user="worker")
    with psycopg.connect(postgres_url, autocommit=True) as db:
        db.execute("CREATE ROLE worker LOGIN")
        for statement in GRANTS["worker"]:
            db.execute(statement)
        refused = shared.run("worker", "start", "--root", ".", LOOPWRIGHT_JOURNAL=url)
        again = shared.call("journal", "init")
        created = db.execute("SELECT to_regclass('loopwright_queue.pgqueuer')").fetchall()
        db.execute("DROP OWNED BY worker")
        db.execute("DROP ROLE worker")
    assert refused.code == 1
    assert "the tables of the engine pgqueuer are missing" in refused.err
    assert refused.err.endswith("loopwright journal init\n")
    assert len(refused.err.splitlines()) == 1
    assert (again.code, again.err, created) == (0, "", [("loopwright_queue.pgqueuer",)])


def test_a_worker_needs_no_more_than_its_grants(
    as_role: Callable[[str], str], postgres_url: str, tmp_path: Path
) -> None:
    """It takes, runs and ends a run with the rights of a worker."""
    worker = Process(as_role("worker"), "", tmp_path / "ledger")

    async def served() -> None:
        async with open_journal(postgres_url) as journal:
            run_id = await submit(sums, {"number": 1}, journal=journal)
            await until_status(journal, run_id, "exhausted")

    try:
        asyncio.run(served())
    finally:
        worker.kill()


def test_a_worker_that_deletes_old_runs_needs_one_more_right(
    as_role: Callable[[str], str], postgres_url: str
) -> None:
    """The right to delete, with which the old runs and all that belongs to them are gone."""
    url = as_role("worker")

    async def pruned() -> int:
        async with PostgresJournal(url) as journal:
            return await journal.prune(time.time() + 60)

    with pytest.raises(
        JournalError, match=r"permission denied .* must GRANT more to the role 'worker'"
    ):
        asyncio.run(pruned())
    with psycopg.connect(postgres_url, autocommit=True) as db:
        db.execute(RETAIN)
        assert asyncio.run(pruned()) == 1
        assert db.execute("SELECT status FROM loopwright.runs").fetchall() == [("queued",)]


def test_runs_are_kept_for_more_than_no_time(project: Project, postgres_url: str) -> None:
    """An age of 0 would delete a run at its end, so it is a mistake."""
    answer = project.call("worker", "start", "--retain", "0h", "--journal", postgres_url)
    assert (answer.code, answer.err.count("\n")) == (2, 1)
    assert answer.err.startswith("loopwright: --retain: 0h would delete every run at its end")


def test_who_answered_is_the_role_of_the_database(
    as_role: Callable[[str], str], postgres_url: str, tmp_path: Path
) -> None:
    """The record of an answer names the role that gave it, whatever name comes with it."""
    url = as_role("administrator")
    worker = Process(postgres_url, "", tmp_path / "ledger")

    async def answered() -> str:
        async with open_journal(url) as journal:
            run_id = await submit(ask, "draft", journal=journal)
            await until_status(journal, run_id, "suspended")
            [question] = await pending(journal, run_id)
            await answer(journal, run_id, question.path, "yes", who="somebody else")
            [posted] = await journal.inbox(run_id)
        with psycopg.connect(url, autocommit=True) as db:
            for forged in (
                "INSERT INTO loopwright.inbox SELECT run, asked, 'x', value, who, at, seal, 'boss' FROM loopwright.inbox",
                "UPDATE loopwright.inbox SET role = 'boss'",
            ):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    db.execute(forged)
        return posted.who

    try:
        assert asyncio.run(answered()) == "somebody else (database role administrator)"
    finally:
        worker.kill()
