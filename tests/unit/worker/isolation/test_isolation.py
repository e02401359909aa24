"""How a command becomes one in a sandbox."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kestrelctl.worker.isolation.bubblewrap import Bubblewrap
from kestrelctl.worker.isolation.file_view import FileView
from kestrelctl.worker.isolation.namespace import Namespace
from kestrelctl.worker.isolation.rung import InitReport, Launch, Start, TaskLimits, told_code
from kestrelctl.worker.run.scratch_size import ScratchSize
from kestrelctl.worker.run.variables import CONSISTS_OF, own_directories

ENV = {"PATH": "/usr/bin:/bin", "LD_PRELOAD": "/evil.so", "KESTREL_ATTEMPT_ID": "7"}


def bubblewrap(tmp_path: Path, *, init: str = "", **env: str) -> tuple[Launch, list[str]]:
    """What would be spawned, and the options that bwrap would read."""
    rung = Bubblewrap(FileView(tmp_path), "/usr/bin/bwrap", init)
    launch = rung.launch(str(tmp_path), Start("/bin/sh", ("sh", "-c", "x"), env, TaskLimits()))
    return launch, launch.options.decode().split("\0")


def test_nothing_of_a_job_s_environment_reaches_bwrap_itself(tmp_path: Path) -> None:
    launch, options = bubblewrap(tmp_path, **ENV)
    assert launch.env == {"KESTREL_ATTEMPT_ID": "7"}
    assert launch.argv == ("bwrap", "--args", "3", "--", "/bin/sh", "-c", "x")
    place = options.index("LD_PRELOAD")
    assert options[place - 1 : place + 2] == ["--setenv", "LD_PRELOAD", "/evil.so"]
    assert "--clearenv" in options[: place - 1]


def test_what_tells_the_linker_or_a_shell_something_is_for_the_task_alone(tmp_path: Path) -> None:
    rung = Namespace("/usr/bin/unshare")
    env = {**ENV, "ENV": "/evil", "BASH_ENV": "/evil"}
    launch = rung.launch(str(tmp_path), Start("/bin/sh", ("sh", "-c", "x"), env, TaskLimits()))
    assert launch.env == {"PATH": "/usr/bin:/bin", "KESTREL_ATTEMPT_ID": "7"}
    assert launch.argv[-7:] == (
        *("--", "LD_PRELOAD=/evil.so", "ENV=/evil", "BASH_ENV=/evil"),
        *("/bin/sh", "-c", "x"),
    )


def test_a_secret_whose_name_begins_like_that_of_a_shell_s_variable_is_on_no_command_line(
    tmp_path: Path,
) -> None:
    """Everybody on the machine can read a command line (proc_pid_cmdline(5))."""
    env = {"ENVIRONMENT_TOKEN": "t", "LOCPATHS": "l", "IFS_KEY": "i", "PS4_PASSWORD": "p"}
    launch = Namespace("/usr/bin/unshare").launch(
        str(tmp_path), Start("/bin/sh", ("sh", "-c", "x"), env, TaskLimits())
    )
    assert launch.env == env
    assert launch.argv[-3:] == ("/bin/sh", "-c", "x")
    assert not any("=" in word for word in launch.argv)


def test_our_program_is_the_first_of_a_namespace_where_it_was_built(tmp_path: Path) -> None:
    launch, options = bubblewrap(tmp_path, init="/our/init")
    first = "/proc/self/fd/5"
    assert launch.argv == ("bwrap", "--args", "3", "--", first, "/bin/sh", "-c", "x")
    assert (launch.init, launch.has_status) == ("/our/init", True)
    assert "--as-pid-1" in options
    rung = Namespace("/usr/bin/unshare", "/our/init")
    launch = rung.launch(str(tmp_path), Start("/bin/sh", ("sh", "-c", "x"), {}, TaskLimits()))
    assert launch.argv[-5:] == ("--", first, "/bin/sh", "-c", "x")
    assert (launch.init, launch.has_status) == ("/our/init", True)


@pytest.mark.parametrize(
    ("told", "report"),
    [
        (b"", None),
        (b"exited 0\n", None),
        (b"began\n", InitReport()),
        (b"began\nexited 0\n", InitReport(0)),
        (b"began\nexited 137\n", InitReport(137)),
        (b"began\nkilled 9\n", InitReport(-9)),
        (b"began\nfailed 2 /no/such\nexited 127\n", InitReport(None, 2, "/no/such")),
        (
            b"began\nfailed 8 /a\nexited 1\n/b\nexited 127\n",
            InitReport(None, 8, "/a\nexited 1\n/b"),
        ),
        (b"began\nkilled -9\n", InitReport()),
        (b"began\nrubbish", InitReport()),
        (b"began\nexited " + b"1" * 5000 + b"\n", InitReport()),
        (b"began\nfailed 99999999999 /a\nexited 127\n", InitReport()),
        (b"began\nexited 0\n" + b" " * 9000, None),
    ],
)
def test_what_the_first_of_a_namespace_tells(
    tmp_path: Path, told: bytes, report: InitReport | None
) -> None:
    (tmp_path / "sandbox-status").write_bytes(told)
    assert InitReport.read(str(tmp_path)) == report


def _link(status: Path, told: Path) -> None:
    status.symlink_to(told)


def _name_again(status: Path, told: Path) -> None:
    status.hardlink_to(told)


def _make_fifo(status: Path, told: Path) -> None:
    """Makes one from which whoever waits for something reads what another one tells."""

    def tell() -> None:
        with contextlib.suppress(OSError):  # nobody waits
            status.write_bytes(told.read_bytes())

    os.mkfifo(status)
    threading.Thread(target=tell, daemon=True).start()


@pytest.mark.parametrize("put", [_link, _name_again, _make_fifo])
def test_what_a_task_puts_in_the_place_of_what_its_sandbox_tells_is_not_read(
    tmp_path: Path, put: Callable[[Path, Path], None]
) -> None:
    told, status = tmp_path / "told", tmp_path / "sandbox-status"
    told.write_bytes(b"began\nexited 5\n")
    put(status, told)
    assert InitReport.read(str(tmp_path)) is None


@pytest.mark.parametrize("env", [{"A": "x\0--bind\0/\0/"}, {"A\0--bind\0/\0/": "x"}, {"A=B": ""}])
def test_a_nul_in_an_environment_is_refused(tmp_path: Path, env: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"null byte|variable name"):
        bubblewrap(tmp_path, **env)


def test_secrets_are_hidden_even_in_what_is_shared(tmp_path: Path) -> None:
    data, shared, home = (tmp_path / name for name in ("data", "shared", "home"))
    for directory in (data, shared, home, shared / "keys"):
        directory.mkdir()
    (shared / "credentials").touch()
    secrets = [shared / "credentials", shared / "keys", data / "inside", tmp_path / "missing"]
    view = FileView(data, [shared], secrets, home)
    words = view.before_scratch()
    opened = words.index(str(shared))
    assert words[opened - 1] == "--bind"
    after = words[opened + 2 :]
    assert after[:3] == ["--ro-bind", "/dev/null", str(shared / "credentials")]
    assert after[3:7] == [
        *("--tmpfs", str(shared / "keys")),
        *("--remount-ro", str(shared / "keys")),
    ]
    assert after[7:] == ["--tmpfs", str(data)]
    assert view.shows("/usr/bin/env")
    assert view.shows(str(shared / "program"))
    for hidden in (shared / "credentials", data / "spool", home / "bin", Path("/run/x")):
        assert not view.shows(str(hidden))


def test_a_user_whom_the_machine_does_not_know_has_no_home_to_hide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those are that systemd makes up (DynamicUser=), where libnss-systemd is missing."""

    def unknown(_uid: int) -> None:
        raise KeyError

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown)
    assert "/root" in FileView(tmp_path).before_scratch()


def test_a_link_to_what_is_hidden_shows_nothing(tmp_path: Path) -> None:
    data, shared = tmp_path / "data", tmp_path / "shared"
    for directory in (data, shared):
        directory.mkdir()
    (shared / "link").symlink_to(data / "secret")
    (data / "link").symlink_to("/bin/true")
    view = FileView(data, [shared])
    assert not view.shows(str(shared / "link"))
    assert not view.shows(str(data / "link"))


def test_an_environment_in_a_hidden_home_is_seen_and_not_written(tmp_path: Path) -> None:
    data, home = tmp_path / "data", tmp_path / "home"
    for directory in (data, home / "science" / "bin", home / "private"):
        directory.mkdir(parents=True)
    told = {CONSISTS_OF: f"{home}/science:/usr"}
    view = FileView(data, home=home, shown=own_directories(told))
    assert view.shows(f"{home}/science/bin")
    assert not view.shows(f"{home}/private")
    words = view.before_scratch()
    place = words.index(f"{home}/science")
    assert words[place - 1 : place + 2] == ["--ro-bind", f"{home}/science", f"{home}/science"]
    assert place > words.index(str(home)), "it is hidden first"
    assert "/usr" not in words, "which is seen anyway"


def test_codes_of_shells_for_signals_are_signals() -> None:
    told = {
        0: 0,
        1: 1,
        127: 127,
        128: 128,
        129: -1,
        137: -9,
        143: -15,
        159: -31,
        160: 160,
        255: 255,
    }
    assert {code: told_code(code) for code in told} == told


def test_a_scratch_directory_is_counted_a_little_at_a_time(tmp_path: Path) -> None:
    for number in range(300):
        (tmp_path / str(number)).touch()
    (tmp_path / "link").symlink_to("/usr")
    size = ScratchSize(str(tmp_path))
    seen = [size.advance(0.0)[1] for _ in range(3)]
    assert 0 < seen[0] < seen[1] < seen[2] < 300
    assert size.advance(float("inf"))[1] == 301
    assert size.advance(float("inf"))[1] == 301, "and then anew"
    (tmp_path / "big").write_bytes(b"x" * 100_000)
    assert size.advance(float("inf"))[0] >= 100_000


def test_what_the_machine_keeps_in_tmp_is_not_the_task_s_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until bwrap has made the sandbox, its init still sees the files of the machine."""
    monkeypatch.setattr("kestrelctl.worker.isolation.bubblewrap.init_of", lambda _: os.getpid())
    assert Bubblewrap(FileView(tmp_path), "/usr/bin/bwrap").memory_files_bytes(1) == 0
