"""Folders and repositories that try to run a program through git: `make hostile`.

    python -m coding.workspace.hostile_stores [--only WORD] [--sample N] [--as-root-only]

Each variation is a payload in one place: a store that a repository or an archive brings, a store that was adopted, a
folder that a journal from elsewhere names, the user's own repository, or the environment. Every command that opens a
store or a repository is then called in it. A payload writes its name into a file of the folder `traps`. With the rights
of root, the variations are repeated as an ordinary user.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx

from loopwright.journal.open import open_journal
from loopwright.ui.cli import main as loopwright
from loopwright.ui.web.app import create_app

NOBODY = 65534
PORT = 4711
DOCUMENT = """
schema: loopwright/1
name: fix
steps:
  - name: count
    loop:
      workspace: {{kind: {kind}, merge: {merge}}}
      execute: {{shell: 'echo $(($(cat n.txt)+1)) > n.txt; cat n.txt'}}
      evaluate: {{check: {{command: [grep, -q, "2", n.txt]}}}}
      until: [passed, {{max_iterations: 2}}]
"""
# Keys whose value is a program, or the folder, file or address that leads to one. PROGRAM and FOLDER are replaced.
KEYS = {
    "core.fsmonitor": "PROGRAM", "core.sshCommand": "PROGRAM", "core.gitProxy": "PROGRAM",
    "core.pager": "PROGRAM", "core.editor": "PROGRAM", "core.askPass": "PROGRAM",
    "core.alternateRefsCommand": "PROGRAM", "core.hooksPath": "FOLDER/hooks",
    "filter.e.clean": "PROGRAM", "filter.e.smudge": "PROGRAM", "filter.e.process": "PROGRAM",
    "diff.external": "PROGRAM", "diff.e.command": "PROGRAM", "diff.e.textconv": "PROGRAM",
    "merge.e.driver": "PROGRAM", "credential.helper": "!PROGRAM", "gpg.program": "PROGRAM",
    "gpg.ssh.program": "PROGRAM", "sequence.editor": "PROGRAM", "interactive.diffFilter": "PROGRAM",
    "uploadpack.packObjectsHook": "PROGRAM", "trailer.e.command": "PROGRAM",
    "alias.status": "!PROGRAM", "alias.diff-tree": "!PROGRAM", "init.templateDir": "FOLDER",
    "remote.origin.uploadpack": "PROGRAM", "remote.origin.vcs": "e", "remote.origin.proxy": "PROGRAM",
    "submodule.e.update": "!PROGRAM", "url.ext::PROGRAM %S.insteadOf": "/", "browser.e.cmd": "PROGRAM",
    "include.path": "FOLDER/included", "includeIf.gitdir:/.path": "FOLDER/included",
}  # fmt: skip
ATTRIBUTES = "* filter=e diff=e merge=e text working-tree-encoding=UTF-8 ident\n"
HOOKS = (
    "post-checkout",
    "post-index-change",
    "reference-transaction",
    "pre-auto-gc",
    "post-rewrite",
    "post-merge",
)
VARIABLES = {
    "GIT_EXTERNAL_DIFF": "PROGRAM", "GIT_SSH_COMMAND": "PROGRAM", "GIT_PAGER": "PROGRAM", "GIT_EDITOR": "PROGRAM",
    "GIT_ASKPASS": "PROGRAM", "GIT_PROXY_COMMAND": "PROGRAM", "GIT_TEMPLATE_DIR": "FOLDER", "GIT_DIR": "FOLDER/evil.git",
    "GIT_COMMON_DIR": "FOLDER/evil.git", "GIT_CONFIG": "FOLDER/included", "GIT_CONFIG_GLOBAL": "FOLDER/included",
    "GIT_CONFIG_SYSTEM": "FOLDER/included", "GIT_CONFIG_PARAMETERS": "'core.fsmonitor=PROGRAM'",
    "GIT_WORK_TREE": "FOLDER", "GIT_INDEX_FILE": "FOLDER/index", "GIT_OBJECT_DIRECTORY": "FOLDER/objects",
    "GIT_NAMESPACE": "e", "GIT_ALLOW_PROTOCOL": "ext:file:ssh", "GIT_ATTR_SOURCE": "HEAD", "GIT_TRACE": "FOLDER/trace",
}  # fmt: skip


@dataclass(frozen=True)
class Trap:
    """A folder of one variation, with the program that shows that it was executed."""

    folder: Path
    name: str

    @property
    def program(self) -> str:
        return str(self.folder / "program")

    @property
    def sprung(self) -> list[str]:
        return [file.name for file in (self.folder / "traps").iterdir()]

    def set_up(self) -> None:
        (self.folder / "traps").mkdir()
        (self.folder / "hooks").mkdir()
        script = f"#!/bin/sh\ntouch {self.folder}/traps/sprung\nexec cat 2>/dev/null\n"
        for place in (self.folder / "program", *(self.folder / "hooks" / hook for hook in HOOKS)):
            place.write_text(script)
            place.chmod(0o755)
        (self.folder / "included").write_text(
            f'[core]\n\tfsmonitor = {self.program}\n[filter "e"]\n\tclean = {self.program}\n\tsmudge = {self.program}\n'
        )

    def value(self, text: str) -> str:
        return text.replace("PROGRAM", self.program).replace("FOLDER", str(self.folder))


def git(folder: Path, *words: str, check: bool = True) -> str:
    env = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    env |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    settings = ("-c", "safe.directory=*", "-c", "user.name=Ann", "-c", "user.email=a@example.org")
    done = subprocess.run(
        ["git", *settings, "-c", "protocol.file.allow=always", *words],
        cwd=folder, env=env, capture_output=True, text=True, check=check,
    )  # fmt: skip
    return done.stdout.strip()


# Payloads: each changes the folder of a repository (GIT_DIR).


def config(key: str, value: str) -> Callable[[Path, Trap], None]:
    def plant(place: Path, trap: Trap) -> None:
        section, _, name = key.rpartition(".")
        group, _, sub = section.partition(".")
        head = f'[{group} "{trap.value(sub)}"]' if sub else f"[{group}]"
        driver = trap.value(value).replace("\\", "\\\\").replace('"', '\\"')
        text = f'\n{head}\n\t{name} = "{driver}"\n[protocol "ext"]\n\tallow = always\n[log]\n\tshowSignature = true\n'
        with (place / "config").open("a") as file:
            file.write(text)
        attributes(place, trap)

    return plant


def attributes(place: Path, trap: Trap) -> None:
    (place / "info").mkdir(exist_ok=True)
    (place / "info" / "attributes").write_text(ATTRIBUTES)


def hooks(place: Path, trap: Trap) -> None:
    shutil.copytree(trap.folder / "hooks", place / "hooks", dirs_exist_ok=True)


def promisor(place: Path, trap: Trap) -> None:
    """A missing object that git would fetch by a program, from a repository on the disk."""
    with (place / "config").open("a") as file:
        file.write(
            '\n[core]\n\trepositoryformatversion = 1\n[extensions]\n\tpartialClone = origin\n[remote "origin"]\n'
            f"\turl = {trap.folder}\n\tpromisor = true\n\tuploadpack = {trap.program}\n"
        )
    for loose in [*(place / "objects").glob("??/*")][:3]:
        loose.unlink()


def worktree_config(place: Path, trap: Trap) -> None:
    with (place / "config").open("a") as file:
        file.write(
            "\n[core]\n\trepositoryformatversion = 1\n[extensions]\n\tworktreeConfig = true\n"
        )
    shutil.copy(trap.folder / "included", place / "config.worktree")
    attributes(place, trap)


def common_folder(place: Path, trap: Trap) -> None:
    other = trap.folder / "evil.git"
    shutil.copytree(place, other)
    config("core.fsmonitor", "PROGRAM")(other, trap)
    config("filter.e.clean", "PROGRAM")(other, trap)
    (place / "commondir").write_text(f"{other}\n")


def alternates(place: Path, trap: Trap) -> None:
    other = trap.folder / "lender.git"
    git(trap.folder, "clone", "--quiet", "--bare", str(place), str(other), check=False)
    info = place / "objects" / "info"
    info.mkdir(exist_ok=True)
    (info / "alternates").write_text(f"{other / 'objects'}\n")
    config("core.alternateRefsCommand", "PROGRAM")(place, trap)


def redirected(place: Path, trap: Trap) -> None:
    """A file in place of the repository, which leads to another one."""
    other = trap.folder / "elsewhere.git"
    place.rename(other)
    config("core.fsmonitor", "PROGRAM")(other, trap)
    config("filter.e.clean", "PROGRAM")(other, trap)
    place.write_text(f"gitdir: {other}\n")


def linked(place: Path, trap: Trap) -> None:
    other = trap.folder / "linked.git"
    place.rename(other)
    config("core.fsmonitor", "PROGRAM")(other, trap)
    place.symlink_to(other)


def own_remote(place: Path, trap: Trap) -> None:
    """The store as a remote by its path, which the name of a transfer selects."""
    store = trap.folder / "project" / ".loopwright" / "store.git"
    config(f"remote.{store}.uploadpack", "PROGRAM")(place, trap)
    config("fetch.recurseSubmodules", "true")(place, trap)


PAYLOADS: dict[str, Callable[[Path, Trap], None]] = {
    **{key: config(key, value) for key, value in KEYS.items()},
    "hooks": hooks, "promisor": promisor, "config.worktree": worktree_config, "commondir": common_folder,
    "alternates": alternates, "gitfile": redirected, "link": linked, "remote by path": own_remote,
}  # fmt: skip


# Places: each makes a project with a payload, as a folder in which commands are called.


def project(trap: Trap, kind: str = "copy", merge: str = "branch") -> Path:
    """Make a repository with a commit and a document."""
    folder = trap.folder / "project"
    folder.mkdir()
    (folder / "n.txt").write_text("0\n")
    (folder / "d.yaml").write_text(DOCUMENT.format(kind=kind, merge=merge))
    (folder / ".gitattributes").write_text("n.txt filter=e diff=e\n")
    git(folder, "init", "--quiet", "-b", "main")
    git(folder, "add", "-A")
    git(folder, "commit", "--quiet", "-m", "start")
    return folder


def with_store(trap: Trap) -> Path:
    """Make a project with a store of a real run."""
    folder = project(trap)
    with calls_in(folder):
        called("run", "d.yaml", "--yes", "--run-id", "first")
    return folder


def tracked(trap: Trap, plant: Callable[[Path, Trap], None]) -> Path:
    """A clone of a repository that tracks a store, with the identifier of its maker."""
    folder = with_store(trap)
    plant(folder / ".loopwright" / "store.git", trap)
    (folder / ".loopwright" / ".gitignore").unlink()
    # The folders of a store that git would not track: an archive has them.
    clone = trap.folder / "clone"
    shutil.copytree(folder, clone, symlinks=True)
    git(clone, "add", "-f", "-A", check=False)
    git(clone, "commit", "--quiet", "-m", "tracked", check=False)
    return clone


def unpacked(trap: Trap, plant: Callable[[Path, Trap], None]) -> Path:
    """A folder of an archive, which git does not track; this user does not know its identifier."""
    folder = with_store(trap)
    plant(folder / ".loopwright" / "store.git", trap)
    (folder / ".loopwright" / "id").write_text("0" * 32)
    return folder


def adopted(trap: Trap, plant: Callable[[Path, Trap], None]) -> Path:
    """A folder that the user has adopted, or in which a program wrote after it was made."""
    folder = with_store(trap)
    plant(folder / ".loopwright" / "store.git", trap)
    return folder


def named_by_journal(trap: Trap, plant: Callable[[Path, Trap], None]) -> Path:
    """A journal from elsewhere whose runs have their files in a folder of its author."""
    folder = with_store(trap)
    evil = trap.folder / "evil"
    (folder / ".loopwright").rename(evil)
    plant(evil / "store.git", trap)
    (evil / "id").unlink()
    shutil.copytree(folder, trap.folder / "mine")
    renamed(evil / "runs.db", str(folder / ".loopwright"), str(evil))
    shutil.copy(evil / "runs.db", trap.folder / "mine" / "journal.db")
    return trap.folder / "mine"


def renamed(file: Path, old: str, new: str) -> None:
    """Change a folder in a journal, with its checksums."""
    # The text of a row is the subject of its checksum; a link at the old place has the same effect.
    Path(old).symlink_to(new)
    with contextlib.closing(sqlite3.connect(file)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def own_repository(kind: str) -> Callable[[Trap, Callable[[Path, Trap], None]], Path]:
    """The user's repository, unpacked with its `.git`; a changed file makes git compare contents."""

    def make(trap: Trap, plant: Callable[[Path, Trap], None]) -> Path:
        folder = project(trap, kind, "none" if kind == "here" else "branch")
        plant(folder / ".git", trap)
        (folder / "n.txt").write_text("1\n")
        os.utime(folder / "d.yaml", (1, 1))
        return folder

    return make


Make = Callable[[Trap, Callable[[Path, Trap], None]], Path]
PLACES: dict[str, Make] = {
    "tracked": tracked, "unpacked": unpacked, "adopted": adopted, "journal": named_by_journal,
    "own copy": own_repository("copy"), "own worktree": own_repository("worktree"),
    "own here": own_repository("here"), "own snapshot": own_repository("snapshot"),
}  # fmt: skip


# The commands.


@contextlib.contextmanager
def calls_in(folder: Path, **variables: str) -> Iterator[None]:
    before, former = Path.cwd(), dict(os.environ)
    os.chdir(folder)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.chdir(before)
        os.environ.clear()
        os.environ.update(former)


def called(*words: str) -> int:
    """Call the command line in this process; its output is of no interest."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return loopwright(list(words))


def commands(journal: str, *, every: bool) -> list[list[str]]:
    """Return the command lines that open a store or a repository."""
    show = [["show", "first", "--files"], ["export", "first", "-f", "html", "-o", "report.html"]]
    start = [["run", "d.yaml", "--yes", "--run-id", "second"]]
    if not every:
        return [[*words, "--journal", journal] for words in (*start, *show)]
    show += [
        ["show", "first", "--diff", "0", "1"], ["export", "first", "-f", "patch", "-o", "p"],
        ["export", "first", "-f", "bundle", "-o", "b"], ["runs"], ["show", "first"],
    ]  # fmt: skip
    start += [
        ["until", "grep -q 3 n.txt", "--yes", "--sandbox", "none", "--max", "1", "--", "sh", "-c", "echo 3 > n.txt"],
        ["rewind", "first", "fix/count/1"], ["resume", "first", "--yes"],
    ]  # fmt: skip
    files = [["files", "list"], ["files", "prune"], ["files", "restore", "first", "1"]]
    files += [["files", action, "first"] for action in ("show", "diff", "branch", "apply")]
    return [*([*words, "--journal", journal] for words in (*show, *start)), *files]


async def pages(url: str, folder: Path) -> None:
    """Ask the page for the files of the run."""
    store = open_journal(url)
    app = create_app(store, url=url, folder=folder, port=PORT, token="t")
    headers = {"authorization": "Bearer t", "host": f"127.0.0.1:{PORT}"}
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url=f"http://127.0.0.1:{PORT}", headers=headers
    ) as client:
        for path in ("files?loop=fix/count&b=1", "files?loop=fix/count&a=0&b=1", "export/html", ""):
            await client.get(f"/runs/first/{path}".rstrip("/"))
    await store.close()  # type: ignore[attr-defined]


def attacked(folder: Path, journal: str, *, every: bool, **variables: str) -> None:
    with calls_in(folder, **variables):
        for words in commands(journal, every=every):
            called(*words)
        with contextlib.suppress(Exception):
            asyncio.run(pages(journal, folder))


# The variations.


def variations() -> list[tuple[str, str]]:
    """Return the places and payloads, and the variables."""
    found = [(place, payload) for place in PLACES for payload in PAYLOADS]
    return [*found, *(("environment", name) for name in VARIABLES)]


def executed(place: str, payload: str, *, every: bool) -> list[str]:
    """Return the traces of a payload that was executed."""
    with tempfile.TemporaryDirectory(prefix="hostile-") as scratch:
        top = Path(scratch).resolve()
        trap = Trap(top, payload)
        trap.set_up()
        os.environ["XDG_STATE_HOME"] = str(top / "state")
        if place == "environment":
            shutil.copytree(with_store(trap) / ".git", top / "evil.git")
            config("core.fsmonitor", "PROGRAM")(top / "evil.git", trap)
            value = trap.value(VARIABLES[payload])
            attacked(top / "project", "sqlite:.loopwright/runs.db", every=every, **{payload: value})
            return trap.sprung
        folder = PLACES[place](trap, PAYLOADS[payload])
        for made in (top / "traps").iterdir():  # the test's own calls of git
            made.unlink()
        # A journal beside the folder is not refused with it, so that a run reaches the store.
        refused = place in ("tracked", "unpacked")
        journals = ["sqlite:.loopwright/runs.db"] if place != "journal" else []
        for journal in [*journals, *(["sqlite:journal.db"] if refused or not journals else [])]:
            attacked(folder, journal, every=every)
        return trap.sprung


def works(payload: str) -> bool:
    """Whether a payload is executed by plain git: what the figures are worth."""
    with tempfile.TemporaryDirectory(prefix="hostile-") as scratch:
        trap = Trap(Path(scratch).resolve(), payload)
        trap.set_up()
        folder = own_repository("copy")(trap, PAYLOADS[payload])
        env = {**os.environ, "GIT_PAGER": ""}
        for words in (["status"], ["diff"], ["checkout", "-q", "-b", "x"], ["commit", "-qam", "x"], ["fetch", "-q", "."],
                      ["fetch", "origin"], ["log", "-p", "--show-signature"], ["checkout", "-f", "main"], ["clone", "-q", ".", "c"]):  # fmt: skip
            subprocess.run(
                # A program in place of a server waits for git, and git for it: both are ended.
                ["timeout", "5", "git", *words],
                cwd=folder,
                env=env,
                capture_output=True,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        return bool(trap.sprung)


def main() -> None:
    """Try every variation, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--as-root-only", action="store_true")
    options = parser.parse_args()
    chosen = [one for one in variations() if options.only in " ".join(one)]
    if options.sample:
        chosen = random.Random(1).sample(chosen, min(options.sample, len(chosen)))
    user = "root" if os.getuid() == 0 else f"user {os.getuid()}"
    found, counted = [], Counter[str]()
    for place, payload in chosen:
        counted[place] += 1
        if executed(place, payload, every=True):
            found.append(f"{place}: {payload}")
            print(f"EXECUTED as {user}: {found[-1]}", flush=True)
    live = sum(map(works, PAYLOADS)) if not (options.only or options.sample) else 0
    print(f"{user}: {len(chosen)} variations {dict(counted)}, {len(found)} executed", flush=True)
    if live:
        print(
            f"{user}: {live} of {len(PAYLOADS)} payloads are executed by ten commands of plain git",
            flush=True,
        )
    code = 1 if found else 0
    if os.getuid() == 0 and not options.as_root_only:
        with tempfile.TemporaryDirectory(prefix="hostile-user-") as scratch:
            os.chown(scratch, NOBODY, NOBODY)
            words = [
                "setpriv",
                f"--reuid={NOBODY}",
                f"--regid={NOBODY}",
                "--clear-groups",
                "--inh-caps=-all",
            ]
            env = {**os.environ, "HOME": scratch, "TMPDIR": scratch, "PYTHONDONTWRITEBYTECODE": "1"}
            command = [
                *words,
                sys.executable,
                "-m",
                "coding.workspace.hostile_stores",
                *sys.argv[1:],
            ]
            code |= subprocess.run(command, env=env, check=False).returncode
    sys.exit(code)


if __name__ == "__main__":
    main()
