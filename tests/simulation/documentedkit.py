"""Figures in documents that a seed decides: the commands that make them, and the tables they make.

`tests/bench/documented.py` prints the tables as they are to stand on their pages.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec

from kestrel_experiments.flock.ideal import ideal_waits
from kestrel_experiments.flock.source import MACHINES, OVERALL, POOLS, traces
from kestrel_experiments.flock_simulation.flock_tally import FlockTally, PoolFigures
from kestrel_experiments.flock_simulation.runs import FlockSimulation
from kestrel_experiments.imbalance.page import COLUMNS, rows
from kestrel_experiments.imbalance.result import ImbalanceResult
from kestrelctl.core.counting.percentile import percentile
from kestrelctl.core.counting.traffic import heartbeat_traffic
from kestrelctl.core.model.config import Config
from kestrelctl.protocol import codec
from kestrelctl.protocol import workers as work
from kestrelctl.worker import daemon
from kestrelctl.worker.discovery import Machine
from kestrelctl.worker.isolation.plain import Plain
from kestrelctl.worker.options import WorkerOptions
from kestrelctl.xmpp import stanza

DOCS = Path(__file__).parents[2] / "docs"
#: A table: its heading, then its rows.
Cells = list[list[str]]
#: Runs a command line and returns what it prints with `-o json`.
Runner = Callable[[Sequence[str]], bytes]


# -- on a page -------------------------------------------------------------------------------------


def table_after(page: str, command: str) -> Cells:
    """The first table behind a command in a block of a page.

    Raises:
        ValueError: the page has no such command, or no table behind it.
    """
    text = (DOCS / page).read_text()
    begin = text.index(f"\n{command}\n")
    found = re.search(r"^\|.*?(?=^[^|]|\Z)", text[begin:], re.MULTILINE | re.DOTALL)
    if found is None:
        raise ValueError(f"{page} has no table behind {command}")
    lines = [line.strip().strip("|") for line in found[0].splitlines() if line.strip()]
    return [[cell.strip() for cell in line.split("|")] for line in lines if set(line) - set("-|: ")]


def markdown(table: Cells) -> str:
    """A table as it stands on a page."""
    heading, *lines = table
    ruled = [heading, ["---"] * len(heading), *lines]
    return "\n".join(f"| {' | '.join(cells)} |".replace("|  |", "| |") for cells in ruled)


# -- flocks ----------------------------------------------------------------------------------------


def _shown(value: float) -> str:
    if value < 9.95:
        return f"{value:.2f}" if value < 0.995 else f"{value:.1f}"
    return f"{value:.1f}" if value < 99.95 else f"{value:,.0f}"


def _spread(values: PoolFigures) -> str:
    return " / ".join(map(_shown, (values.p50, values.p90, values.most)))


def _near(run: FlockTally) -> str:
    if not run.plan.flocking:
        return ""
    return " / ".join(f"{100 * run.within(share):.1f}" for share in (0.1, 0.2, 0.3, 0.5)) + " %"


def _messages(run: FlockTally) -> str:
    if not run.plan.flocking:
        return ""
    found = (run.announcement_messages, run.overlay_messages, run.wishes, run.grants)
    return ", ".join(f"{each:.1f}" for each in found)


FlockRow = tuple[str, Callable[[FlockTally], str]]
FLOCK_ROWS: tuple[FlockRow, ...] = (
    ("last task of a pool: p50 / p90 / most", lambda run: _spread(run.completion)),
    ("mean wait of a pool: p50 / p90 / most", lambda run: _spread(run.mean_wait)),
    ("longest wait of a pool: p50 / p90 / most", lambda run: _spread(run.most_wait)),
    ("tasks that ran at home", lambda run: f"{100 * run.local:.1f} %"),
    ("within 0.1 / 0.2 / 0.3 / 0.5 of the diameter", _near),
    ("tasks that were ended for owners and ran again", lambda run: f"{run.run_again:,}"),
    ("lost, or ended twice", lambda run: f"{run.lost:,}"),
    ("announcements, overlay, wishes, answers: a minute and pool", _messages),
)
GROWTH_ROWS: tuple[FlockRow, ...] = (
    ("others that one tells", lambda run: f"{run.hearers:.1f}"),
    ("announcements a minute and pool", lambda run: f"{run.announcement_messages:.1f}"),
    ("messages of the overlay a minute and pool", lambda run: f"{run.overlay_messages:.1f}"),
)


@dataclass(frozen=True)
class FlockTable:
    """A table of docs/flock-simulation.md: a column for each run of some commands.

    Attributes:
        commands: as they stand on the page.
    """

    name: str
    commands: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[FlockRow, ...] = FLOCK_ROWS
    page: str = "flock-simulation.md"

    def place(self, command: str) -> int:
        """The column of the first run of a command, behind that of the labels."""
        before = self.commands[: self.commands.index(command)]
        return 1 + sum(map(_runs, before))

    def made(self, command: str, run: Runner) -> Cells:
        """The columns that a command makes."""
        result = msgspec.json.decode(run(words_of(command)), type=FlockSimulation)
        return [[cell(each) for _, cell in self.rows] for each in result.runs]

    def stands(self, command: str) -> Cells:
        """These columns as they stand on the page."""
        heading, *lines = table_after(self.page, self.commands[-1])
        assert heading == ["", *self.columns]
        assert [line[0] for line in lines] == [label for label, _ in self.rows]
        first = self.place(command)
        return [[line[first + n] for line in lines] for n in range(_runs(command))]

    def whole(self, run: Runner) -> Cells:
        """The table with its heading."""
        columns = [column for command in self.commands for column in self.made(command, run)]
        labels = [label for label, _ in self.rows]
        lines = [[label, *cells] for label, *cells in zip(labels, *columns, strict=True)]
        return [["", *self.columns], *lines]


def words_of(command: str) -> list[str]:
    """The words behind the program's name, without where to write a report."""
    _, *words = shlex.split(command.removeprefix("$ "))
    if "--report" in words:
        place = words.index("--report")
        del words[place : place + 2]
    return words


def _runs(command: str) -> int:
    return words_of(command).count("--ttl") or 2


_SIM = "$ ./kestrel bench flock-sim"
HUNDRED = FlockTable(
    "hundred",
    (f"{_SIM} --pools 100 --scale 0.1 --ttl 0 --ttl 1 --report flock",),
    ("each alone", "TTL 1"),
)
COMING_AND_GOING = FlockTable(
    "coming-and-going",
    (f"{_SIM} --pools 100 --scale 0.1 --ttl 1 --ttl 2 --failing 10% --joining 10%",),
    ("TTL 1, coming and going", "TTL 2, coming and going"),
)
GROWTH = FlockTable(
    "growth",
    tuple(f"{_SIM} --pools {pools} --scale 0.02 --ttl 1" for pools in (10, 30, 100, 300)),
    ("10 pools", "30 pools", "100 pools", "300 pools"),
    GROWTH_ROWS,
)
TENTH = FlockTable(
    "tenth",
    (f"{_SIM} --scale 0.1 --ttl 0", f"{_SIM} --scale 0.1 --ttl 1 --compiled"),
    ("each alone", "flocking, TTL 1"),
)
FULL = FlockTable(
    "full",
    (
        f"{_SIM} --ttl 0",
        f"{_SIM} --ttl 1 --look 60 --compiled",
        f"{_SIM} --ttl 1 --compiled",
    ),
    ("each alone", "flocking, a look a minute", "flocking, a look each 20 ms"),
)
MODELS = FlockTable(
    "models",
    (f"{_SIM} --pools 100 --scale 0.1 --ttl 1 --reclaim 5",),
    ("model",),
)
CORES = FlockTable(
    "cores",
    (f"{_SIM} --pools 100 --scale 0.1 --ttl 1 --core --reclaim 5",),
    ("core",),
)
THOUSAND_CORES = FlockTable(
    "thousand-cores",
    (f"{_SIM} --scale 0.1 --ttl 1 --core --look 60 --compiled",),
    ("1,000 cores",),
)
FLOCK_TABLES = (HUNDRED, COMING_AND_GOING, GROWTH, TENTH, FULL, MODELS, CORES, THOUSAND_CORES)


# -- environments ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class EnvironmentTable:
    """A table of docs/environments-experiment.md, which a command makes.

    Attributes:
        command: as it stands on the page.
    """

    name: str
    command: str
    page: str = "environments-experiment.md"

    def whole(self, run: Runner) -> Cells:
        """The table with its heading."""
        result = msgspec.json.decode(run(words_of(self.command)), type=ImbalanceResult)
        return [list(COLUMNS), *rows(result.runs)]

    def stands(self) -> Cells:
        """It as it stands on the page."""
        return table_after(self.page, self.command)


_ENVIRONMENTS = "$ kestrelctl bench environments --simulated"
_SOURCES = f"{_ENVIRONMENTS} --hosts 35 --tasks 700 --seconds 10"
ENVIRONMENT_TABLES = (
    EnvironmentTable("six-hosts", f"{_ENVIRONMENTS} --seeds 10"),
    EnvironmentTable("sources-hosts", f"{_SOURCES} --seeds 10 --report simulated"),
    EnvironmentTable(
        "four-kept", f"{_SOURCES} --seeds 10 --sharing static --sharing kept --keep 4"
    ),
    EnvironmentTable("at-once", f"{_SOURCES} --over 0.1 --seeds 5"),
    EnvironmentTable("many-hosts", f"{_ENVIRONMENTS} --hosts 200 --tasks 4000 --seconds 10"),
)


# -- what pools alone reach ------------------------------------------------------------------------

IDEAL_SEEDS = 1_000
IDEAL_COMMAND = "$ .venv/bin/python tests/bench/documented.py ideal"


def ideal_table(seeds: int = IDEAL_SEEDS) -> Cells:
    """What pools alone wait at best on the traces of the source, in units of the trace."""
    means: dict[str, list[float]] = {}
    longest: dict[str, list[float]] = {}
    for seed in range(1, seeds + 1):
        waits = {name: ideal_waits(tasks, MACHINES) for name, tasks in traces(seed).items()}
        waits[OVERALL] = [wait for each in waits.values() for wait in each]
        for name, each in waits.items():
            means.setdefault(name, []).append(fmean(each))
            longest.setdefault(name, []).append(max(each))
    names = [*(pool.name for pool in POOLS), OVERALL]
    lines = [[name, _ranged(means[name]), _ranged(longest[name])] for name in names]
    return [["pool", "mean", "longest"], *lines]


def _ranged(values: list[float]) -> str:
    ordered = sorted(values)
    low, high = percentile(ordered, 5) or 0.0, percentile(ordered, 95) or 0.0
    return f"{_shown(fmean(ordered))} ({_shown(low)} to {_shown(high)})"


# -- advertisements --------------------------------------------------------------------------------

DEBIAN = Machine("lab7", "Linux", "x86_64", "3.11.7", "0.3.0", 4, 8 << 30, "debian")


def ad_bytes(directory: Path) -> int:
    """The bytes of the ad of a worker of `up --workers 4` on Debian, as JSON.

    Args:
        directory: empty.
    """
    credentials = directory / "credentials"
    credentials.write_text("w1@workers.kestrel.localhost secret\n")
    credentials.chmod(0o600)
    options = WorkerOptions(
        pool="kestrel.localhost",
        credentials=credentials,
        data_dir=directory,
        cpus=1.0,
        memory_bytes=2 << 30,
        assets=("disk=10000000000", "gpus=indexed:"),
        any_workdir=True,
    )
    ads: list[Any] = []

    class Process:
        def add_session(self, _pool: str, ad: Any, *_: Any, **__: Any) -> None:
            ads.append(ad)

    daemon._add_sessions(Process(), options, DEBIAN, Plain(), None)  # type: ignore[arg-type]
    [ad] = ads
    return len(msgspec.json.encode(ad))


def sign_of_life_bytes() -> int:
    """The bytes of a sign of life, as it is sent to the pool at kestrel.localhost."""
    return len(stanza.message(codec.encode(work.Heartbeat()), "pool@kestrel.localhost"))


def predicted_signs_of_life(workers: int) -> str:
    """How many an idle pool sends in a second."""
    return f"{heartbeat_traffic(workers, Config()).heartbeats_per_second:.1f}/s"
