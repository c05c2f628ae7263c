"""Only folders `.loopwright` that this user made, or has adopted, are used."""

from __future__ import annotations

import shutil
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from loopwright import Workspace, resume_sync, run_sync
from loopwright._home import Home
from loopwright.coding.workspace.store import GitError, GitStore
from loopwright.coding.workspace.tree import Placing
from loopwright.coding.workspace.workspace import Files
from loopwright.errors import ConfigurationError
from loopwright.journal import FileStore
from loopwright.ui.cli import main
from loopwright.ui.run_files import run_files

from .conftest import Repo
from .test_loops import counting

JOURNAL = "sqlite:.loopwright/runs.db"
HOME = Path(".loopwright")


@pytest.fixture
def foreign(repo: Repo, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder with a run that another user made."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "theirs"))
    run_sync(counting(Workspace(repo.folder)), journal=JOURNAL, run_id="r")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "mine"))
    return HOME


def test_a_folder_of_another_user_can_be_shown_and_not_used(
    foreign: Path, repo: Repo, capsys: pytest.CaptureFixture[str]
) -> None:
    """`show` and `export` read its journal; its files, a resume and a new run are refused with both ways out."""
    assert main(["show", "r"]) == main(["export", "r", "-f", "html", "-o", "r.html"]) == 0
    capsys.readouterr()
    files = ["show", "r", "--files"]
    changes = (
        ["files", "list"],
        ["rewind", "r", "fix/2"],
        ["cancel", "r"],
        ["ui", "--no-open"],
    )
    for words in (["show", "r", "--diff", "0", "1"], files, *changes):
        assert main(words) in (1, 2), words
        shown, told = capsys.readouterr()
        assert shown == "", words  # `ui` prints no address of a page that will not be there
        assert (
            "another machine" not in told
            and "rm -r .loopwright" in told
            and "loopwright journal adopt" in told
        ), words
    with pytest.raises(Exception, match="journal adopt"):
        run_sync(counting(Workspace(repo.folder)), journal=JOURNAL, run_id="new")
    assert not [*HOME.glob("trees/new")]


def test_an_adopted_folder_is_used_and_has_a_new_identifier(
    foreign: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a terminal the contents are listed, and nothing is adopted; the variable adopts."""
    before = (HOME / "id").read_text()
    assert main(["journal", "adopt"]) == 2
    told = capsys.readouterr().err
    assert "store.git/" in told and "LOOPWRIGHT_TRUST=all" in told
    assert not Home(HOME).known
    monkeypatch.setenv("LOOPWRIGHT_TRUST", "all")
    assert main(["journal", "adopt"]) == 0
    assert "must adopt it again" in capsys.readouterr().err
    monkeypatch.delenv("LOOPWRIGHT_TRUST")
    assert (HOME / "id").read_text() != before
    assert main(["files", "diff", "r"]) == main(["rewind", "r", "fix/2"]) == 0


def test_a_folder_that_git_tracks_is_refused(
    repo: Repo, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also if its identifier is known: a checkout would replace what was made here."""
    monkeypatch.chdir(repo.folder)
    run_sync(counting(Workspace(repo.folder, merge="none")), journal=JOURNAL, run_id="r")
    repo.git("add", "-f", ".loopwright/id")
    assert main(["files", "list"]) == 2
    assert "has files that git tracks, such as .loopwright/id" in capsys.readouterr().err
    result = run_sync(counting(Workspace(repo.folder)), run_id="s")
    assert "git rm -r" in result.error.message


def test_a_link_to_a_known_identifier_is_not_one(repo: Repo, tmp_path: Path) -> None:
    """A repository may contain a link to a folder whose place it guesses."""
    run_sync(counting(Workspace(repo.folder, merge="none")), run_id="r")
    other = tmp_path / "other" / ".loopwright"
    shutil.copytree(HOME, other)
    assert Home(other).known  # a copy by the user keeps its identifier
    (other / "id").unlink()
    (other / "id").symlink_to(HOME.absolute() / "id")
    assert Home(other).foreign
    other.rename(tmp_path / "moved")
    HOME.rename(other)
    assert Home(other).known


def test_processes_that_make_the_folder_at_once_agree(tmp_path: Path) -> None:
    """None refuses what another one is making, and all know the same identifier."""
    barrier = threading.Barrier(16)

    def make(number: int) -> bool:
        home = Home(tmp_path / str(number // 16) / ".loopwright")
        barrier.wait()
        home.make(required=True)
        (home.folder / "trees").mkdir(exist_ok=True)
        return home.recognised

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(make, range(16 * 25)))
    for number in range(25):
        names = Home(tmp_path / str(number) / ".loopwright").names()
        assert names == [".gitignore", "id", "trees"]


@pytest.mark.parametrize("name", ["runs.db", "store.git", "trees", "detached"])
def test_contents_without_an_identifier_are_foreign(tmp_path: Path, name: str) -> None:
    """Those of the former version too; an empty folder, or files of the user's own, are not."""
    home = Home(tmp_path / ".loopwright")
    (home.folder / "examples").mkdir(parents=True)
    assert not home.foreign
    (home.folder / name).mkdir()
    assert home.foreign
    with pytest.raises(ConfigurationError, match="journal adopt"):
        home.make()


def test_a_loop_with_files_needs_a_place_to_remember_its_folder(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the variable; a loop without files runs."""
    blocked = tmp_path / "file"
    blocked.touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(blocked))
    result = run_sync(counting(Workspace(repo.folder)), run_id="r")
    assert "XDG_STATE_HOME" in result.error.message
    assert run_sync(lambda value: value, 1, journal=JOURNAL, run_id="s").output == 1
    monkeypatch.setenv("LOOPWRIGHT_TRUST", "all")
    assert run_sync(counting(Workspace(repo.folder)), run_id="t").error is None


def test_the_configuration_of_a_store_is_written_anew(repo: Repo) -> None:
    """Whatever was written into it: settings, attributes, another common folder; lent objects are copied."""
    run_sync(counting(Workspace(repo.folder, merge="none")), run_id="r")
    store = HOME / "store.git"
    config = (store / "config").read_text()
    with (store / "config").open("a") as file:
        file.write("[core]\n\tfsmonitor = touch x\n")
    (store / "commondir").write_text("/tmp\n")
    (store / "info" / "attributes").write_text("* filter=x\n")
    (store / "info" / "grafts").touch()
    GitStore(HOME)
    assert (store / "config").read_text() == config
    assert sorted(file.name for file in (store / "info").iterdir()) == ["attributes", "exclude"]
    assert "-filter" in (store / "info" / "attributes").read_text()
    assert not (store / "commondir").exists()
    (HOME / "elsewhere").mkdir()
    store.rename(HOME / "elsewhere" / "git")
    store.symlink_to("elsewhere/git")
    with pytest.raises(GitError, match="is a link"):
        GitStore(HOME)


def test_a_store_of_a_repository_that_borrows_objects_has_its_own(
    repo: Repo, tmp_path: Path
) -> None:
    """Its branch is made without the command that lists the refs of the lender."""
    borrower = tmp_path / "borrower"
    repo.git("clone", "-q", "--shared", str(repo.folder), str(borrower))
    trap = tmp_path / "trap"
    repo.git("-C", str(borrower), "config", "core.alternateRefsCommand", f"touch {trap};")
    result = run_sync(counting(Workspace(borrower)), run_id="r")
    assert result.workspace["branch"] == "loopwright/r"
    assert not trap.exists()
    assert not (HOME / "store.git" / "objects" / "info" / "alternates").exists()
    shutil.rmtree(repo.folder)
    assert GitStore(HOME).has(result.workspace["commit"])


def test_words_of_a_journal_are_not_options_of_git(repo: Repo) -> None:
    """A commit that is none is refused: git would read `--output=FILE` as an option."""
    run_sync(counting(Workspace(repo.folder, merge="none")), run_id="r")
    store = GitStore(HOME)
    for call in (store.has, store.tree_of):
        with pytest.raises(GitError, match="not the hash of a commit"):
            call("--output=written")
    with pytest.raises(GitError, match="not the hash"):
        store.diff("--output=written", "--output=written")
    assert not Path("written").exists()
    assert run_files("r", [], "fix", None) is None


@pytest.mark.parametrize("change", ["home", "source"])
def test_a_journal_cannot_name_other_folders(repo: Repo, tmp_path: Path, change: str) -> None:
    """A run continues only in the folders that this machine has for it."""
    first = run_sync(counting(Workspace(repo.folder, merge="none")), run_id="r")
    begun = {
        "commit": first.workspace["base"],
        "folder": first.workspace["folder"],
        "source": str(repo.folder),
        "home": str(HOME.absolute()),
        "host": socket.gethostname(),
    }
    other = tmp_path / "other"
    other.mkdir()
    files = Files(Workspace(repo.folder, merge="none"), "r", "fix")
    with pytest.raises(GitError, match="another machine, or were deleted"):
        files._open({**begun, change: str(other)})
    assert [*other.iterdir()] == []


def test_a_folder_that_is_exchanged_for_a_link_leads_nowhere(tmp_path: Path) -> None:
    """While files are put in place and removed, another process exchanges their folder for a link."""
    root, staged, victim = (tmp_path / name for name in ("root", "staged", "victim"))
    for folder in (root / "d", staged / "d", victim):
        folder.mkdir(parents=True)
    for name in ("a", "b", "c"):
        (staged / "d" / name).write_text("new")
    (victim / "kept").touch()

    def exchanged(*paths: bytes) -> Iterator[bytes]:
        for number, path in enumerate(paths):
            if number == 1:
                (root / "d").rename(tmp_path / "aside")
                (root / "d").symlink_to(victim)
            yield path

    with Placing(root) as placing:
        placing.put(exchanged(b"d/a", b"d/b"), staged)
    with Placing(root) as placing:
        placing.remove([b"d/kept"])
        placing.put([b"d/c"], staged)
    assert [file.name for file in victim.iterdir()] == ["kept"]
    assert (root / "d" / "c").read_text() == "new" and not (root / "d").is_symlink()


@pytest.mark.parametrize("kind", ["copy", "snapshot", "here"])
def test_a_journal_in_the_project_is_no_file_of_it(
    repo: Repo, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """It is in no snapshot, patch or branch, is never put back, and a resume reads it; what is beside it is captured."""
    monkeypatch.chdir(repo.folder)
    Path("runs").mkdir()
    repo.write(**{"runs/j.db.txt": "mine"})
    repo.commit("mine")
    workspace = Workspace(".", kind=kind, include=["runs/*"], merge="branch", branch="b")
    url = "sqlite:runs/j.db"
    FileStore(Path("runs/j.db.files")).put(b"large")
    result = run_sync(counting(workspace), journal=url, run_id="r")
    assert result.status.value == "exhausted" and result.iterations == 3
    # The journal in place has all entries of the run.
    assert main(["show", "r", "--json", "--journal", url]) == 0
    assert resume_sync(counting(workspace), "r", journal=url).iterations == 3
    store = GitStore(HOME)
    for commit in [item.files["commit"] for item in result.history] + [result.workspace["base"]]:
        names = store.git.text("ls-tree", "-r", "--name-only", commit).split()
        assert [name for name in names if name.startswith("runs/")] == ["runs/j.db.txt"]
    assert repo.git("ls-tree", "-r", "--name-only", "b", "runs").split() == ["runs/j.db.txt"]
    if kind != "here":
        repo.git("merge", "-q", "b")
        assert (repo.folder / "n.txt").read_text() == "2\n"


@pytest.mark.parametrize("kind", ["copy", "here"])
@pytest.mark.parametrize("removed", [False, True])
def test_a_journal_that_is_committed_is_left_as_it_is(
    repo: Repo, monkeypatch: pytest.MonkeyPatch, kind: str, removed: bool
) -> None:
    """It is in no snapshot, the branch has that of the user's commit, and a merge does not touch it."""
    monkeypatch.chdir(repo.folder)
    url = "sqlite:j.db"
    run_sync(counting(Workspace(".", merge="none")), journal=url, run_id="old")
    repo.commit("by mistake")
    committed = repo.git("rev-parse", "HEAD:j.db")
    if removed:
        repo.git("rm", "-q", "--cached", "j.db")
    workspace = Workspace(".", kind=kind, merge="branch", branch="b")
    result = run_sync(counting(workspace), journal=url, run_id="r")
    assert result.iterations == 3, result.detail
    base = GitStore(HOME).git.text("ls-tree", "--name-only", result.workspace["base"])
    assert "j.db" not in base
    assert "uncommitted" not in result.workspace
    assert repo.git("rev-parse", "b:j.db") == committed
    if kind == "copy" and not removed:
        repo.git("merge", "-q", "b")
    assert main(["show", "r", "--json", "--journal", url]) == 0
