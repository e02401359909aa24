"""What the commands of `kestrelctl fleet` do on each host, what they show, and how they end."""

from __future__ import annotations

import base64
import json
import re
import sys
import tarfile
import zlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cli_fake_pool import NOW, FakePool
from cli_fake_pool import run as run_kestrelctl
from click.testing import Result
from fleetkit import Answer, FakeFleet, ran
from paperkit import Full, Paper

from kestrelctl.cli.fleet import hosts as fleethosts
from kestrelctl.cli.fleet.commands import Runs
from kestrelctl.errors import TimedOut, Unreachable, Untrusted
from kestrelctl.fleet import bundle, inventory
from kestrelctl.fleet.fan_out import HostOutcome
from kestrelctl.fleet.host import Host
from kestrelctl.fleet.journal import read_entry
from kestrelctl.fleet.shell import Ran

GONE = Unreachable("b cannot be reached", cause="no route", hint="try ssh root@b")


def unit(name: str, state: str = "active", *, load: str = "loaded", restarts: int = 0) -> str:
    return (
        f"NRestarts={restarts}\nId={name}.service\nLoadState={load}\nActiveState={state}\n"
        f"SubState=x\nStateChangeTimestamp=@{NOW - 65:.0f}\n"
    )


def status_answer(*units: str, free: str = "1073741824") -> dict[str, Answer | None]:
    sections = {
        "units": "\n".join(units),
        "version": "kestrelctl 0.3\n",
        "disk": f"Avail 1B-blocks\n{free} 2147483648\n",
        "load": "0.50 0.40 0.30 1/99 1234\n4\n",
        "certificates": "/etc/prosody/certs/kestrel.crt notAfter=Jan 13 13:46:40 1970 GMT\n",
    }
    told = "".join(f"\n=== {name}\n{text}" for name, text in sections.items())
    return {"date +%s.%N": "1000000.5\n", "=== ": told}


def entry(at: float, message: object, unit: str = "kestrel-worker") -> str:
    return json.dumps(
        {"__REALTIME_TIMESTAMP": str(int(at * 1e6)), "MESSAGE": message, "PRIORITY": "6",
         "_SYSTEMD_UNIT": f"{unit}.service", "_PID": "7"}
    )  # fmt: skip


def run(fleet: FakeFleet, *args: str) -> Result:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inventory, "read_inventory", lambda *_: fleet.hosts)
        patch.setattr(fleethosts, "_connect", lambda: fleet.connect)
        return run_kestrelctl(FakePool(), "fleet", *args)


# -- status ----------------------------------------------------------------------------------------


def test_status_has_a_line_for_each_host_also_for_one_that_is_gone() -> None:
    units = (unit("prosody"), unit("kestrel-manager", restarts=2), unit("x", load="not-found"))
    result = run(FakeFleet(b=GONE, a=status_answer(*units)), "status")
    heading, first, second = (re.split(" {2,}", line) for line in result.stdout.splitlines())
    assert heading == [
        "HOST", "STATE", "VERSION", "LOAD", "DISK FREE", "CLOCK", "CERTIFICATE", "SERVICES",
    ]  # fmt: skip
    services = "prosody active 1m 05s, kestrel-manager active 1m 05s (2 restarts)"
    assert first == ["a", "ok", "0.3", "0.50/4", "1 GiB", "+500 ms", "1d 0h left", services]
    assert second == ["b", "unreachable", "b cannot be reached: no route"]
    assert result.exit_code == 5
    assert result.stderr == (
        "error: 1 of 2 hosts could not be reached: b\n"
        "cause: b cannot be reached: no route\nhint: try ssh root@b\n"
    )


def test_a_host_that_has_not_the_known_key_was_not_reached() -> None:
    result = run(FakeFleet(a=Untrusted("a has another key"), b=status_answer()), "status")
    assert result.stdout.splitlines()[1].split()[:2] == ["a", "unreachable"]
    assert result.exit_code == 5


def test_a_full_disk_is_shown_as_that() -> None:
    result = run(FakeFleet(a=status_answer(free="0"), b=status_answer(free="-")), "status")
    assert [re.split(" {2,}", line)[4] for line in result.stdout.splitlines()[1:]] == [
        "0 B", "+500 ms",
    ], "of the second nothing is known"  # fmt: skip


def test_a_service_that_has_failed_is_a_failure() -> None:
    result = run(FakeFleet(a=status_answer(unit("kestrel-worker", "failed"))), "status")
    assert result.stdout.splitlines()[1].split()[:2] == ["a", "failed"]
    assert result.exit_code == 11
    assert "hint: kestrelctl fleet logs --unit kestrel-worker" in result.stderr


def test_status_for_programs_has_the_same_fields_for_every_host() -> None:
    fleet = FakeFleet(a=status_answer(unit("prosody")), b=GONE)
    first, second = json.loads(run(fleet, "status", "-o", "json").stdout)
    assert set(first) == set(second)
    assert first["units"] == [
        {"name": "prosody", "state": "active", "since": NOW - 65, "restarts": 0}
    ]
    assert (first["error"], first["disk_free_bytes"], first["cpus"]) == (None, 1 << 30, 4)
    assert first["clock_offset_seconds"] == 0.5
    assert second["error"]["code"] == "unreachable"
    assert second["units"] is None


def test_an_answer_that_makes_no_sense_is_the_host_s_failure() -> None:
    fleet = FakeFleet(a={"date": "1000000.5\n", "=== ": "no systemd\n"})
    assert run(fleet, "status").exit_code == 11
    assert run(FakeFleet(a={"date": "noon\n"}), "status").exit_code == 11


@pytest.mark.parametrize(
    ("section", "text"),
    [
        ("certificates", "a.crt notAfter=tomorrow\n"),
        ("load", "much\n4\n"),
        ("disk", "Avail 1B-blocks\n- 2147483648\n"),
        ("disk", f"{'9' * 400} {'9' * 400}\n"),
        ("units", "Id=x.service\nLoadState=loaded\nNRestarts=²\n"),
    ],
)
def test_one_host_s_nonsense_does_not_keep_the_others_from_being_shown(
    section: str, text: str
) -> None:
    answer = status_answer(unit("prosody"))
    told = str(answer["=== "])
    answer["=== "] = re.sub(rf"(=== {section}\n).*?(\n===|\Z)", rf"\g<1>{text}\2", told, flags=re.S)
    result = run(FakeFleet(a=answer, b=status_answer(unit("prosody"))), "status")
    assert [line.split()[:2] for line in result.stdout.splitlines()[1:]][1] == ["b", "ok"]
    assert "should not have happened" not in result.stderr


def test_one_host_s_impossible_clock_does_not_keep_the_others_from_being_shown() -> None:
    answer = status_answer() | {"date +%s.%N": f"{'9' * 400}.5\n"}
    result = run(FakeFleet(a=answer, b=status_answer()), "status")
    assert [line.split()[:2] for line in result.stdout.splitlines()[1:]] == [
        ["a", "failed"], ["b", "ok"],
    ]  # fmt: skip
    assert "should not have happened" not in result.stderr


def test_one_host_s_impossible_numbers_keep_no_other_from_being_restarted() -> None:
    odd = installed("kestrel-worker").replace("NRestarts=0", f"NRestarts={'9' * 5000}")
    good = {"systemctl show": installed("kestrel-worker"), "systemctl restart": ""}
    fleet = FakeFleet(a={**good, "systemctl show": odd}, b=good)
    result = run(fleet, "restart", "--yes")
    assert [line.split()[2] for line in result.stdout.splitlines()[1:]] == ["done", "done"]


@pytest.mark.parametrize(
    "sent",
    [
        b'{"files": 7, "failed": {}}',
        b'{"files": {"a": 7}, "failed": {}}',
        b"[" * 100_000,
        b'{"files": {"a": "' + b"x" * 200_000 + b'"}, "failed": {}}',
    ],
    ids=["no files", "no text", "deep", "huge"],
)
def test_one_host_s_nonsense_does_not_spoil_a_bundle(
    tmp_path: Path, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle, "MAX_COLLECTED_BYTES", 200_000)
    good = zlib.compress(b'{"files": {"a": "x"}, "failed": {}}')
    fleet = FakeFleet(
        a={"python3": base64.b64encode(zlib.compress(sent)).decode(), "systemctl": unit("prosody")},
        b={"python3": base64.b64encode(good).decode(), "systemctl": unit("prosody")},
    )
    file = tmp_path / "x.tar.gz"
    result = run(fleet, "bundle", "-d", str(file))
    assert result.exit_code == 11
    assert "what it sent cannot be read" in result.stderr
    with tarfile.open(file) as archive:
        assert sorted(archive.getnames()) == ["x/b/a", "x/index.json"]


@pytest.mark.parametrize("message", [[300], [1, "x"], {"a": 1}])
def test_a_journal_with_nonsense_goes_on(message: object) -> None:
    assert read_entry("a", "[]") is None
    assert read_entry("a", "[" * 100_000) is None
    for at in ("9" * 400, "9" * 5000, "9" * 19, "-1"):
        assert read_entry("a", json.dumps({"__REALTIME_TIMESTAMP": at})) is None
    found = read_entry("a", json.dumps({"__REALTIME_TIMESTAMP": "1", "_PID": "9" * 5000}))
    assert found is not None
    assert found.pid is None
    read_entry("a", entry(1.0, message))


# -- run -------------------------------------------------------------------------------------------


def test_run_shows_what_each_host_wrote_under_its_name() -> None:
    result = run(FakeFleet(a={"uname": ran("Linux\n", stderr="hm\n")}), "run", "--", "uname", "-s")
    assert (result.stdout, result.stderr) == ("==> a <==\nLinux\n", "a: hm\n")
    assert result.exit_code == 0


def test_a_status_that_is_not_0_is_shown_and_ends_with_11() -> None:
    result = run(FakeFleet(a={"false": ran("x", status=3)}), "run", "--", "false")
    assert result.stdout == "==> a: status 3 <==\nx\n"
    assert result.exit_code == 11


def test_words_of_a_command_stay_words() -> None:
    fleet = FakeFleet(a={"": ""})
    run(fleet, "run", "--timeout", "2m", "--", "sh", "-c", "a | b")
    assert fleet.shells["a"].commands == [("sh -c 'a | b'", False, 120.0)]


def test_what_a_host_says_of_an_error_tells_our_terminal_nothing() -> None:
    evil = "\x1b]0;title\x07\x1b[2Jgone\n\u202eb\n"
    result = run(FakeFleet(a={"uname": ran("", stderr=evil)}), "run", "--", "uname")
    assert result.stderr == "a: \\x1b]0;title\\x07\\x1b[2Jgone\na: \\u202eb\n"


async def test_errors_of_a_host_that_nobody_can_read_stop_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What runs on hosts is ended when the command is."""

    async def outcomes() -> AsyncIterator[HostOutcome[Ran]]:
        yield HostOutcome("a", value=ran("one\n", stderr="hm\n"))
        yield HostOutcome("b", value=ran("two\n"))

    paper = Paper(terminal=False)
    monkeypatch.setattr(sys, "stderr", Full())
    await Runs(outcomes()).tabulate(paper)
    assert paper.text == "==> a <==\none\n==> b <==\ntwo\n"


def test_run_is_root_where_it_was_asked_for_or_the_inventory_says_so() -> None:
    fleet = FakeFleet(a={"": ""}, b={"": ""})
    fleet.hosts[1] = Host("b", "b", become=True)
    run(fleet, "run", "--", "id")
    assert [fleet.shells[name].commands[0][1] for name in "ab"] == [False, True]
    run(fleet, "run", "--sudo", "--", "id")
    assert fleet.shells["a"].commands[0][1]


def test_run_for_programs() -> None:
    fleet = FakeFleet(a={"": TimedOut("a took longer than 1 s")})
    (found,) = json.loads(run(fleet, "run", "-o", "json", "--", "sleep", "9").stdout)
    assert (found["host"], found["status"], found["error"]["code"]) == ("a", None, "timed-out")


# -- logs ------------------------------------------------------------------------------------------


def test_logs_of_all_hosts_are_merged_by_time() -> None:
    fleet = FakeFleet(
        a={"journalctl": f"{entry(1, 'one')}\n{entry(3, 'three')}\n"},
        bb={"journalctl": f"{entry(2, [116, 119, 111])}\nnoise\n"},
    )
    lines = run(fleet, "logs").stdout.splitlines()
    assert [line.split()[0] + " " + line.split()[-1] for line in lines] == [
        "a one", "bb two", "a three",
    ]  # fmt: skip
    assert lines[0].startswith("a   19")
    assert lines[0].endswith("kestrel-worker[7]: one")


def test_each_line_of_a_message_has_its_host() -> None:
    fleet = FakeFleet(a={"journalctl": entry(1, "Traceback:\n  here\x1b[31m")})
    first, second = run(fleet, "logs").stdout.splitlines()
    assert first.endswith("Traceback:")
    assert second.startswith("a ")
    assert second.endswith("  here\\x1b[31m")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "--lines=100"),
        (("--since", "-1h"), "--lines=all --since=-1h"),
        (("-n", "5", "--since", "today"), "--lines=5 --since=today"),
        (("-f", "-n", "0"), "--lines=0 --follow"),
        (("--unit", "prosody"), "--unit=prosody.service --lines=100"),
        (("--unit", "prosody.service"), "--unit=prosody.service --lines=100"),
    ],
)
def test_journalctl_is_asked_for_what_was_asked_for(options: tuple[str, ...], words: str) -> None:
    fleet = FakeFleet(a={"journalctl": ""})
    assert run(fleet, "logs", *options).exit_code == 0
    assert fleet.shells["a"].commands[0][0].endswith(words)


def test_following_goes_on_with_the_others_when_a_host_is_gone() -> None:
    result = run(FakeFleet(a={"journalctl": entry(1, "one")}, b=GONE), "logs", "-f")
    assert result.stdout.endswith("one\n")
    assert "warning: nothing more from b" in result.stderr
    assert result.exit_code == 5


# -- restart ---------------------------------------------------------------------------------------


def installed(*names: str) -> str:
    return "\n".join(unit(name) for name in names)


def test_managers_are_restarted_before_workers() -> None:
    both = {
        "systemctl show": installed("kestrel-worker", "kestrel-manager"),
        "systemctl restart": "",
    }
    worker = {"systemctl show": installed("kestrel-worker"), "systemctl restart": ""}
    result = run(FakeFleet(a=both, b=worker), "restart", "--yes", "-o", "jsonl")
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert (found[0]["host"], found[0]["unit"]) == ("a", "kestrel-manager")
    assert sorted(each["host"] for each in found[1:]) == ["a", "b"]
    assert {each["state"] for each in found} == {"done"}
    assert result.exit_code == 0


def test_after_a_failure_the_other_hosts_are_left_alone() -> None:
    failing = {
        "systemctl show": installed("kestrel-worker"),
        "systemctl restart": ran(status=1, stderr="no such user\n"),
    }
    good = {"systemctl show": installed("kestrel-worker"), "systemctl restart": ""}
    result = run(FakeFleet(a=failing, b=good), "restart", "--yes", "--serial", "1")
    assert [line.split()[:3] for line in result.stdout.splitlines()[1:]] == [
        ["a", "kestrel-worker", "failed"],
        ["b", "kestrel-worker", "skipped"],
    ]
    assert "kestrel-worker did not become active: no such user" in result.stdout
    assert result.exit_code == 11


def test_after_a_manager_that_failed_workers_are_left_alone() -> None:
    failing = {
        "systemctl show": installed("kestrel-manager"),
        "systemctl restart": ran(status=1, stderr="no such option\n"),
    }
    good = {"systemctl show": installed("kestrel-worker"), "systemctl restart": ""}
    result = run(FakeFleet(m=failing, w=good), "restart", "--yes")
    assert [line.split()[:3] for line in result.stdout.splitlines()[1:]] == [
        ["m", "kestrel-manager", "failed"],
        ["w", "kestrel-worker", "skipped"],
    ]
    assert result.exit_code == 11


def test_a_restart_that_cannot_ask_does_nothing() -> None:
    fleet = FakeFleet(a={"systemctl show": installed("kestrel-worker")})
    result = run(fleet, "restart")
    assert result.exit_code == 2
    assert "hint: --yes" in result.stderr


@pytest.mark.parametrize("name", ["prosody", "prosody.service"])
def test_a_service_may_be_named_with_its_ending(name: str) -> None:
    fleet = FakeFleet(a={"systemctl show": unit("prosody", load="not-found")})
    run(fleet, "restart", "--yes", "--unit", name)
    assert fleet.shells["a"].commands[0][0].endswith(" prosody.service")


def test_hosts_without_the_service_are_an_error() -> None:
    fleet = FakeFleet(a={"systemctl show": unit("kestrel-worker", load="not-found")})
    assert run(fleet, "restart", "--yes").exit_code == 2


# -- bundle ----------------------------------------------------------------------------------------


def packed(**files: str) -> str:
    data = {"files": files, "failed": {"versions/prosody.txt": "prosodyctl is not there"}}
    return base64.b64encode(zlib.compress(json.dumps(data).encode())).decode() + "\n"


def test_a_bundle_has_a_directory_for_each_host_and_an_index(tmp_path: Path) -> None:
    path = tmp_path / "report.tar.gz"
    host = {"systemctl show": "", "python3": packed(**{"a.txt": "hi", "../../evil": "no"})}
    result = run(FakeFleet(a=host, b=GONE), "bundle", "-d", str(path))
    assert result.exit_code == 5
    assert path.stat().st_mode & 0o777 == 0o600
    with tarfile.open(path) as archive:
        assert set(archive.getnames()) == {"report/a/a.txt", "report/a/evil", "report/index.json"}
        index = archive.extractfile("report/index.json")
        assert index is not None
        hosts = json.load(index)["hosts"]
    assert hosts["a"]["failed"] == {"versions/prosody.txt": "prosodyctl is not there"}
    assert hosts["b"] == {"error": "b cannot be reached", "cause": "no route"}


def test_a_bundle_does_not_overwrite_anything(tmp_path: Path) -> None:
    path = tmp_path / "report.tar.gz"
    path.write_text("mine")
    assert run(FakeFleet(a={}), "bundle", "-d", str(path)).exit_code == 2
    assert path.read_text() == "mine"


# -- all -------------------------------------------------------------------------------------------


def test_without_fabric_there_is_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fabric", None)
    monkeypatch.delitem(sys.modules, "kestrelctl.fleet.ssh", raising=False)
    result = run_kestrelctl(FakePool(), "fleet", "status")
    assert result.exit_code == 9
    assert re.search("hint: .* install fabric ansible-core\n", result.stderr)


def test_options_of_ssh_that_are_not_followed_are_named() -> None:
    fleet = FakeFleet(a={"": ""})
    fleet.hosts[0] = Host("a", "a", ignored=("-F /config",))
    result = run(fleet, "run", "--", "true")
    assert "warning: the SSH option '-F /config' of the inventory is not followed" in result.stderr
