"""What 200 simulated worlds say and decide, recorded: a net under changes that keep behaviour.

    python tests/simulation/golden_traces.py record                  records all of them anew
    python tests/simulation/golden_traces.py show small-17           prints what that world says
    python tests/simulation/golden_traces.py compare small-17 main   what has changed since a commit

Two things are recorded of each world, as fingerprints. Its *log* holds every message of managers,
workers and users with its moment, every event of the pool and every fault. Its *decisions* are
which worker got which task, under which number of an attempt, and how that ended; no name and no
encoding of a message is in them. A change that touches no message leaves both as they are. One that
changes only how messages look leaves the decisions as they are.

Of the worlds, which are as small as they can be for all of them to take less than a minute,

- `small` ones have jobs with stages, dependencies on jobs and on tasks, spans, tokens, GPUs, assets
  of unknown capacity, expressions, policies, quotas, holds, retries and cancellations, while
  managers, workers, servers and networks fail;
- `licensed` ones take tokens away and set them anew while managers are killed;
- `checkpointing` ones have tasks that go on elsewhere from their checkpoints;
- `flock` ones are two to six pools that lend each other workers, of which some are hostile.

Files that tasks read or leave are in none of them: no world has a file share.
"""

from __future__ import annotations

import difflib
import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

# The worlds, wherever they live: nothing else here knows.
from kestrel_worlds import WorldReport
from kestrel_worlds import run as run_pool
from kestrel_worlds.flock_worlds import run_flock
from kestrel_worlds.settings import checkpointing, licensed

CHECKOUT = Path(__file__).resolve().parents[2]
RECORD = Path(__file__).with_suffix(".txt")

#: What a world is called, how many there are of its kind, and what runs the one of a seed.
KINDS: dict[str, tuple[int, Callable[[int], WorldReport]]] = {
    "small": (150, run_pool),
    "licensed": (15, lambda seed: run_pool(seed, licensed(seed))),
    "checkpointing": (15, lambda seed: run_pool(seed, checkpointing(seed))),
    "flock": (20, run_flock),
}
WORLDS = [f"{kind}-{seed}" for kind, (count, _) in KINDS.items() for seed in range(count)]
#: So many characters of a fingerprint are kept.
_CHARACTERS = 16
#: What follows the billionths of a number: since 3.12 Python adds fractions up more exactly.
_TINY = re.compile(r"(?<=\.\d{9})\d+")


class Trace(NamedTuple):
    """What one world said and decided, in fingerprints."""

    log: str
    decisions: str


def run(world: str) -> WorldReport:
    """Lets a world happen, such as `small-17`."""
    kind, _, seed = world.rpartition("-")
    return KINDS[kind][1](int(seed))


def trace_of(world: str) -> Trace:
    """What a world says and decides now.

    Raises:
        AssertionError: it breaks a promise; this is nothing to record.
    """
    report = run(world)
    report.raise_problems()
    return Trace(_fingerprint(report.story), _fingerprint(report.decisions))


def recorded() -> dict[str, Trace]:
    """What each world said and decided when that was recorded."""
    rows = (line.split() for line in RECORD.read_text(encoding="utf-8").splitlines())
    return {world: Trace(*digests) for world, *digests in rows}


def _fingerprint(lines: list[str]) -> str:
    return sha256(_TINY.sub("", "\n".join(lines)).encode()).hexdigest()[:_CHARACTERS]


# -- commands --------------------------------------------------------------------------------------


def record() -> str:
    """Records all worlds; returns what has changed by that, in words."""
    before = recorded() if RECORD.exists() else {}
    now = {world: trace_of(world) for world in WORLDS}
    RECORD.write_text("".join(f"{world} {' '.join(trace)}\n" for world, trace in now.items()))
    return difference(before, now)


def difference(before: dict[str, Trace], now: dict[str, Trace]) -> str:
    """Which worlds decide otherwise, which only say it otherwise, and which are new or gone."""
    both = [world for world in now if world in before]
    kinds = {
        "decide otherwise": [w for w in both if before[w].decisions != now[w].decisions],
        "decide the same and have another log": [
            w for w in both if before[w].decisions == now[w].decisions and before[w] != now[w]
        ],
        "are new": [w for w in now if w not in before],
        "are gone": [w for w in before if w not in now],
    }
    lines = [f"{len(now)} worlds"]
    lines += [f"{len(some)} {what}: {_some(some)}" for what, some in kinds.items() if some]
    return "\n".join(lines if len(lines) > 1 else [f"{lines[0]}, all as before"])


def _some(worlds: list[str], most: int = 5) -> str:
    return ", ".join(worlds[:most]) + (", ..." if len(worlds) > most else "")


def show(world: str) -> str:
    """The decisions of a world, then its log."""
    report = run(world)
    return "\n".join(["decisions", *report.decisions, "log", *report.story])


def compare(world: str, commit: str) -> str:
    """The first lines in which a world differs from what it was at a commit.

    Raises:
        subprocess.CalledProcessError: git does not know that commit.
        FileNotFoundError: there is nothing like this module in it.
    """
    git = ["git", "-C", str(CHECKOUT), "archive", commit, "kestrelctl", "tests"]
    archive = subprocess.run(git, capture_output=True, check=True).stdout
    with tempfile.TemporaryDirectory() as directory:
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(directory, filter="data")
        scripts = list(Path(directory).rglob(Path(__file__).name))
        if not scripts:
            raise FileNotFoundError(f"{commit} has no {Path(__file__).name}")
        then = subprocess.run(
            [sys.executable, str(scripts[0]), "show", world],
            env={**os.environ, "PYTHONPATH": directory},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()
    now = show(world).splitlines()
    parts = {name: (_part(then, name), _part(now, name)) for name in ("decisions", "log")}
    return "\n".join(
        f"{name}: {first_difference(old, new) or 'the same'}" for name, (old, new) in parts.items()
    )


def _part(lines: list[str], name: str) -> list[str]:
    begin = lines.index(name) + 1
    return lines[begin : lines.index("log")] if name == "decisions" else lines[begin:]


def first_difference(old: list[str], new: list[str], lines: int = 20) -> str:
    """The beginning of what differs, as `diff` shows it; empty if nothing does."""
    found = difflib.unified_diff(old, new, "then", "now", n=3, lineterm="")
    shown = [line for _, line in zip(range(lines), found, strict=False)]
    return "\n" + "\n".join(shown) if shown else ""


def main(words: list[str]) -> str:
    """Does what the command line says; returns what is to be printed."""
    match words:
        case ["record"]:
            return record()
        case ["show", world] if world in WORLDS:
            return show(world)
        case ["compare", world, commit] if world in WORLDS:
            return compare(world, commit)
    raise SystemExit(__doc__)


if __name__ == "__main__":
    print(main(sys.argv[1:]))
