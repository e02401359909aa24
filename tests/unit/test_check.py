"""What `./kestrel test` runs, in which order things take turns, and what it prints."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import check
import debian_13
import due_scenarios
import pytest
from check import (
    FULL,
    ON_ALL_PROCESSORS,
    ORDINARY,
    Check,
    Count,
    Plan,
    Stage,
    clock,
    counted,
    for_pytest,
    has_played_all,
    plan_of,
)
from turns import CHECKOUT, commit_number, rotated

PASSES, FAILS = (
    f"{sys.executable} -c 'print(\"{said}\"); raise SystemExit({status})'"
    for said, status in (("3 passed in 0.12s", 0), ("1 failed, 2 passed in 9.00s", 1))
)


def commands(plan: Plan) -> str:
    return "\n".join(command for stage in plan.stages for command in stage.commands)


# -- what is run ---------------------------------------------------------------------------------


def test_pytest_goes_into_every_directory_that_has_tests(pytestconfig: pytest.Config) -> None:
    """Those of `unit/bench` were left out by the name of their directory, and nobody saw it."""
    tests = CHECKOUT / "tests"
    found = {file.parent.relative_to(tests) for file in tests.rglob("test_*.py")}
    names = {name for directory in found for name in directory.parts}
    assert {"unit", "bench"} <= names
    patterns = pytestconfig.getini("norecursedirs")
    assert [name for name in names for each in patterns if fnmatch(name, each)] == []


def test_each_directory_of_tests_is_in_the_ordinary_check_or_needs_hosts() -> None:
    in_a_stage = {"unit", "property", "simulation", "roles", "planted"}
    marked_as_processes = {
        file.relative_to(CHECKOUT / "tests").parts[0]
        for file in (CHECKOUT / "tests").rglob("test_*.py")
    } - in_a_stage
    assert all(f"tests/{name}" in commands(ORDINARY) for name in in_a_stage)
    assert "-m 'processes and not lab'" in commands(ORDINARY)
    assert marked_as_processes == {"integration", "chaos", "dashboards", "lab"}


def test_the_full_check_adds_hosts_and_plants_more() -> None:
    added = {stage.name for stage in FULL.stages} - {stage.name for stage in ORDINARY.stages}
    assert added == {"hosts", "debian 13"}
    assert "--planted twelfth" in commands(ORDINARY)
    assert "--planted third" in commands(FULL)
    without = [stage for stage in FULL.stages if stage.name not in {*added, "planted"}]
    assert all(stage in ORDINARY.stages for stage in without)


def test_three_commits_try_each_file_of_processes_on_debian_13() -> None:
    parts = [set(debian_13.files_in_turn(turn)) for turn in range(debian_13.PARTS)]
    everything = set().union(*parts)
    assert {"tests/integration/test_tls.py", "tests/chaos/test_down.py"} <= everything
    assert sum(map(len, parts)) == len(everything), "none of them twice"
    assert all(CHECKOUT.joinpath(file).is_file() for file in everything)


def test_real_processes_have_the_right_of_way() -> None:
    nice = {stage.name: stage.nice for stage in FULL.stages if stage.name != "debian 13"}
    assert min(nice, key=lambda name: nice[name]) == "processes"
    assert nice["unit"] > nice["hosts"] > nice["processes"]


def test_other_words_are_for_pytest() -> None:
    assert plan_of(["tests/unit", "-k", "full"]) is None
    assert for_pytest(["tests/unit/test_check.py", "-x"]) == ["tests/unit/test_check.py", "-x"]


def test_a_room_stands_for_its_unit_tests() -> None:
    assert for_pytest(["flock", "-x"]) == ["tests/unit/flock", "-x"]
    assert for_pytest(["core/model"]) == [*ON_ALL_PROCESSORS, "tests/unit/core/model"]
    assert for_pytest(["core", "-x"]) == ["tests/unit/core", "-x"], "as pytest is told"
    assert for_pytest(["kestrel"]) == ["kestrel"]


@pytest.mark.parametrize("room", ["core", "manager", "worker", "cli", "store", "flock", "bench"])
def test_each_large_room_has_tests_of_its_own(room: str) -> None:
    *_, directory = for_pytest([room])
    assert len(list((CHECKOUT / directory).rglob("test_*.py"))) > 5


# -- what is printed -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "count"),
    [
        ("...\n3 passed in 0.12s", Count(3)),
        ("1 failed, 20 passed, 2 skipped, 1 error in 61.50s (0:01:01)", Count(20, 2, 2)),
        ("12 passed, 5 deselected in 3.00s", Count(12)),
        ("it died", Count()),
    ],
)
def test_tests_are_counted_by_the_last_line_of_pytest(said: str, count: Count) -> None:
    assert counted(said) == count


def test_a_stage_that_passes_is_one_line(tmp_path: Path) -> None:
    printed: list[str] = []
    made = Check(printed.append, tmp_path)
    made.run(Plan([Stage("unit", (PASSES, PASSES)), Stage("lint", ("true",), "checks")]))
    assert [line.split()[0::2] for line in printed] == [["unit", "3"], ["lint", "1"]]
    assert (made.failed, made.count) == ([], Count(4))


def test_of_a_stage_that_fails_the_end_is_shown_and_the_others_go_on(tmp_path: Path) -> None:
    printed: list[str] = []
    made = Check(printed.append, tmp_path)
    made.run(Plan([Stage("unit", (FAILS,)), Stage("planted", (PASSES,))]))
    assert made.failed == ["unit"]
    assert made.count == Count(5, 1)
    assert "1 failed, 2 passed in 9.00s" in printed[1]
    assert printed[1].endswith(str(tmp_path / "unit.txt"))
    assert printed[2].startswith("planted")


def test_of_pytest_the_failures_are_shown_without_the_progress_before_them() -> None:
    said = "....F  [ 99%]\n=== FAILURES ===\n___ test_it ___\nE  assert 1 == 2\n1 failed in 1.00s"
    assert check.failures(said) == said.partition("\n")[2]
    assert check.failures("no space left") == "no space left"
    assert len(check.failures("line\n" * 1000).splitlines()) == check.END_LINES


def test_a_stage_fails_if_any_of_its_commands_does(tmp_path: Path) -> None:
    made = Check(lambda line: None, tmp_path)
    made.run(Plan([Stage("lint", ("false", "true"), "checks")]))
    assert (made.failed, made.count) == (["lint"], Count(1, 1))


def test_a_stage_is_nice_to_other_sessions_too(tmp_path: Path) -> None:
    """Where there is such a file, each session has its share of the processors."""
    shares = "/proc/self/autogroup"
    looks = f"for n in $(seq 1000); do grep -q 'nice 12' {shares} && break; done; cat {shares}"
    command = f'sh -c "nice; if test -e {shares}; then {looks}; fi"'
    Check(lambda _: None, tmp_path).run(Plan([Stage("gentle", (command,), nice=12)]))
    _, own, *session = (tmp_path / "gentle.txt").read_text().splitlines()
    assert own == str(min(os.nice(0) + 12, 19))
    assert all(line.endswith("nice 12") for line in session)


def test_no_more_stages_run_at_once_than_the_plan_allows(tmp_path: Path) -> None:
    alone = Stage(
        "alone", (f"sh -c 'mkdir {tmp_path}/turn && sleep 0.05 && rmdir {tmp_path}/turn'",)
    )
    made = Check(lambda _: None, tmp_path)
    made.run(Plan([alone, alone._replace(name="next"), alone._replace(name="last")]))
    assert made.failed == []


def test_on_two_processors_one_stage_runs_beside_the_hosts() -> None:
    assert FULL.stages[0].name == "hosts"
    assert FULL.at_once == (2 if (os.cpu_count() or 1) < 4 else 4)


def test_stages_run_beside_each_other(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    subprocess.run(["mkfifo", str(pipe)], check=True)
    printed: list[str] = []
    made = Check(printed.append, tmp_path)
    asks, answers = (f"sh -c ': {way} {pipe}'" for way in ("<", ">"))  # each waits for the other
    made.run(Plan([Stage("asks", (asks,)), Stage("answers", (answers,))], at_once=2))
    assert made.failed == []


@pytest.mark.parametrize("number", check.ENDING)
def test_who_does_not_wait_leaves_nothing_running(tmp_path: Path, number: signal.Signals) -> None:
    """The pipe tells: when nobody has its other end, nothing runs that could."""
    pipe = tmp_path / "pipe"
    subprocess.run(["mkfifo", str(pipe)], check=True)
    script = tmp_path / "check_something.py"
    script.write_text(
        "import sys, pathlib\n"
        "from check import Check, Plan, Stage\n"
        "pipe, said = map(pathlib.Path, sys.argv[1:])\n"
        "waits = Stage('waits', (f\"sh -c 'exec sleep 600 >{pipe}'\",))\n"
        "Check(said=said).run(Plan([waits, Stage('next', ('false',))]))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT / "tests/check")}
    process = subprocess.Popen(
        [sys.executable, str(script), str(pipe), str(tmp_path / "said")],
        env=environment,
        stderr=subprocess.DEVNULL,
    )
    with pipe.open() as other_end:
        process.send_signal(number)
        assert other_end.read() == ""
    assert process.wait() != 0
    assert not (tmp_path / "said/next.txt").exists()


def test_ctrl_c_is_heard_though_the_main_thread_was_not_woken_by_it(tmp_path: Path) -> None:
    """Python runs the handler in the main thread, once that does something again."""
    script = tmp_path / "check_something.py"
    script.write_text(
        "import pathlib, signal, sys, threading\n"
        "from check import Check, Plan, Stage\n"
        "said = pathlib.Path(sys.argv[1])\n"
        "def interrupt():\n"
        "    while not (said / 'waits.txt').exists():\n"
        "        pass\n"
        "    signal.pthread_kill(threading.get_ident(), signal.SIGINT)\n"
        "threading.Thread(target=interrupt).start()\n"
        "Check(said=said).run(Plan([Stage('waits', ('sleep 600',))]))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT / "tests/check")}
    ended = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "said")],
        env=environment,
        stderr=subprocess.DEVNULL,
        timeout=90,
    )
    assert ended.returncode != 0


def test_ctrl_c_comes_to_a_stage_once_and_what_it_has_left_ends(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    subprocess.run(["mkfifo", str(pipe)], check=True)
    stage = tmp_path / "stage.py"
    stage.write_text(
        "import pathlib, signal, subprocess, sys\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})\n"
        "left = f\"trap '' INT; exec sleep 30 >{sys.argv[1]}\"\n"
        "subprocess.Popen(['sh', '-c', left])\n"
        "signal.sigwait({signal.SIGINT})\n"
        "again = signal.sigtimedwait({signal.SIGINT}, 1.0)\n"
        "pathlib.Path(sys.argv[2]).write_text('once' if again is None else 'twice')\n"
    )
    heard = tmp_path / "heard"
    command = f"{sys.executable} {stage} {pipe} {heard}"
    script = tmp_path / "check_something.py"
    script.write_text(
        "import sys, pathlib\n"
        "from check import Check, Plan, Stage\n"
        "Check(said=pathlib.Path(sys.argv[1])).run(Plan([Stage('waits', (sys.argv[2],))]))\n"
    )
    process = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path / "said"), command],
        env={**os.environ, "PYTHONPATH": str(CHECKOUT / "tests/check")},
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    with pipe.open() as other_end:
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        assert other_end.read() == ""
    assert process.wait() != 0
    assert heard.read_text() == "once"


def test_a_stage_that_does_not_hear_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "UNHEARD_SECONDS", 0.05)
    pipe = tmp_path / "pipe"
    subprocess.run(["mkfifo", str(pipe)], check=True)
    stage = tmp_path / "stage.py"
    stage.write_text(
        "import signal, sys\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})\n"
        "open(sys.argv[1], 'w').close()\n"
        "for _ in range(2):\n"
        "    signal.sigwait({signal.SIGINT})\n"
    )
    waits = Stage("waits", (f"{sys.executable} {stage} {pipe}",))
    asked = threading.Thread(
        target=lambda: (pipe.read_bytes(), os.kill(os.getpid(), signal.SIGINT))
    )
    asked.start()
    with pytest.raises(KeyboardInterrupt):
        Check(lambda line: None, tmp_path).run(Plan([waits]))
    asked.join()


def test_an_interruption_that_python_drops_ends_the_check(tmp_path: Path) -> None:
    """What is raised in the callback of a weak reference comes to nobody."""

    class ShortLived:
        pass

    class Stages(list[Stage]):
        def __iter__(self) -> Iterator[Stage]:
            yield from super().__iter__()
            gone = ShortLived()
            reference = weakref.ref(gone, lambda _: signal.raise_signal(signal.SIGINT))
            del gone
            assert reference() is None

    stages = Stages([Stage("waits", ("sleep 60",)), Stage("next", ("false",))])
    made = Check(lambda line: None, tmp_path)
    with pytest.raises(KeyboardInterrupt):
        made.run(Plan(stages))
    assert "next" not in made.failed


def test_stages_share_no_standard_input(tmp_path: Path) -> None:
    """One that makes it non-blocking would do so for all."""
    reader, writer = os.pipe()
    saved = os.dup(0)
    os.dup2(reader, 0)
    try:
        changes = f"{sys.executable} -c 'import os; os.set_blocking(0, False)'"
        Check(lambda line: None, tmp_path).run(Plan([Stage("changes", (changes,))]))
        assert os.get_blocking(reader)
    finally:
        os.dup2(saved, 0)
        for descriptor in (saved, reader, writer):
            os.close(descriptor)


def test_times_are_minutes_and_seconds() -> None:
    assert [clock(seconds) for seconds in (0.4, 42.3, 665)] == ["0:00", "0:42", "11:05"]


# -- whose turn it is ----------------------------------------------------------------------------


def git(directory: Path, *words: str) -> None:
    author = ("-c", "user.name=somebody", "-c", "user.email=somebody@example.org")
    subprocess.run(["git", "-C", str(directory), *author, *words], check=True, capture_output=True)


def test_a_clone_without_history_has_the_same_turn(tmp_path: Path) -> None:
    old, clone = tmp_path / "old", tmp_path / "clone"
    old.mkdir()
    git(old, "init", "-q")
    turns = set()
    for text in ("one", "two", "three"):
        (old / "file").write_text(text)
        git(old, "add", "file")
        git(old, "commit", "-q", "-m", text)
        turns.add(commit_number.__wrapped__(old))
    git(tmp_path, "clone", "-q", "--depth", "1", old.as_uri(), str(clone))
    assert commit_number.__wrapped__(clone) in turns
    assert commit_number.__wrapped__(clone) == commit_number.__wrapped__(old)
    assert len(turns) == 3


def test_without_git_it_is_the_first_turn(tmp_path: Path) -> None:
    assert commit_number.__wrapped__(tmp_path) == 0


def test_all_come_first_once() -> None:
    assert [rotated(["a", "b", "c"], turn)[0] for turn in (3, 4, 5)] == ["a", "b", "c"]
    assert rotated([], 7) == []


def test_scenarios_that_have_changed_come_first_and_two_are_played() -> None:
    scenarios = ["a", "b", "c", "d", "e"]
    assert [due_scenarios.due(scenarios, ["d"], turn)[0] for turn in range(5)] == ["d"] * 5
    met = {name for turn in range(5) for name in due_scenarios.due(scenarios, [], turn)}
    assert met == set(scenarios)
    three = [due_scenarios.due(scenarios, ["a", "c", "e"], turn) for turn in range(3)]
    assert all(len(some) == 2 and set(some) <= {"a", "c", "e"} for some in three)
    assert {name for some in three for name in some} == {"a", "c", "e"}


def test_the_longest_scenario_is_played_in_its_turn_and_alone() -> None:
    played = [due_scenarios.due(["a", "b", "pool"], [], turn) for turn in range(3)]
    assert played == [["a", "b"], ["b", "a"], ["pool"]]


# -- which scenarios have changed ----------------------------------------------------------------


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with a scenario `one` that plays `site.yml`, and `two` that plays role `extra`."""
    texts = {
        "tests/molecule/one/molecule.yml": "",
        "tests/molecule/one/converge.yml": "- import_playbook: ../../../site.yml",
        "tests/molecule/one/story.py": 'play("upgrade")',
        "tests/molecule/two/molecule.yml": "",
        "tests/molecule/two/converge.yml": "roles:\n  - role: extra",
        "tests/molecule/shared/base.yml": "",
        "site.yml": "- import_playbook: playbooks/server.yml",
        "playbooks/server.yml": "roles:\n  - role: server\n  # as playbooks/lonely.yml does",
        "playbooks/upgrade.yml": "",
        "playbooks/lonely.yml": "",
        "roles/server/tasks/main.yml": "include_role:\n    name: package",
        "roles/package/files/program.sh": "",
        "roles/extra/tasks/main.yml": "",
        "requirements-worker.lock": "",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(due_scenarios, "CHECKOUT", tmp_path)
    monkeypatch.setattr(due_scenarios, "SCENARIOS", tmp_path / "tests/molecule")
    monkeypatch.setattr(due_scenarios, "GREEN", tmp_path / "tests/molecule/green.json")
    return tmp_path


def test_without_a_record_all_scenarios_have_changed(checkout: Path) -> None:
    assert due_scenarios.changed() == ["one", "two"]
    due_scenarios.record_green()
    assert due_scenarios.changed() == []


@pytest.mark.parametrize(
    ("file", "changed"),
    [
        ("playbooks/server.yml", ["one"]),
        ("playbooks/upgrade.yml", ["one"]),
        ("roles/package/files/program.sh", ["one"]),
        ("roles/extra/tasks/main.yml", ["two"]),
        ("tests/molecule/two/converge.yml", ["two"]),
        ("tests/molecule/shared/base.yml", ["one", "two"]),
        ("requirements-worker.lock", ["one", "two"]),
        ("playbooks/lonely.yml", []),
    ],
)
def test_a_scenario_has_changed_if_anything_that_it_plays_has(
    checkout: Path, file: str, changed: list[str]
) -> None:
    due_scenarios.record_green()
    with (checkout / file).open("a") as text:
        text.write("\n# changed\n")
    assert due_scenarios.changed() == changed


def test_what_playing_makes_changes_no_scenario(checkout: Path) -> None:
    due_scenarios.record_green()
    (checkout / "tests/molecule/one/vault.yml").write_text("secret")
    assert due_scenarios.changed() == []


@pytest.mark.parametrize(
    ("words", "failed", "played"),
    [
        (["--full"], [], True),
        (["--full"], ["unit"], True),
        (["--full"], ["hosts"], False),
        ([], [], False),
    ],
)
def test_scenarios_are_on_record_if_all_of_them_have_passed(
    words: list[str], failed: list[str], played: bool
) -> None:
    assert has_played_all(words, failed) is played


def test_the_whole_pool_stands_on_all_roles() -> None:
    found = due_scenarios._files("pool")
    roles = {path.name for path in (CHECKOUT / "roles").iterdir()}
    parts = [file.relative_to(CHECKOUT).parts for file in found]
    assert {
        name for place, name, *_ in (p for p in parts if len(p) > 1) if place == "roles"
    } == roles


@pytest.mark.timeout(20)
def test_a_difference_of_megabytes_is_told_at_once(
    pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where `CI` is set, pytest would write down each of their bytes."""
    monkeypatch.setenv("CI", "true")
    conftest = pytestconfig.pluginmanager.get_plugin(str(CHECKOUT / "tests/conftest.py"))
    assert conftest is not None
    conftest.pytest_configure()
    written = bytes(range(256)) * 20_000
    with pytest.raises(AssertionError):
        assert written == written[1:]
