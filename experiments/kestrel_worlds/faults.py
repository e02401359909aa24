"""A seeded plan of faults, each of which passes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import TypeVar

from kestrel_worlds.nodes import Nodes
from kestrel_worlds.simulated_machine import SimulatedMachine
from kestrel_worlds.simulated_process import SimulatedProcess
from kestrel_worlds.simulation_clock import SimulationClock

T = TypeVar("T")
#: Something that can go wrong with a pool, for a number of seconds.
Kind = Callable[[Nodes, Random, float], None]
#: The most that a clock is set off: ten days.
MOST_SET_SECONDS = 864_000.0
#: A process dies in the middle of a turn after fewer callbacks than this.
MOST_CALLBACKS = 8


def plan(
    clock: SimulationClock,
    whom: T,
    random: Random,
    faults: int,
    within_seconds: float,
    kinds: Mapping[Callable[[T, Random, float], None], float],
    *,
    ended_per_second: float = 0.5,
    most_seconds: float = 12.0,
) -> None:
    """Lets this many faults begin in the first `within_seconds`; half begin soon after another.

    Args:
        whom: what the faults happen to.
        kinds: how often each kind comes, relative to the others.
        ended_per_second: the share of them that passes each second.
        most_seconds: the time after which each has passed.
    """
    begin = 0.0
    for _ in range(faults):
        kind = random.choices(list(kinds), list(kinds.values()))[0]
        seconds = min(random.expovariate(ended_per_second), most_seconds)
        if random.random() < 0.5:
            begin = random.uniform(0.0, within_seconds)
        else:
            begin = random.uniform(begin, min(begin + 0.5, within_seconds))
        clock.at(clock.start + begin, kind, whom, random, seconds)


def plan_resizes(nodes: Nodes, random: Random, resizes: int, within_seconds: float) -> None:
    """Lets workers offer less, or nothing, and as much as before a while later."""
    for _ in range(resizes):
        begin = nodes.clock.start + random.uniform(0.0, within_seconds)
        worker = _worker(nodes, random)
        for part in (random.choice((0.0, 0.0, 0.3, 0.6)), random.choice((0.3, 1.0)), 1.0):
            nodes.clock.at(begin, worker.resize, part)
            begin += random.choice((0.0, 0.01, 1.0, 5.0))


def _worker(nodes: Nodes, random: Random) -> SimulatedMachine:
    return random.choice(nodes.workers)


def _kill(process: SimulatedProcess, random: Random, back_after_seconds: float) -> None:
    """Kills a process like `kill -9`, between or within turns; later it is started again."""
    process.start_again(back_after_seconds)
    if random.random() < 0.5:
        process.kill()
    else:
        process.kill_in_a_turn(random.randrange(1, MOST_CALLBACKS))


def crash_worker(nodes: Nodes, random: Random, seconds: float) -> None:
    """Kills a worker like `kill -9`, and all that it runs; later it is started again."""
    worker = _worker(nodes, random)
    _kill(worker, random, seconds)


def hang_worker(nodes: Nodes, random: Random, seconds: float) -> None:
    """Silences a worker; its commands go on; later it speaks as if nothing had been."""
    worker = _worker(nodes, random)
    worker.stop()
    nodes.clock.after(seconds, worker.go_on)


def cut_worker(nodes: Nodes, random: Random, seconds: float) -> None:
    """Cuts a worker's network; sometimes the server notices, sometimes the process dies too."""
    worker = _worker(nodes, random)
    worker.cut()
    if random.random() < 0.4:
        nodes.clock.after(seconds * random.random(), worker.drop_at_server)
    if random.random() < 0.2:
        dies_after = seconds * random.random()
        nodes.clock.after(dies_after, _kill, worker, random, seconds - dies_after)
    nodes.clock.after(seconds, worker.heal)


def drop_worker(nodes: Nodes, random: Random, seconds: float) -> None:
    """Breaks a worker's connection, with what is in flight."""
    worker = _worker(nodes, random)
    if random.random() < 0.5:
        worker.drop_connection()
    else:
        worker.drop_at_server()


def leave(nodes: Nodes, random: Random, seconds: float) -> None:
    """Shuts a worker down in order; later it is started again."""
    worker = _worker(nodes, random)
    worker.terminate()
    worker.start_again(seconds)


def repeat_reports(nodes: Nodes, random: Random, seconds: float) -> None:
    """Makes a worker send its reports twice."""
    worker = _worker(nodes, random)
    nodes.clock.tell(worker.name, "repeats its reports")
    worker.repeats_reports = True
    nodes.clock.after(seconds, setattr, worker, "repeats_reports", False)


def break_machine(nodes: Nodes, random: Random, seconds: float) -> None:
    """Makes a worker fail everything that it is given, at once."""
    worker = _worker(nodes, random)
    nodes.clock.tell(worker.name, "fails everything")
    nodes.broken.add(worker.name)
    nodes.clock.after(seconds, nodes.broken.discard, worker.name)


def fill_disk(nodes: Nodes, random: Random, seconds: float) -> None:
    """Fills the disk of a worker's machine, which cannot start anything then."""
    worker = _worker(nodes, random)
    nodes.clock.tell(worker.name, "has a full disk")
    nodes.full.add(worker.name)
    nodes.clock.after(seconds, nodes.full.discard, worker.name)


def restart_server(nodes: Nodes, random: Random, seconds: float) -> None:
    """Kills the server with all connections; later it is started again."""
    nodes.clock.tell("server", "dies")
    nodes.server.stop()
    nodes.clock.after(min(seconds, 3.0), nodes.server.start)


def crash_manager(nodes: Nodes, random: Random, seconds: float) -> None:
    """Kills the manager like `kill -9`; what it had not committed is lost."""
    _kill(nodes.manager, random, min(seconds, 5.0))


def restart_manager(nodes: Nodes, random: Random, seconds: float) -> None:
    """Shuts the manager down in order; later it is started again."""
    nodes.manager.terminate()
    nodes.manager.start_again(min(seconds, 5.0))


def hang_manager(nodes: Nodes, random: Random, seconds: float) -> None:
    """Lets the manager's machine sleep."""
    nodes.manager.stop()
    nodes.clock.after(seconds, nodes.manager.go_on)


def drop_manager(nodes: Nodes, random: Random, seconds: float) -> None:
    """Breaks the manager's connection, with what is in flight."""
    if random.random() < 0.5:
        nodes.manager.drop_connection()
    else:
        nodes.manager.drop_at_server()


def cut_manager(nodes: Nodes, random: Random, seconds: float) -> None:
    """Cuts the manager's network for a while."""
    nodes.manager.cut()
    nodes.clock.after(seconds, nodes.manager.heal)


def slow_commits(nodes: Nodes, random: Random, seconds: float) -> None:
    """Keeps the disk busy."""
    nodes.clock.tell("store", "is slow")
    nodes.store.slowness = 10.0
    nodes.clock.after(seconds, setattr, nodes.store, "slowness", 1.0)


def fill_store(nodes: Nodes, random: Random, seconds: float) -> None:
    """Fills the manager's disk."""
    nodes.clock.tell("store", "is full")
    nodes.store.full = True
    nodes.clock.after(seconds, setattr, nodes.store, "full", False)


def drain(nodes: Nodes, random: Random, seconds: float) -> None:
    """Has an operator drain a worker and, later, resume it."""
    worker = _worker(nodes, random)
    nodes.clock.tell(worker.name, "is drained")
    nodes.operator.drain(worker.address)
    nodes.clock.after(seconds, nodes.operator.resume, worker.address)


def set_clock(nodes: Nodes, random: Random, seconds: float) -> None:
    """Sets a machine's clock off, by up to ten days either way; later it is set right."""
    process = random.choice((nodes.manager, *nodes.workers))
    if not process.alive:
        return
    nodes.clock.tell(process.name, "has its clock set")
    process.loop.wall_ahead_seconds = random.uniform(-MOST_SET_SECONDS, MOST_SET_SECONDS)
    nodes.clock.after(seconds, setattr, process.loop, "wall_ahead_seconds", 0.0)


#: Every kind of fault and how often it comes, relative to the others.
KINDS: dict[Kind, float] = {
    crash_worker: 4,
    hang_worker: 3,
    cut_worker: 3,
    drop_worker: 4,
    leave: 2,
    repeat_reports: 1,
    break_machine: 1,
    fill_disk: 1,
    restart_server: 2,
    crash_manager: 4,
    hang_manager: 1,
    drop_manager: 2,
    cut_manager: 1,
    restart_manager: 1,
    slow_commits: 2,
    fill_store: 1,
    drain: 2,
}


#: Faults for tasks that go on elsewhere.
CHECKPOINT_FAULTS: dict[Kind, float] = {
    crash_worker: 4,
    hang_worker: 3,
    cut_worker: 2,
    drop_worker: 2,
    leave: 5,
    drain: 5,
    crash_manager: 4,
    restart_server: 1,
    break_machine: 1,
    slow_commits: 2,
    repeat_reports: 1,
}
#: Faults that make managers start anew, and workers come back to them.
RESTARTS: dict[Kind, float] = {
    crash_manager: 6,
    restart_manager: 3,
    hang_manager: 1,
    crash_worker: 1,
    drop_worker: 2,
    cut_worker: 1,
    slow_commits: 1,
}
