"""What 1,000 tasks cost a pool, counted in a simulated one: the same on any machine, however busy.

    python tests/simulation/step_counts.py record    records the counts anew

Core, manager and workers are those of production; server, disk and processes are simulated. Counted
are the lines of Python that each room of the product executes, what the nodes send to each other,
and the commits. A count may grow by 3 % before somebody has to say that this is meant.
"""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

import msgspec

import kestrel_worlds.network as network
import kestrelctl
from kestrel_worlds.settings import WorldSettings
from kestrel_worlds.store import SimulatedStore
from kestrel_worlds.workload import Submission
from kestrel_worlds.world import World
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.worker.ad import WorkerAd

PACKAGE = str(Path(kestrelctl.__file__).parent) + "/"
RECORD = Path(__file__).with_suffix(".json")
TASKS = 1000
#: So much more may something cost.
GROWTH = 0.03
#: Python counts a line that has several parts otherwise from version to version.
PYTHON = f"python {sys.version_info.major}.{sys.version_info.minor}"

WORLD = WorldSettings(
    ads=[WorkerAd(assets={"cpus": 4.0})] * 4,
    submissions=[
        Submission(
            at_seconds=1.0,
            spec=JobSpec(program=Program(argv=("task", "{}")), name="short", count=TASKS),
        )
    ],
    check=False,
    keep_story=False,
)


def room_of(file: str) -> str:
    """The room of the product to which a file's lines count; empty if it is none of it."""
    if not file.startswith(PACKAGE):
        return ""
    room, _, rest = file.removeprefix(PACKAGE).partition("/")
    if room == "core" and rest.startswith("agent/"):
        return "worker"  # it decides there
    return room if room in ("core", "manager", "worker") else "other rooms"


class Lines:
    """Counts the lines of Python that each room executes."""

    def __init__(self) -> None:
        self._counted: dict[str, list[int]] = {}
        self._tracers: dict[str, Callable[..., Any] | None] = {}

    def trace(self, frame: FrameType, _event: str, _argument: object) -> Callable[..., Any] | None:
        """What `sys.settrace` calls when a function begins."""
        file = frame.f_code.co_filename
        if file not in self._tracers:
            self._tracers[file] = self._tracer(room_of(file))
        return self._tracers[file]

    def _tracer(self, room: str) -> Callable[..., Any] | None:
        if not room:
            return None
        count = self._counted.setdefault(room, [0])

        def local(_frame: FrameType, event: str, _argument: object) -> Any:
            if event == "line":
                count[0] += 1
            return local

        return local

    @property
    def by_room(self) -> dict[str, int]:
        """How many each has executed."""
        return {room: count[0] for room, count in sorted(self._counted.items())}


def counts(settings: WorldSettings = WORLD) -> dict[str, int]:
    """What the tasks of a world cost.

    Raises:
        AssertionError: the world breaks a promise; its costs say nothing.
    """
    found: Counter[str] = Counter()
    send, commit = network.Pipe.send, SimulatedStore.commit

    def sent(pipe: network.Pipe, stanza: network.Stanza) -> None:
        found["stanzas"] += 1
        found["bytes of payloads"] += len(stanza.text.encode())
        send(pipe, stanza)

    async def committed(store: SimulatedStore, records: Sequence[Any], *on_delay: Any) -> None:
        found["commits"] += 1
        found["records"] += len(records)
        await commit(store, records, *on_delay)

    lines, before = Lines(), sys.gettrace()
    with (
        mock.patch.object(network.Pipe, "send", sent),
        mock.patch.object(SimulatedStore, "commit", committed),
    ):
        world = World(1, settings)
        gc.disable()
        sys.settrace(lines.trace)
        try:
            world.run()
        finally:
            sys.settrace(before)
            gc.enable()
            world.close()
    assert world.problems == []
    assert world.audit.accepted_results == settings.submissions[0].spec.count
    return {f"lines of {room}": n for room, n in lines.by_room.items()} | dict(found)


def warm() -> None:
    """Lets a small world happen first: what is imported and remembered once is not a task's."""
    [submission] = WORLD.submissions
    spec = msgspec.structs.replace(submission.spec, count=10)
    few = msgspec.structs.replace(submission, spec=spec)
    counts(msgspec.structs.replace(WORLD, submissions=[few]))


def recorded() -> dict[str, dict[str, int]]:
    """The counts that were recorded, by the version of Python."""
    return msgspec.json.decode(RECORD.read_bytes(), type=dict[str, dict[str, int]])


def grown(before: dict[str, int], now: dict[str, int]) -> dict[str, str]:
    """What costs more than it may, and how much."""
    return {
        what: f"{before.get(what, 0):,} -> {count:,}"
        for what, count in now.items()
        if count > before.get(what, 0) * (1 + GROWTH)
    }


if __name__ == "__main__":
    if sys.argv[1:] != ["record"]:
        raise SystemExit(__doc__)
    warm()
    found = (recorded() if RECORD.exists() else {}) | {PYTHON: counts()}
    RECORD.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
    print(RECORD.read_text(encoding="utf-8"))
