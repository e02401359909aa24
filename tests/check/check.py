"""The whole check: which stages it has, what runs beside what, and a line for each.

    ./kestrel test                 what is tried before each change lands
    ./kestrel test --full          that, all hosts with systemd, and more of the planted defects
    ./kestrel test --planted       all planted defects, and nothing else
    ./kestrel test --scenarios     the scenarios of Molecule that are due
    ./kestrel test core            the tests of one room, or whatever else pytest is told

What a stage says goes to a file; it is shown if the stage fails.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Container
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from threading import Lock
from typing import IO, NamedTuple

import due_scenarios
from turns import CHECKOUT, commit_number

SAID = CHECKOUT / ".check"
TESTS_OF_ROOMS = Path("tests/unit")
UNIT_TESTS = CHECKOUT / TESTS_OF_ROOMS
#: A stage that was asked to end so long ago has not heard it: pytest, too, may drop the exception.
UNHEARD_SECONDS = 60.0
#: What ends the check: a terminal's Ctrl-C, who runs it, the terminal's own end.
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: A lost signal is noticed after so long.
LOOK_SECONDS = 1.0
#: What keeps a session from being made nice is over soon.
GIVE_WAY_TRIES, GIVE_WAY_PAUSE_SECONDS = 20, 0.1
#: So many lines of what a failed stage said are shown.
END_LINES = 200

PYTEST = "python -m pytest -q"
ON_ALL_PROCESSORS = ("-q", "--numprocesses", "auto")
#: What only computes gives way to real processes, whose tests wait for what happens. It has half as
#: much of the processors as each of these: with much less, a test of a minute would never end.
COMPUTING, HOSTS, PROCESSES = 3, 2, 0

_ENDED = re.compile(r"(\d+) (passed|failed|errors?|skipped)\b")
_FAILURES = re.compile(r"=+ (FAILURES|ERRORS) =+$")
_CLOSING = re.compile(r"\d+ \w+.* in [\d.]+s\b")


class Stage(NamedTuple):
    """A part of the check.

    Attributes:
        name: what is printed.
        commands: they are carried out in turn, also after one that failed.
        things: what is counted in it.
        nice: how much it gives way to others that run beside it.
    """

    name: str
    commands: tuple[str, ...]
    things: str = "tests"
    nice: int = COMPUTING


class Count(NamedTuple):
    """How many tests ended how."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other: object) -> Count:
        assert isinstance(other, Count)
        return Count(*(mine + its for mine, its in zip(self, other, strict=True)))


class Plan(NamedTuple):
    """Stages in the order in which they begin.

    Attributes:
        stages: each begins when one of those before it has ended.
        at_once: so many run beside each other.
    """

    stages: list[Stage]
    at_once: int = 1


LINT = Stage("lint", ("ruff check", "ruff format --check", "lint-imports"), "checks")
TYPES = Stage("types", ("mypy",), "checks")
UNIT = Stage("unit", (f"{PYTEST} tests/unit tests/property",))
SIMULATION = Stage("simulation", (f"{PYTEST} tests/simulation",))
ROLES = Stage("roles", (f"{PYTEST} -m 'not lab' tests/roles",))
#: Three files at a time, in the order of tests/conftest.py: they wait more than they compute.
THREE_FILES = "--numprocesses 3 --dist loadfile --no-loadscope-reorder"
#: What is in these is not of processes: each of the three would take half a minute to read it.
NOT_OF_PROCESSES = " ".join(
    f"--ignore tests/{name}" for name in ("unit", "property", "simulation", "planted", "roles")
)
REAL = Stage(
    "processes",
    (f"{PYTEST} -m 'processes and not lab' {NOT_OF_PROCESSES} {THREE_FILES}",),
    nice=PROCESSES,
)
LAB = Stage("hosts", (f"{PYTEST} -m lab",), nice=HOSTS)
DEBIAN_13 = Stage("debian 13", ("python tests/check/debian_13.py",), nice=PROCESSES)


def planted(part: str) -> Stage:
    return Stage("planted", (f"{PYTEST} tests/planted --planted {part}",))


def scenarios(names: list[str]) -> Stage:
    tests = " ".join(f"'tests/roles/test_molecule.py::test_scenario[{name}]'" for name in names)
    return Stage("scenarios", (f"{PYTEST} {tests}",))


ORDINARY = Plan([REAL, SIMULATION, LINT, TYPES, UNIT, planted("twelfth"), ROLES], 3)
#: The longest begin first. Hosts that boot, with all their services, leave two processors no time
#: for more than one stage beside them: tests of processes would reach their bounds.
FULL = Plan(
    [LAB, LINT, TYPES, REAL, DEBIAN_13, SIMULATION, planted("third"), UNIT, ROLES],
    2 if (os.cpu_count() or 1) < 4 else 4,
)


def counted(said: str) -> Count:
    """What the closing line of pytest says; nothing is counted where there is none."""
    for line in reversed(said.splitlines()):
        if _CLOSING.search(line):
            found = {word.removesuffix("s"): int(number) for number, word in _ENDED.findall(line)}
            failed = found.get("failed", 0) + found.get("error", 0)
            return Count(found.get("passed", 0), failed, found.get("skipped", 0))
    return Count()


def failures(said: str) -> str:
    """What a stage said of what failed, without the progress before it; no more than its end."""
    lines = said.splitlines()
    headings = (place for place, line in enumerate(lines) if _FAILURES.match(line))
    return "\n".join(lines[next(headings, 0) :][-END_LINES:])


def clock(seconds: float) -> str:
    """A time as people read it: `0:42`, `11:05`."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02}"


class Check:
    """Runs stages beside each other and prints a line for each that ends.

    Attributes:
        count: of all stages that have ended.
        failed: the names of those that failed.
    """

    def __init__(self, show: Callable[[str], None] = print, said: Path = SAID) -> None:
        self.count = Count()
        self.failed: list[str] = []
        self._show = show
        self._said = said
        self._printing = Lock()
        self._running: list[subprocess.Popen[bytes]] = []
        self._interrupted = False

    def run(self, plan: Plan) -> None:
        """Returns when all stages have ended.

        Raises:
            KeyboardInterrupt: somebody does not want to wait; what runs was asked to end, and has.
        """
        self._said.mkdir(exist_ok=True)
        # Not by an exception: Python drops one that is raised in the callback of a weak reference.
        before = {number: signal.signal(number, self._interrupt_all) for number in ENDING}
        try:
            with ThreadPoolExecutor(plan.at_once) as pool:
                for done in [pool.submit(self._carry_out, stage) for stage in plan.stages]:
                    # A signal that comes just before this thread waits for a lock is heard when
                    # that wait ends, so no wait is long.
                    while not done.done():
                        wait([done], LOOK_SECONDS)
                    done.result()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        if self._interrupted:
            raise KeyboardInterrupt

    def _interrupt_all(self, *_: object) -> None:
        self._interrupted = True
        for process in list(self._running):
            _interrupt(process)

    def _ends_well(self, words: list[str], nice: int, said: IO[str]) -> bool:
        # Each stage has a standard input of its own: what one does to it, such as making it
        # non-blocking, would be done to all, and Ansible refuses that.
        with subprocess.Popen(
            ["nice", "-n", str(nice), *words],
            cwd=CHECKOUT,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            # Ctrl-C at a terminal comes to all of its session. Then pytest would hear it twice, and
            # leave what it is just removing.
            start_new_session=True,
        ) as process:
            self._running.append(process)
            give_way(process.pid, nice)
            if self._interrupted:  # since this stage began
                _interrupt(process)
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    status = process.wait(UNHEARD_SECONDS)
                    break
                if self._interrupted:
                    _interrupt(process)
            self._running.remove(process)
            with contextlib.suppress(ProcessLookupError):  # what it left behind
                os.killpg(process.pid, signal.SIGKILL)
        return status == 0

    def _carry_out(self, stage: Stage) -> None:
        if self._interrupted:
            return
        file = self._said / f"{stage.name}.txt"
        began = time.monotonic()
        good = 0
        with file.open("w", encoding="utf-8") as said:
            for command in stage.commands:
                said.write(f"$ {command}\n")
                said.flush()
                good += self._ends_well(shlex.split(command), stage.nice, said)
        if self._interrupted:
            return
        text = file.read_text(encoding="utf-8", errors="replace")
        bad = len(stage.commands) - good
        count = counted(text) if stage.things == "tests" else Count(good, bad)
        with self._printing:
            self.count += count
            self._tell(stage, clock(time.monotonic() - began), count)
            if bad:
                self.failed.append(stage.name)
                self._show(f"{failures(text)}\n{stage.name} failed; all that it said: {file}")

    def _tell(self, stage: Stage, took: str, count: Count) -> None:
        skipped = f", {count.skipped} skipped" if count.skipped else ""
        failed = f", {count.failed} failed" if count.failed else ""
        tried = f"{count.passed:>6,} {stage.things}{failed}{skipped}"
        self._show(f"{stage.name:<12}{took:>6}  {tried}")


def give_way(pid: int, nice: int) -> None:
    """Makes a session as nice as its process is.

    Where each session has its share of the processors (sched(7), autogroup), being nice counts
    beside other processes of the same session alone.
    """
    for _ in range(GIVE_WAY_TRIES):
        try:
            Path(f"/proc/{pid}/autogroup").write_text(str(nice), encoding="ascii")
        except BlockingIOError:  # users may do so ten times a second, all of them together
            time.sleep(GIVE_WAY_PAUSE_SECONDS)
        except OSError:  # this system has no such shares, or the process has ended
            return
        else:
            return


def _interrupt(process: subprocess.Popen[bytes]) -> None:
    """Asks a stage to end, and all that it has started: pytest removes what its tests have made."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)


def plan_of(words: list[str]) -> Plan | None:
    """What the words of `./kestrel test` ask for; None: they are for pytest."""
    match words:
        case []:
            return ORDINARY
        case ["--full"]:
            return FULL
        case ["--planted"]:
            return Plan([planted("all")])
        case ["--scenarios"]:
            differing = due_scenarios.changed()
            names = due_scenarios.due(due_scenarios.names(), differing, commit_number())
            return Plan([scenarios(names)])
    return None


def for_pytest(words: list[str]) -> list[str]:
    """The words as pytest takes them: a room of the package stands for its unit tests.

    `core/model` stands for `tests/unit/core/model`. Where rooms are all that is asked for, their
    tests run on all processors.
    """
    rooms = {str(path.relative_to(UNIT_TESTS)) for path in UNIT_TESTS.rglob("*/")}
    found = [str(TESTS_OF_ROOMS / word) if word in rooms else word for word in words]
    return [*ON_ALL_PROCESSORS, *found] if rooms.issuperset(words) else found


def has_played_all(words: list[str], failed: Container[str]) -> bool:
    """Whether all scenarios of Molecule have passed, whatever else failed."""
    return words == ["--full"] and LAB.name not in failed


def main(words: list[str]) -> int:
    """Runs what the words ask for; returns the exit status."""
    plan = plan_of(words)
    if plan is None:
        os.execvp("python", ["python", "-m", "pytest", *for_pytest(words)])
    began = time.monotonic()
    check = Check(lambda line: print(line, flush=True))
    check.run(plan)
    passed, failed, skipped = check.count
    print(f"all{' ' * 9}{clock(time.monotonic() - began):>6}")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    if has_played_all(words, check.failed):
        due_scenarios.record_green()
    return 1 if check.failed else 0


if __name__ == "__main__":
    for number in ENDING:
        signal.signal(number, signal.default_int_handler)
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
