"""The tables that workers share, in the schema `loopwright_queue`; they are migrated with those of the journal.

::

    workers     a row per worker: its process, its queues and its latest beat
    returned    why a run went back to its queue, and how often
    hosts       the host that has the workspace of a run
    permits     how many calls each worker may have in progress, by the name of a cap
    rates       the tokens of a rate, and until when a name is paused
    accounts    what the runs of a queue or of a key have spent
    spending    the same for each run, so that a repeated report changes nothing

Permits and rates are unlogged: after a crash of the server they are empty, and a cap can be exceeded by the calls in
progress. All times are those of the database.
"""

from __future__ import annotations

from .connection import Connection

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
