"""Connections to a PostgreSQL database, its tables and their migration, and its errors as those of the journal.

The tables of a journal are in the schema `loopwright`::

    format      the version of the tables
    runs        a row per run: its name, state, owner and place in a queue; sealed by a checksum
    owners      a row per opened store: its process, its session and its latest beat
    owners_now  a view: which owners are alive by the clock of the database
    entries     a row per run and commit with its entries, chained by checksums
    inbox       answers of people, a row per question, whoever owns the run; the first one stays
    contents    long values, each once per run
    forks       a row per run and run whose contents it refers to
    files       the contents of files that runs use, by digest
    memories    a row per entry, never changed and never deleted
    calls       a row per reply of a model that is kept for other calls, by the digest of its request
    commits     a row per store with the number of its latest transaction

The second version adds those that workers share, in the schema `loopwright_queue`::

    workers     a row per worker: its process, its queues and its latest beat
    returned    why a run went back to its queue, and how often
    hosts       the host that has the workspace of a run
    permits     how many calls each worker may have in progress, by the name of a cap
    rates       the tokens of a rate, and until when a name is paused
    accounts    what the runs of a queue or of a key have spent
    spending    the same for each run, so that a repeated report changes nothing
    sweeper     one row: the worker that sweeps with its session, until when, and its latest sweep
    paused      the queues of which workers take no runs

Permits and rates are unlogged: after a crash of the server they are empty, and a cap can be exceeded by the calls
in progress. All times are those of the database. Every name is written with its schema, because a session behind
a connection pooler has no settings.
"""

from __future__ import annotations

import itertools
import re
import shlex
import time
from collections.abc import Callable
from typing import TypeVar

import psycopg
from psycopg import errors, pq
from psycopg.abc import PQGen, Query
from psycopg.adapt import Buffer, Loader

from ...errors import ConfigurationError, JournalDamaged, JournalUnavailable, LoopwrightError
from ...records.codec import Json
from ..call_cache import TABLE as CALLS
from ..events import TABLES
from ..protocol import session_options, shown_url

Row = tuple[Json, ...]
OLDEST = 140000  # the number of the oldest server version
# Longer than the lock timeout of 15 s, so that the server answers a waiting statement first.
SILENCE = 20.0  # seconds without an answer after which a connection counts as lost
_RV = TypeVar("_RV")
_PAUSES = (0.05, 0.1, 0.2, 0.5, 1.0)  # seconds between two attempts
# A process that hangs inside a transaction must not hold what it locked or reads for ever.
# The server would compile statements that read many rows, which takes longer than to perform them.
NO_JIT = "SET jit=off"
_SESSION = f"SET lock_timeout='15s'; SET idle_in_transaction_session_timeout='10s'; {NO_JIT}"
# Other writers wait for the row of a run with all that they have to write. One that hangs repeats its transaction.
WRITING = "SET idle_in_transaction_session_timeout='3s'"
# The outcome is unknown, or the same statement can succeed later.
_TRANSIENT = (
    errors.AdminShutdown, errors.CannotConnectNow, errors.CrashShutdown, errors.DeadlockDetected,
    errors.DiskFull, errors.IdleInTransactionSessionTimeout, errors.LockNotAvailable,
    errors.OutOfMemory, errors.SerializationFailure, errors.TooManyConnections,
    errors.ReadOnlySqlTransaction,
)  # fmt: skip
# Reasons for which a server refuses a login; waiting changes none of them.
_REFUSED = re.compile(
    r"password|authentication|pg_hba.conf|does not exist|permission denied|certificate|does not support SSL"
)
_BEGINNING = re.compile(r"^connection to server at .*? failed: |^connection failed: |FATAL: +")


def ends_session(error: psycopg.Error) -> bool:
    """Return whether a session must not be used after an error.

    Its state is unknown after an error of the client. One that only reads has the setting of its start, which may be
    another one by now.
    """
    if isinstance(error, psycopg.OperationalError):
        return error.sqlstate is None
    return isinstance(error, errors.ReadOnlySqlTransaction)


class Connection(psycopg.Connection[Row]):
    """A connection that gives up when the server has not answered for `SILENCE` seconds.

    `pooled` is whether a connection pooler is between, so that a session may have several servers.
    """

    pooled = False

    def wait(self, gen: PQGen[_RV], interval: float = 0.1, timeout: float | None = None) -> _RV:
        """Wait for the server; see psycopg. What waits for a time of its own does not end the connection."""
        if timeout is not None:
            return super().wait(gen, interval, timeout)
        try:
            return super().wait(gen, interval, SILENCE)
        except psycopg.Error as error:
            if ends_session(error):
                self.pgconn.finish()
            raise


class _Bytes(Loader):
    """Returns text as bytes, so that it can be checked before it is decoded."""

    def load(self, data: Buffer) -> bytes:
        return bytes(data)


class Server:
    """The database of a journal.

    Args:
        url: a URL as libpq reads it.

    Raises:
        ConfigurationError: if it is not valid.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.name = shown_url(url)
        self._answered = False
        rest = url.partition(":")[2]
        if not rest.startswith("//"):
            raise ConfigurationError(
                f"journal: {self.name!r} has no host. Use postgres://HOST/DATABASE."
            )
        try:
            session_options(url, "")
        except psycopg.ProgrammingError as error:
            cause = shown_url(str(error).strip())
            raise ConfigurationError(
                f"journal: {self.name!r}: {cause}. Use postgres://HOST/DATABASE."
            ) from None

    def connect(self, role: str) -> Connection:
        """Return a connection that commits each statement; text is returned as bytes.

        Raises:
            JournalUnavailable: if the server refuses, or is too old.
            psycopg.OperationalError: if it cannot be reached now.
        """
        try:
            options = session_options(self.url, role)
            # libpq waits for 2 seconds or more.
            patience = min(float(options["connect_timeout"]), max(2.0, SILENCE))
            db = Connection.connect(
                **{**options, "connect_timeout": str(round(patience))}, autocommit=True
            )
        except psycopg.OperationalError as error:
            if is_transient(error):
                raise
            raise self.error(error) from error
        try:
            if db.info.server_version < OLDEST:
                major = db.info.server_version // 10000
                raise JournalUnavailable(
                    f"{self.name}: this server is PostgreSQL {major}; use PostgreSQL 14 or newer"
                )
            [(pid,)] = db.execute("SELECT pg_backend_pid()").fetchall()
            # A pooler answers the start of the connection itself, so the two numbers differ.
            db.pooled = pid != db.info.backend_pid
            if db.pooled:
                # A prepared statement belongs to one server session, and the pooler may change it.
                db.prepare_threshold = None
            else:
                db.execute(_SESSION)
            # A checksum must see the bytes; decoding could raise before the damage is reported as damage.
            db.adapters.register_loader("text", _Bytes)
        except BaseException:
            db.close()
            raise
        self._answered = True
        return db

    def patience(self, seconds: float) -> float:
        """Return how long it is waited for: a wrong address must fail at once, a server that answered comes back."""
        return seconds if self._answered else 0.0

    def refuse_read_only(self, db: Connection) -> None:
        """Raise JournalUnavailable if the server only reads."""
        if db.execute("SHOW transaction_read_only").fetchall() == [(b"on",)]:
            raise JournalUnavailable(f"{self.name}: {_READ_ONLY}")

    def error(self, error: Exception) -> LoopwrightError:
        """Return the error of the journal for an error of the database."""
        if isinstance(error, LoopwrightError):
            return error
        if isinstance(error, psycopg.Error):
            # A missing table or a broken index does not return by waiting.
            kind = JournalDamaged if isinstance(error, _SHAPES) else JournalUnavailable
            return kind(f"{self.name}: {self._cause(error)}")
        return JournalUnavailable(f"{self.name}: {type(error).__name__}: {error}; report this")

    def _cause(self, error: psycopg.Error) -> str:
        text = _BEGINNING.sub("", str(error).strip().splitlines()[0] if str(error) else "")
        text = _BEGINNING.sub("", text).rstrip(".")
        if "no password supplied" in text:
            return "the server asks for a password; set PGPASSWORD, or name a service file"
        if "password authentication failed" in text:
            return (
                f"the server refused the password ({text}); correct PGPASSWORD or the service file"
            )
        if isinstance(error, errors.InsufficientPrivilege):
            return (
                f"{text}; the owner of the tables must GRANT more to the role {self._role()}; the roles of readers, "
                "submitters, workers and administrators are in the guide for PostgreSQL"
            )
        if isinstance(error, errors.ReadOnlySqlTransaction):
            return _READ_ONLY
        if isinstance(error, _SHAPES):
            return f"it cannot be read as a journal ({text}); restore it from a backup"
        if isinstance(error, errors.DiskFull):
            return "the disk of the server is full; free some space, then resume the run"
        if re.search("certificate|does not support SSL", text):
            return f"the server is not trusted ({text}); check sslmode and sslrootcert of the URL"
        if re.search("too many (clients|connections)|connection slots", text):
            return f"the server accepts no more connections ({text}); end some, raise max_connections, or use a pooler"
        if "does not exist" in text and "database" in text:
            named = re.search(r'"(.+?)"', text)
            return (
                f"{text}; create it with: createdb {shlex.quote(named[1]) if named else 'DATABASE'}"
            )
        if isinstance(error, psycopg.OperationalError):
            return f"the server cannot be reached ({text}); check its address and that it runs"
        return f"{text}; report this"

    def _role(self) -> str:
        """Return the role with which this process connects, as libpq finds it."""
        defaults = {one.keyword: one.val for one in pq.Conninfo.get_defaults()}
        named = session_options(self.url, "").get("user")
        return repr(named or (defaults[b"user"] or b"").decode())


_READ_ONLY = (
    "this server only reads: it is a replica, or default_transaction_read_only is on; use the address of the primary "
    "server, or allow writing"
)
_SHAPES = (
    errors.UndefinedTable, errors.UndefinedColumn, errors.UndefinedFunction, errors.DataCorrupted,
    errors.IndexCorrupted, errors.UniqueViolation, errors.NotNullViolation,
)  # fmt: skip


def patiently(work: Callable[[], _RV], reset: Callable[[], None], patience: float) -> _RV:
    """Return the result of `work`, which is repeated while the database is away.

    `reset` drops the connection after each failure.

    Raises:
        psycopg.Error: the last one, if the database is away for longer than `patience` seconds.
    """
    until = time.monotonic() + patience
    for pause in itertools.chain(_PAUSES, itertools.repeat(_PAUSES[-1])):
        try:
            return work()
        except psycopg.Error as error:
            reset()
            if not is_transient(error) or time.monotonic() + pause > until:
                raise
        time.sleep(pause)
    raise AssertionError


def is_transient(error: Exception) -> bool:
    """Return whether a commit may succeed if it is repeated later."""
    if isinstance(error, _TRANSIENT):
        return True
    if not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return False
    # Errors while connecting have no state, only a text.
    return error.sqlstate is None and not _REFUSED.search(str(error))


def storable(text: str) -> str:
    """Return a text without NUL, which no text of PostgreSQL can hold."""
    return text.replace("\0", "\ufffd")


DEAD = 6.0  # seconds without a beat after which a worker has no permits
TURN = 1.0  # seconds for which a worker keeps more than its share of a cap that others wait for
_RETRY = 0.05  # seconds after which a worker asks again for a permit of a full cap
_ALIVE = f"NOT w.closed AND w.beat > clock_timestamp() - interval '{DEAD} seconds'"

# A worker states how many permits it has and how many more it wants, so a statement whose answer was lost can be
# repeated. If others wait, each has the same share, and the rest goes round: a worker that has more than its
# share gives it back after its turn, and asks again behind the others.
_SETTLE = f"""
CREATE OR REPLACE FUNCTION loopwright_queue.settle(
  wanted text, taker bigint, have integer, want integer, cap integer, calls integer, per float8,
  OUT granted integer, OUT wait float8, OUT allowed integer) LANGUAGE plpgsql AS $$
DECLARE
  rate loopwright_queue.rates; mine loopwright_queue.permits; now float8;
  held bigint; waiting integer; older boolean; share integer; remaining float8;
BEGIN
  LOOP
    SELECT * INTO rate FROM loopwright_queue.rates WHERE name = wanted FOR UPDATE;
    EXIT WHEN FOUND;
    INSERT INTO loopwright_queue.rates VALUES (wanted, NULL, 0, 0) ON CONFLICT DO NOTHING;
  END LOOP;
  now := extract(epoch FROM clock_timestamp());
  granted := want; wait := 0; allowed := have + want;
  IF cap > 0 THEN
    SELECT * INTO mine FROM loopwright_queue.permits WHERE name = wanted AND worker = taker;
    SELECT coalesce(sum(p.held), 0), count(*) FILTER (WHERE p.wants > 0),
        coalesce(bool_or(p.wants > 0 AND p.asked < CASE WHEN mine.wants > 0 THEN mine.asked ELSE now END), false)
      INTO held, waiting, older
      FROM loopwright_queue.permits p JOIN loopwright_queue.workers w ON w.id = p.worker
      WHERE p.name = wanted AND p.worker <> taker AND {_ALIVE};
    share := CASE WHEN waiting = 0 THEN cap ELSE cap / (waiting + 1) END;
    granted := least(want, cap - have - held, CASE WHEN waiting = 0 OR older THEN share ELSE share + 1 END - have);
    granted := greatest(granted, 0);
    allowed := CASE WHEN waiting > 0 AND now - greatest(coalesce(mine.taken, 0), CASE WHEN granted > 0 THEN now
      ELSE 0 END) < {TURN} THEN share + 1 ELSE share END;
    -- Permits that only this worker has are passed on there, without the store.
    wait := CASE WHEN held = 0 THEN {TURN} ELSE {_RETRY} END;
  END IF;
  IF rate.until > now THEN
    granted := 0; wait := rate.until - now;
  ELSIF calls > 0 THEN
    remaining := least(calls, coalesce(rate.tokens, calls) + (now - rate.at) * calls / per);
    granted := least(granted, floor(remaining)::integer);
    IF granted > 0 THEN
      UPDATE loopwright_queue.rates r SET tokens = remaining - granted, at = now WHERE r.name = wanted;
    ELSIF remaining < 1 THEN
      wait := (1 - remaining) * per / calls;
    END IF;
  END IF;
  IF cap > 0 AND (mine IS NULL OR mine.held <> have + granted OR mine.wants <> want - granted) THEN
    INSERT INTO loopwright_queue.permits AS p VALUES (wanted, taker, have + granted, want - granted, now, now)
      ON CONFLICT (name, worker) DO UPDATE SET held = excluded.held, wants = excluded.wants,
        asked = CASE WHEN granted > 0 OR p.wants = 0 THEN now ELSE p.asked END,
        taken = CASE WHEN granted > 0 THEN now ELSE p.taken END;
  END IF;
END $$
"""
# The amounts of a run only grow, so the reports of a run that two workers had for a moment do no harm.
_SPEND = """
CREATE OR REPLACE FUNCTION loopwright_queue.spend(
  account text, run text, usd_now numeric, tokens_now bigint, calls_now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  before loopwright_queue.spending;
BEGIN
  INSERT INTO loopwright_queue.accounts VALUES (account, 0, 0, 0) ON CONFLICT DO NOTHING;
  PERFORM FROM loopwright_queue.accounts a WHERE a.name = account FOR UPDATE;
  INSERT INTO loopwright_queue.spending VALUES (account, run, 0, 0, 0) ON CONFLICT DO NOTHING;
  SELECT * INTO before FROM loopwright_queue.spending s WHERE s.name = account AND s.run_id = run;
  usd_now := greatest(usd_now, before.usd);
  tokens_now := greatest(tokens_now, before.tokens);
  calls_now := greatest(calls_now, before.calls);
  UPDATE loopwright_queue.spending s SET usd = usd_now, tokens = tokens_now, calls = calls_now
    WHERE s.name = account AND s.run_id = run;
  UPDATE loopwright_queue.accounts a SET usd = a.usd + usd_now - before.usd,
      tokens = a.tokens + tokens_now - before.tokens, calls = a.calls + calls_now - before.calls
    WHERE a.name = account;
END $$
"""
SHARED = (
    "CREATE SCHEMA IF NOT EXISTS loopwright_queue",
    (
        "CREATE TABLE IF NOT EXISTS loopwright_queue.workers("
        "id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, host text NOT NULL, pid integer NOT NULL, "
        "since timestamptz NOT NULL, beat timestamptz NOT NULL, queues text NOT NULL, finished integer NOT NULL, "
        "closed boolean NOT NULL)"
    ),
    (
        'CREATE TABLE IF NOT EXISTS loopwright_queue.returned(run_id text COLLATE "C" PRIMARY KEY, '
        "reason text NOT NULL, at float8 NOT NULL, times integer NOT NULL)"
    ),
    (
        'CREATE TABLE IF NOT EXISTS loopwright_queue.hosts(run_id text COLLATE "C" PRIMARY KEY, '
        'host text COLLATE "C" NOT NULL)'
    ),
    # Versions before the first release had other tables of these names.
    "DROP FUNCTION IF EXISTS loopwright_queue.take",
    "DROP TABLE IF EXISTS loopwright_queue.permits, loopwright_queue.rates",
    (
        'CREATE UNLOGGED TABLE loopwright_queue.permits(name text COLLATE "C" NOT NULL, worker bigint NOT NULL, '
        "held integer NOT NULL, wants integer NOT NULL, asked float8 NOT NULL, taken float8 NOT NULL, "
        "PRIMARY KEY(name, worker)) WITH (fillfactor=50)"
    ),
    (
        'CREATE UNLOGGED TABLE loopwright_queue.rates(name text COLLATE "C" PRIMARY KEY, tokens float8, '
        "at float8 NOT NULL, until float8 NOT NULL) WITH (fillfactor=50)"
    ),
    (
        'CREATE TABLE IF NOT EXISTS loopwright_queue.accounts(name text COLLATE "C" PRIMARY KEY, usd numeric NOT NULL, '
        "tokens bigint NOT NULL, calls bigint NOT NULL) WITH (fillfactor=50)"
    ),
    (
        'CREATE TABLE IF NOT EXISTS loopwright_queue.spending(name text COLLATE "C" NOT NULL, run_id text COLLATE "C" NOT NULL, '
        "usd numeric NOT NULL, tokens bigint NOT NULL, calls bigint NOT NULL, PRIMARY KEY(name, run_id))"
    ),
    _SETTLE,
    _SPEND,
)
"""The statements that create the tables. They may exist: the schema of the journal can be dropped alone."""
_LOST_PINS = (
    "SELECT run_id, host FROM loopwright_queue.hosts h WHERE NOT EXISTS("
    "SELECT FROM loopwright.runs r WHERE r.run_id = h.run_id) ORDER BY run_id"
)
_WRONG_ACCOUNTS = (
    "SELECT a.name FROM loopwright_queue.accounts a LEFT JOIN loopwright_queue.spending s ON s.name = a.name "
    "GROUP BY a.name HAVING a.usd <> coalesce(sum(s.usd), 0) OR a.tokens <> coalesce(sum(s.tokens), 0) "
    "OR a.calls <> coalesce(sum(s.calls), 0) ORDER BY a.name"
)


def problems_of(db: Connection) -> list[str]:
    """Return a sentence for each row of these tables that contradicts another table."""
    pins = db.execute(_LOST_PINS).fetchall()
    accounts = db.execute(_WRONG_ACCOUNTS).fetchall()
    return [
        *(
            f"{_text(run)} is pinned to {_text(host)}, but there is no such run"
            for run, host in pins
        ),
        *(f"the account {_text(name)} differs from the sum of its runs" for (name,) in accounts),
    ]


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


MIGRATION_LOCK = 0x4C6F7057  # "LopW"
_RUNS = """
CREATE TABLE loopwright.runs(
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, run_id text COLLATE "C" NOT NULL UNIQUE,
  name text COLLATE "C" NOT NULL, status text COLLATE "C" NOT NULL, reason text COLLATE "C" NOT NULL,
  detail text NOT NULL, input text NOT NULL, source text NOT NULL, fingerprint text NOT NULL,
  created float8 NOT NULL, updated float8 NOT NULL, active float8 NOT NULL, epoch bigint NOT NULL,
  iterations bigint NOT NULL, score float8, usage text NOT NULL, opened float8 NOT NULL,
  last bigint NOT NULL, head bytea NOT NULL, seal bytea NOT NULL, owner bigint,
  cancel smallint NOT NULL, queue text COLLATE "C" NOT NULL, priority integer NOT NULL,
  wake_at float8 NOT NULL, deliveries integer NOT NULL) WITH (fillfactor=80)
"""
_OWNERS = """
CREATE TABLE loopwright.owners(
  id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, host text NOT NULL, pid integer NOT NULL,
  version text NOT NULL, backend integer, backend_start timestamptz, since timestamptz NOT NULL,
  beat timestamptz NOT NULL, lease float8 NOT NULL, silence float8 NOT NULL, held integer NOT NULL,
  closed boolean NOT NULL) WITH (fillfactor=50)
"""
# An owner is alive while its lease lasts, and while its session exists or was there a moment ago. Both
# count from the start of the server if that is later, or a restart would make all owners appear dead. A
# beat in the future was written before the clock of the server was set back: then only the session counts.
_OWNERS_NOW = """
CREATE OR REPLACE VIEW loopwright.owners_now AS
SELECT id, host, pid, version, since, beat, held,
  extract(epoch FROM beat - since)::float8 AS seconds,
  extract(epoch FROM beat)::float8 AS seen,
  extract(epoch FROM greatest(beat, pg_postmaster_start_time()))::float8 + lease AS until,
  NOT closed AND CASE WHEN beat > clock_timestamp() + interval '1 second'
    THEN backend IS NOT NULL AND s.there
    ELSE greatest(beat, pg_postmaster_start_time()) + make_interval(secs => lease) > clock_timestamp()
      AND (backend IS NULL OR s.there
        OR greatest(beat, pg_postmaster_start_time()) + make_interval(secs => silence)
          > clock_timestamp())
    END AS alive{more}
FROM loopwright.owners, LATERAL (SELECT EXISTS(SELECT FROM pg_stat_activity a WHERE a.pid=backend
  AND (a.backend_start IS NULL OR a.backend_start=owners.backend_start)) AS there) s
"""
_FIRST = (
    _RUNS,
    "CREATE INDEX runs_by_name ON loopwright.runs(name, id)",
    "CREATE INDEX runs_by_end ON loopwright.runs(status, reason, id)",
    (
        "CREATE INDEX runs_not_ended ON loopwright.runs(status, wake_at) "
        "WHERE status IN ('queued','running','suspended','interrupted')"
    ),
    _OWNERS,
    _OWNERS_NOW.format(more=""),
    (
        'CREATE TABLE loopwright.entries(run bigint NOT NULL, first bigint NOT NULL, loop text COLLATE "C", '
        "mark bigint, body text NOT NULL, sum bytea NOT NULL, PRIMARY KEY(run, first))"
    ),
    "CREATE INDEX entries_by_loop ON loopwright.entries(run, loop, mark) WHERE loop IS NOT NULL",
    (
        "CREATE TABLE loopwright.contents(run bigint NOT NULL, id bigint NOT NULL, digest bytea NOT NULL, "
        "size integer NOT NULL, body text NOT NULL, PRIMARY KEY(run, id))"
    ),
    (
        'CREATE TABLE loopwright.inbox(run bigint NOT NULL, asked bigint NOT NULL, path text COLLATE "C" '
        "NOT NULL, value text NOT NULL, who text NOT NULL, at float8 NOT NULL, seal bytea NOT NULL, "
        "PRIMARY KEY(run, asked, path))"
    ),
    "CREATE TABLE loopwright.files(digest bytea PRIMARY KEY, body bytea NOT NULL)",
    (
        "CREATE TABLE loopwright.memories(id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, "
        'space text COLLATE "C" NOT NULL, kind text NOT NULL, at float8 NOT NULL, run text NOT NULL, '
        'key text COLLATE "C" NOT NULL, value text NOT NULL, sum bytea NOT NULL)'
    ),
    "CREATE INDEX memories_by_space ON loopwright.memories(space, id)",
    "CREATE UNIQUE INDEX memories_by_key ON loopwright.memories(space, key) WHERE key<>''",
)
_SECOND = (
    # The latest transaction with operations of each store, for a commit whose answer is lost.
    (
        'CREATE TABLE loopwright.commits(store text COLLATE "C" PRIMARY KEY, number bigint NOT NULL, '
        "at timestamptz NOT NULL) WITH (fillfactor=50)"
    ),
    # `prune` deletes files without a run, but not one whose run is about to be committed.
    "ALTER TABLE loopwright.files ADD COLUMN stored timestamptz NOT NULL DEFAULT now()",
    *SHARED,
)
_THIRD = (
    (
        "CREATE TABLE loopwright.forks(run bigint NOT NULL, origin bigint NOT NULL, "
        "PRIMARY KEY(run, origin))"
    ),
    "CREATE INDEX forks_by_origin ON loopwright.forks(origin)",
)
_FOURTH = (
    # The runs that an owner named in its latest beat; NULL for one of an earlier version.
    "ALTER TABLE loopwright.owners ADD COLUMN claims bigint[]",
    _OWNERS_NOW.format(more=", lease, claims"),
)
_FIFTH = (
    'CREATE TABLE IF NOT EXISTS loopwright_queue.paused(queue text COLLATE "C" PRIMARY KEY)',
    "ALTER TABLE loopwright_queue.workers ADD COLUMN IF NOT EXISTS drains boolean NOT NULL DEFAULT false",
    (
        "CREATE TABLE IF NOT EXISTS loopwright_queue.sweeper(one boolean PRIMARY KEY DEFAULT true CHECK (one), "
        "worker bigint NOT NULL, until timestamptz NOT NULL, swept timestamptz NOT NULL, backend integer) "
        "WITH (fillfactor=50)"
    ),
    "INSERT INTO loopwright_queue.sweeper VALUES (true, 0, now(), now()) ON CONFLICT DO NOTHING",
    # What the sweeper reads each second, and what lists of a queue read, without the runs beside it.
    (
        "CREATE INDEX runs_timed ON loopwright.runs(queue, wake_at) "
        "WHERE wake_at > 0 AND status IN ('queued','suspended','interrupted')"
    ),
    "CREATE INDEX runs_waiting ON loopwright.runs(queue, id) WHERE status = 'queued' AND wake_at = 0",
    "CREATE INDEX runs_by_queue ON loopwright.runs(queue, id)",
    # With the queue, so that scheduled and suspended runs are counted without their rows.
    "DROP INDEX IF EXISTS loopwright.runs_not_ended",
    (
        "CREATE INDEX runs_not_ended ON loopwright.runs(status, wake_at, queue) "
        "WHERE status IN ('queued','running','suspended','interrupted')"
    ),
    "CREATE INDEX runs_suspect ON loopwright.runs(id) WHERE deliveries >= 2",
    # The role that inserts an answer; NULL for one of an earlier version. In two steps: a column that is added with a
    # default has it in the rows that exist, too.
    "ALTER TABLE loopwright.inbox ADD COLUMN role text",
    "ALTER TABLE loopwright.inbox ALTER COLUMN role SET DEFAULT session_user",
    # The name of the schedule of a run. Of the runs before, only those that wait for their time need it; a name with
    # a quotation mark is found again with the next run of its schedule.
    "ALTER TABLE loopwright.runs ADD COLUMN schedule text COLLATE \"C\" NOT NULL DEFAULT ''",
    (
        "UPDATE loopwright.runs r SET schedule = s.name FROM (SELECT r.id, "
        """substring(coalesce(c.body, r.source) FROM '"cron":{"expression":"[^"]*","name":"([^"\\\\]+)"') AS name """
        "FROM loopwright.runs r LEFT JOIN loopwright.contents c ON c.run = r.id AND r.source LIKE '{\"$json\":%' "
        r"AND c.id = substring(r.source FROM '\d+')::bigint WHERE r.status = 'queued' AND r.wake_at > 0) s "
        "WHERE s.id = r.id AND s.name IS NOT NULL"
    ),
    "CREATE INDEX runs_of_schedules ON loopwright.runs(schedule, status, id) WHERE schedule <> ''",
)
_SIXTH = (
    "ALTER TABLE loopwright.runs ADD COLUMN tags text NOT NULL DEFAULT ''",
    # All that lists are sorted and filtered by, so that they read no row of another page of the list.
    "DROP INDEX loopwright.runs_by_end",
    (
        "CREATE INDEX runs_by_end ON loopwright.runs(status, reason, id) "
        "INCLUDE (created, updated, score, iterations, usage, name, queue, owner, tags)"
    ),
)
_SEVENTH = tuple(
    text.format("loopwright.", "bigint GENERATED ALWAYS AS IDENTITY", "float8") for text in TABLES
)
_EIGHTH = (f"CREATE TABLE {CALLS.format('loopwright.', 'float8')}",)
# The steps from version n to n + 1, in order.
STEPS: tuple[tuple[Query, ...], ...] = (
    _FIRST, _SECOND, _THIRD, _FOURTH, _FIFTH, _SIXTH, _SEVENTH, _EIGHTH,
)  # fmt: skip
VERSION = len(STEPS)
# Not by to_regclass: it may use what the session read from the catalogue before it waited for a lock.
_FORMAT = (
    "SELECT FROM pg_class c JOIN pg_namespace n ON n.oid=c.relnamespace "
    "WHERE n.nspname='loopwright' AND c.relname='format'"
)


def version_of(db: Connection, server: Server) -> int:
    """Return the version of the tables; 0 if there are none yet.

    Raises:
        JournalUnavailable: if a newer version of Loopwright wrote them.
    """
    if not db.execute(_FORMAT).fetchall():
        return 0
    [(version,)] = db.execute("SELECT coalesce(max(version), 0) FROM loopwright.format").fetchall()
    assert isinstance(version, int)
    if version > VERSION:
        raise JournalUnavailable(
            f"{server.name}: a newer version of Loopwright wrote it (format {version}, this version "
            f"reads {VERSION}); upgrade Loopwright"
        )
    return version


def migrate(db: Connection, server: Server, steps: tuple[tuple[Query, ...], ...] = STEPS) -> int:
    """Bring the tables to the latest version, in one transaction; return the version before."""
    before = version_of(db, server)
    if before == len(steps):
        return before
    try:
        with db.transaction():
            db.execute("SELECT pg_advisory_xact_lock(%s)", (MIGRATION_LOCK,))
            version = version_of(db, server)  # another process may have been quicker
            if version == 0:
                db.execute("CREATE SCHEMA IF NOT EXISTS loopwright")
                db.execute("CREATE TABLE loopwright.format(version integer NOT NULL)")
            for statement in (statement for step in steps[version:] for statement in step):
                db.execute(statement)
            if version < len(steps):
                db.execute("DELETE FROM loopwright.format")
                db.execute("INSERT INTO loopwright.format VALUES (%s)", (len(steps),))
    except errors.InsufficientPrivilege as error:
        problem = error.diag.message_primary
        who = "a user that may create the schema 'loopwright'"
        if before:
            problem, who = f"its tables are of an older version ({problem})", "their owner"
        raise JournalUnavailable(
            f"{server.name}: {problem}; {who} runs once: loopwright journal init"
        ) from error
    return before


def notes_of(db: Connection, lease: float) -> list[str]:
    """Return what an operator should know about the server of a connection."""
    notes = [f"the server is PostgreSQL {db.info.server_version // 10000}"]
    if db.pooled:
        notes.append(
            f"a connection pooler is between: a process that died is noticed after its lease of {lease:g} "
            "seconds, and pages and cancellations are noticed by polling; connect to the server directly "
            "to avoid this"
        )
    return notes
