"""Attempts to leave the sandbox, as root and as an ordinary user."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from loopwright.tools.sandbox import (
    CACHE_VARIABLES,
    TOOL_VARIABLES,
    Sandbox,
    sandbox_problem,
    sandbox_words,
)  # fmt: skip

PROBLEM = sandbox_problem()
isolated = pytest.mark.skipif(
    bool(PROBLEM) and not os.environ.get("CI"), reason=f"*** NO SANDBOX IS TESTED: {PROBLEM}"
)
NOBODY = 65534
REAL = os.getuid()
USERS = [REAL, NOBODY] if REAL == 0 else [REAL]
# Each line is one attempt; whoever succeeds prints its name. Nothing is changed that was not so before.
ATTEMPTS = r"""
import ctypes, os, signal, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
home, outside, process = os.fsencode(sys.argv[1]), os.fsencode(sys.argv[2]), int(sys.argv[3])
REMOUNT, BIND, DETACH, NEWUSER, NEWNS, PTRACE_ATTACH = 0x20, 0x1000, 2, 0x10000000, 0x20000, 16
def written(path, data=b""):
    try:
        with open(path, "r+b" if data == b"" else "wb") as file:
            file.write(data)
        return True
    except OSError:
        return False
def attempts(as_root):
    return {
        "remount": libc.mount(None, b"/", None, REMOUNT | BIND, None) == 0 and written(outside + b"/a", b"x"),
        "remount of the folder": libc.mount(None, outside, None, REMOUNT | BIND, None) == 0,
        "umount of the home folder": libc.umount2(home, DETACH) == 0,
        "umount of everything": libc.umount2(b"/", DETACH) == 0,
        "credentials": os.path.exists(home + b"/.ssh/id_ed25519"),
        "bind mount": not as_root and libc.mount(b"/", b"/tmp", None, BIND, None) == 0,
        "pivot_root": libc.syscall(155, b"/tmp", b"/tmp") == 0,
        "chroot": not as_root and libc.chroot(b"/tmp") == 0,
        "mknod": not as_root and libc.mknod(b"/tmp/disk", 0o60600, os.makedev(8, 0)) == 0,
        "device": any(os.path.exists(f"/dev/{name}") for name in ("sda", "vda", "mem", "kmsg", "fuse")),
        "kernel settings": any(
            written(f"/proc/sys/kernel/{name}") for name in ("core_pattern", "hostname", "modprobe", "panic")
        ),
        "sysrq": os.access("/proc/sysrq-trigger", os.W_OK),
        "cgroup": os.access("/sys/fs/cgroup", os.W_OK),
        "kernel parameters": any(os.access(path, os.W_OK) for path in ("/sys/kernel", "/sys/power/state")),
        "ptrace": libc.ptrace(PTRACE_ATTACH, process, None, None) == 0,
        "root of a process": os.path.exists(f"/proc/{process}/root/etc"),
        "root of the first process": os.path.exists(b"/proc/1/root" + home + b"/.ssh"),
        "module": libc.syscall(313, 0, b"", 0) == 0,
        "write": written(outside + b"/b", b"x") or written("/usr/loopwright-mark", b"x"),
        "terminal": written("/dev/tty"),
    }
found = [name for name, done in attempts(False).items() if done]
# Once more with all capabilities of a namespace of its own.
if libc.unshare(NEWUSER | NEWNS) == 0:
    found += [f"{name} in a namespace" for name, done in attempts(True).items() if done]
for name in found:
    print(name)
"""
OUTSIDE = """
print("credentials" if os.path.exists(home + b"/.ssh/id_ed25519") else "")
print("write" if written(outside + b"/b", b"x") else "")
"""
# In the home folder, each with a token.
NAMES = """
.ssh/id_ed25519 .ssh/config .gnupg/secring.gpg .netrc .pgpass .my.cnf .npmrc .yarnrc.yml .pypirc .git-credentials .gitconfig
.config/git/credentials .aws/credentials .aws/sso/cache/a.json .azure/msal_token_cache.json .config/gcloud/credentials.db
.config/gcloud/application_default_credentials.json .kube/config .docker/config.json .config/gh/hosts.yml
.config/glab-cli/config.yml .config/hub .config/op/config .config/rclone/rclone.conf .config/doctl/config.yaml
.config/hcloud/cli.toml .config/heroku/a .fly/config.yml .vercel/auth.json .config/netlify/config.json .databrickscfg
.snowflake/config.toml .terraform.d/credentials.tfrc.json .vault-token .cargo/credentials.toml .gem/credentials
.m2/settings.xml .gradle/gradle.properties .config/composer/auth.json .password-store/a.gpg .local/share/keyrings/login.keyring
.mozilla/firefox/a/logins.json .config/google-chrome/Default/Cookies .config/chromium/Default/Cookies
.config/BraveSoftware/a/Cookies .config/microsoft-edge/a/Cookies .thunderbird/a/logins.json .config/Code/User/a
.config/Signal/config.json .config/Slack/Cookies .claude/.credentials.json .claude.json .codex/auth.json
.gemini/oauth_creds.json .qwen/oauth_creds.json .local/share/opencode/auth.json .config/github-copilot/hosts.json
.cursor/auth.json .aider.conf.yml .cache/huggingface/token .huggingface/token .bash_history .zsh_history .env
.config/loopwright/config.yaml .local/state/loopwright/trusted/a .wallet/key .electrum/wallets/a .config/sops/age/keys.txt
"""
CREDENTIALS = NAMES.split()
SOCKETS = (
    ".1password/agent.sock",
    ".colima/docker.sock",
    ".docker/run/docker.sock",
    ".ssh/agent.sock",
)
READ = r"""
import socket, sys
for path in sys.stdin.read().split("\n"):
    kind, path = path[:1], path[1:]
    try:
        if kind == "s":
            socket.socket(socket.AF_UNIX).connect(path)
        else:
            open(path, "rb").close()
        print(path)
    except OSError:
        pass
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that everybody can enter, outside of the temporary files: a home folder, a working one, another one."""
    folder = Path(tempfile.mkdtemp(dir="/var/tmp"))
    for name in (".", "home", "work", "other"):
        (folder / name).mkdir(exist_ok=True)
        (folder / name).chmod(0o777)
    yield folder
    shutil.rmtree(folder)


def run(user: int, words: list[str], stdin: str = "") -> list[str]:
    """Return the lines that a command prints as a user."""
    python = shutil.which("python3", path="/usr/bin:/bin") or sys.executable
    command = [python if word == "python" else word for word in words]
    if user != REAL:
        command = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *command]
    done = subprocess.run(
        command, capture_output=True, text=True, input=stdin, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")[:-1]


@pytest.fixture(params=USERS, ids=["root" if user == 0 else "user" for user in USERS])
def user(request: pytest.FixtureRequest, place: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """An account whose home folder is `home`."""
    monkeypatch.setenv("HOME", str(place / "home"))
    if request.param == NOBODY:
        # A user cannot read the environment of root, and needs none of it here.
        monkeypatch.setattr(os, "getuid", lambda: NOBODY)
        monkeypatch.setattr(os, "geteuid", lambda: NOBODY)
        monkeypatch.setattr(sys, "prefix", "/usr")
        monkeypatch.setattr(sys, "base_prefix", "/usr")
        monkeypatch.setattr(sys, "executable", "/usr/bin/python3")
        monkeypatch.setenv("PATH", "/usr/bin:/bin")
        for name in (*CACHE_VARIABLES, *TOOL_VARIABLES):
            monkeypatch.delenv(name, raising=False)
    return int(request.param)


def planted(folder: Path, names: list[str], user: int) -> list[str]:
    for name in names:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("secret")
    if user != REAL:
        subprocess.run(["chown", "-R", str(user), str(folder)], check=True)
    return [f"f{folder / name}" for name in names]


@isolated
def test_a_command_cannot_leave_the_sandbox(user: int, place: Path) -> None:
    """Neither mounts, devices, settings of the kernel, other processes nor a namespace of its own lead outside."""
    planted(place / "home", [".ssh/id_ed25519"], user)
    with subprocess.Popen(["sleep", "60"]) as process:
        arguments = [str(place / "home"), str(place / "other"), str(process.pid)]
        # Root has to be safe without a user namespace too; for others bubblewrap makes one in any case.
        for namespace in (True, False) if user == 0 else (True,):
            words = sandbox_words(Sandbox("bubblewrap"), place / "work", namespace=namespace)
            assert run(user, [*words, "python", "-c", ATTEMPTS, *arguments]) == []
        process.kill()
    assert list((place / "other").iterdir()) == []
    # The two that change nothing here succeed outside, so the list is not empty by mistake.
    outside = ATTEMPTS[: ATTEMPTS.index("found =")] + OUTSIDE
    assert run(user, ["python", "-c", outside, *arguments]) == ["credentials", "write"]


@isolated
def test_no_credential_of_the_home_folder_can_be_read(user: int, place: Path) -> None:
    """The home folder is empty but for what the toolchain needs: files with keys and sockets are out of reach."""
    home = place / "home"
    wanted = planted(home, CREDENTIALS, user)
    # Another program of the system, where this test can stand for one.
    run_folder = Path(f"/run/loopwright-{os.getpid()}")
    places = [home / name for name in SOCKETS]
    places += [run_folder / "other.sock"] if os.access("/run", os.W_OK) else []
    servers = []
    for address in places:
        address.parent.mkdir(parents=True, exist_ok=True)
        servers.append(server := socket.socket(socket.AF_UNIX))
        server.bind(str(address))
        server.listen()
        address.chmod(0o777)
        wanted.append(f"s{address}")
    servers.append(abstract := socket.socket(socket.AF_UNIX))
    abstract.bind(f"\0loopwright-{os.getpid()}")
    abstract.listen()
    assert len(CREDENTIALS) >= 60
    try:
        assert len(run(user, ["python", "-c", READ], "\n".join(wanted))) == len(wanted)
        words = sandbox_words(Sandbox("bubblewrap"), place / "work")
        assert run(user, [*words, "python", "-c", READ], "\n".join(wanted)) == []
        # Abstract sockets belong to the network, which an agent has and a check has not.
        connect = (
            f"import socket; socket.socket(socket.AF_UNIX).connect('\\0loopwright-{os.getpid()}')"
        )
        run(user, [*words, "python", "-c", connect])
        words = sandbox_words(Sandbox("bubblewrap", network=False), place / "work")
        refused = f"try:\n {connect}\nexcept OSError:\n print('refused')"
        assert run(user, [*words, "python", "-c", refused]) == ["refused"]
    finally:
        for server in servers:
            server.close()
        shutil.rmtree(run_folder, ignore_errors=True)


@isolated
def test_an_agent_can_begin_a_sandbox_of_its_own(user: int, place: Path) -> None:
    """Claude Code runs its shell in one, with mount points in `.git`; root cannot give it a /proc of its own."""
    (place / "work" / ".git").mkdir(mode=0o777)
    words = sandbox_words(Sandbox("bubblewrap"), place / "work")
    if "--unshare-user" not in words:
        pytest.skip("NOT TESTED: this system permits no user namespace")
    inner = ["bwrap", "--ro-bind", "/", "/", "--bind", str(place / "work"), str(place / "work")]
    inner += ["--ro-bind", "/dev/null", str(place / "work" / ".git" / "modules")]
    inner += ["--dev", "/dev", "--unshare-pid", *(["--proc", "/proc"] if user else [])]
    assert run(user, [*words, *inner, "echo", "inside"]) == ["inside"]
    assert list((place / "work" / ".git").iterdir()) == []
