"""A snapshot that is put back has exactly the files that were captured, whatever happened to the folder.

The model is a mapping of paths to contents. The folder is changed as an agent might change it, and each
restored snapshot is compared with the model, byte by byte, with modes and links.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from loopwright import Workspace
from loopwright.coding.workspace.workspace import Files

NAMES = ("a", "b.py", "sub/c", "sub/deep/d.txt", "with space", "ümlaut", "-dash", "new\nline", "q'\"uote",
         "*star[1]", "sub", "a/inside", "b\\s", ":(top)x", "git~1", "LICENSE.GIT")  # fmt: skip
CONTENTS = st.sampled_from(
    [b"", b"x\n", b"x\r\n", b"$Id$\n", b"\x00\xff\n", b"a" * 5000]
) | st.binary(max_size=20)
MAX_FILE = 100_000_000  # the default of a workspace
IGNORED = ("kept.log", "sub.ignored/kept.log", "build/out.bin")


def is_ignored(path: str) -> bool:
    return path.endswith(".log") or path.startswith("build/")


def files_of(folder: Path) -> dict[str, tuple[str, object]]:
    """The files of a folder as a snapshot should have them."""
    found: dict[str, tuple[str, object]] = {}
    for base, folders, names in os.walk(folder):
        for name in [*names, *(f for f in folders if (Path(base) / f).is_symlink())]:
            place = Path(base) / name
            path = str(place.relative_to(folder))
            if ".git" in place.relative_to(folder).parts or is_ignored(path):
                continue
            if place.is_symlink():
                found[path] = ("link", str(place.readlink()))
            elif place.is_file() and place.stat().st_size <= MAX_FILE:
                executable = (
                    "exec" if os.access(place, os.X_OK) and place.stat().st_mode & 0o100 else "file"
                )
                found[path] = (executable, place.read_bytes())
    return found


class Folder(RuleBasedStateMachine):
    """Random edits, captures and restores of one folder."""

    snapshots: Bundle[str] = Bundle("snapshots")

    @initialize(target=snapshots)
    def start(self) -> str:
        self.top = Path(tempfile.mkdtemp())
        project = self.top / "project"
        (project / "sub" / "deep").mkdir(parents=True)
        for name, text in {
            "a": "1\n", "sub/c": "2\r\n", "sub/deep/d.txt": "3\n", ".gitignore": "*.log\n/build/\n",
            ".gitattributes": "* text=auto eol=crlf\n*.py filter=evil\n",
        }.items():  # fmt: skip
            (project / name).write_text(text, newline="")
        for words in (
            ["init", "-q"],
            ["add", "-A"],
            ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"],
        ):
            subprocess.run(["git", *words], cwd=project, check=True, capture_output=True)
        self.state = Files(Workspace(project, home=self.top / "home"), "run", "loop")
        self.state._open(None)
        base = self.state._begin()["commit"]
        self.folder = self.state.folder
        self.saved = {base: files_of(project)}
        for name in IGNORED:
            place = self.folder / name
            place.parent.mkdir(exist_ok=True)
            place.write_text(name)
        return str(base)

    def teardown(self) -> None:
        if hasattr(self, "state"):
            self.state.tree.unlock()
            shutil.rmtree(self.top)

    def _clear(self, place: Path) -> bool:
        """Remove what is at a place; return whether the place can be written."""
        for parent in place.relative_to(self.folder).parents:
            above = self.folder / parent
            if above.is_symlink() or (above.exists() and not above.is_dir()):
                above.unlink()
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        elif place.is_symlink() or place.exists():
            place.unlink()
        place.parent.mkdir(parents=True, exist_ok=True)
        return True

    @rule(name=st.sampled_from(NAMES), content=CONTENTS, executable=st.booleans())
    def write(self, name: str, content: bytes, executable: bool) -> None:
        place = self.folder / name
        self._clear(place)
        place.write_bytes(content)
        place.chmod(0o755 if executable else 0o644)

    @rule(name=st.sampled_from(NAMES), content=CONTENTS)
    def write_the_same_second(self, name: str, content: bytes) -> None:
        """A change of equal size and time, which an index could miss."""
        place = self.folder / name
        if place.is_file() and not place.is_symlink():
            before = place.stat()
            place.write_bytes((content + place.read_bytes())[: before.st_size])
            os.utime(place, ns=(before.st_atime_ns, before.st_mtime_ns))

    @rule(name=st.sampled_from(NAMES))
    def delete(self, name: str) -> None:
        self._clear(self.folder / name)

    @rule(name=st.sampled_from(NAMES), to=st.sampled_from(NAMES))
    def rename(self, name: str, to: str) -> None:
        source = self.folder / name
        if source.is_file() and not to.startswith(f"{name}/"):
            content = source.read_bytes()
            source.unlink()
            self._clear(self.folder / to)
            (self.folder / to).write_bytes(content)

    @rule(name=st.sampled_from(NAMES), to=st.sampled_from(["a", "sub", "/etc", "missing", ".."]))
    def link(self, name: str, to: str) -> None:
        self._clear(self.folder / name)
        (self.folder / name).symlink_to(to)

    @rule(name=st.sampled_from(["sub", "a", "lib"]), commit=st.booleans())
    def nested_repository(self, name: str, commit: bool) -> None:
        place = self.folder / name
        if not place.is_dir() or place.is_symlink():
            self._clear(place)
            place.mkdir()
        (place / "inner.txt").write_text("inner")
        subprocess.run(["git", "init", "-q"], cwd=place, check=True, capture_output=True)
        if commit:
            words = [
                "git",
                "-c",
                "user.name=a",
                "-c",
                "user.email=a@b",
                "commit",
                "-qam",
                "x",
                "--allow-empty",
            ]
            subprocess.run(words, cwd=place, check=True, capture_output=True)

    @rule(
        text=st.sampled_from(["", "*\n", "a\nsub/\n", "!*.log\n"]),
        where=st.sampled_from(["", "sub/"]),
    )
    def rewrite_gitignore(self, text: str, where: str) -> None:
        place = self.folder / f"{where}.gitignore"
        self._clear(place)
        place.write_text(text)

    @rule(text=st.sampled_from(["* text eol=lf\n", "* filter=evil ident\n", "* -text\n"]))
    def rewrite_gitattributes(self, text: str) -> None:
        self._clear(self.folder / ".gitattributes")
        (self.folder / ".gitattributes").write_text(text)

    @precondition(lambda self: hasattr(self, "folder"))
    @rule()
    def delete_git(self) -> None:
        shutil.rmtree(self.folder / ".git", ignore_errors=True)

    @rule(name=st.sampled_from(NAMES), executable=st.booleans())
    def change_mode(self, name: str, executable: bool) -> None:
        place = self.folder / name
        if place.is_file() and not place.is_symlink():
            place.chmod(0o755 if executable else 0o644)

    @rule(name=st.sampled_from(["a", "sub/c", "big"]))
    def write_200_megabytes(self, name: str) -> None:
        """A file above the size limit is in no snapshot, and is removed before another one is put in place."""
        place = self.folder / name
        self._clear(place)
        place.touch()
        os.truncate(place, 200_000_000)

    @rule(kind=st.sampled_from(["fifo", "empty"]), name=st.sampled_from(["special", "a", "sub/c"]))
    def special(self, kind: str, name: str) -> None:
        """A folder without files and a pipe are in no snapshot."""
        place = self.folder / name
        self._clear(place)
        if kind == "fifo":
            os.mkfifo(place)
        else:
            place.mkdir()

    @rule(target=snapshots)
    def capture(self) -> str:
        tree = self.state.tree
        before = files_of(self.folder)
        commit = tree.capture("steps/x", str(tree.memory["commit"]))["commit"]
        tree.store.point(f"refs/kept/{commit}", commit)
        self.saved[commit] = before
        return str(commit)

    @rule(commit=snapshots)
    def restore(self, commit: str) -> None:
        tree = self.state.tree
        present = files_of(self.folder)
        tree.restore(commit)
        assert files_of(self.folder) == self.saved[commit]
        assert not (self.folder / "big").exists()
        # What was there is not lost: a snapshot or a ref under `lost` has it.
        expected, kept = (
            present,
            {c for _, c in tree.store.refs(tree.refs).items()} | set(self.saved),
        )
        check = self.top / "check"
        for found in kept:
            shutil.rmtree(check, ignore_errors=True)
            if self.saved.get(found) == expected:
                return
        lost = tree.store.refs(f"{tree.refs}lost/").values()
        for found in lost:
            shutil.rmtree(check, ignore_errors=True)
            tree.store.export(found, check)
            if files_of(check) == expected:
                return
        raise AssertionError("a state is lost")

    @invariant()
    def ignored_files_stay(self) -> None:
        if hasattr(self, "folder"):
            assert (self.folder / "kept.log").read_text() == "kept.log"
            assert (self.folder / "build" / "out.bin").read_text() == "build/out.bin"


Folder.TestCase.settings = settings(
    max_examples=int(os.environ.get("LOOPWRIGHT_RESTORE_EXAMPLES", "8")),
    stateful_step_count=12,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize="LOOPWRIGHT_RESTORE_EXAMPLES" not in os.environ,
)
TestRestore = Folder.TestCase
