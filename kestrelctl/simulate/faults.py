"""What goes wrong: a seeded plan of faults, each of which passes."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kestrelctl.simulate.worker import Worker
    from kestrelctl.simulate.world import World

#: Something that can go wrong: in a world, for so many seconds.
Kind = Callable[["World", Random, float], None]


def plan(
    world: World, random: Random, faults: int, within_seconds: float, kinds: dict[Kind, float]
) -> None:
    """Lets so many faults happen in the world's first `within_seconds`; they like company.

    Args:
        kinds: how often each comes, relative to the others.
    """
    begin = 0.0
    for _ in range(faults):
        kind = random.choices(list(kinds), list(kinds.values()))[0]
        seconds = min(random.expovariate(0.5), 12.0)
        if random.random() < 0.5:
            begin = random.uniform(0.0, within_seconds)
        else:
            begin += random.uniform(0.0, 0.5)
        world.clock.at(world.clock.start + begin, kind, world, random, seconds)


def _worker(world: World, random: Random) -> Worker:
    return random.choice(world.workers)


def crash_worker(world: World, random: Random, seconds: float) -> None:
    """kill -9 of a worker and all that it runs; later it is started again."""
    worker = _worker(world, random)
    worker.kill()
    world.clock.after(seconds, worker.start)


def hang_worker(world: World, random: Random, seconds: float) -> None:
    """A worker falls silent; its commands go on; later it speaks as if nothing had been."""
    worker = _worker(world, random)
    worker.stop()
    world.clock.after(seconds, worker.go_on)


def cut_worker(world: World, random: Random, seconds: float) -> None:
    """A worker's network is gone; sometimes the server notices, sometimes the process dies too."""
    worker = _worker(world, random)
    worker.cut()
    if random.random() < 0.4:
        world.clock.after(
            seconds * random.random(), lambda: world.server.drop(worker.name, lossy=True)
        )
    if random.random() < 0.2:
        world.clock.after(seconds * random.random(), worker.kill)
        world.clock.after(seconds, worker.start)
    world.clock.after(seconds, worker.heal)


def drop_worker(world: World, random: Random, seconds: float) -> None:
    """A worker's connection breaks, with what is in flight."""
    worker = _worker(world, random)
    world.clock.tell(worker.name, "has its connection broken")
    if random.random() < 0.5:
        worker.drop_connection()
    else:
        world.server.drop(worker.name, lossy=True)


def leave(world: World, random: Random, seconds: float) -> None:
    """A worker is shut down in order; later it is started again."""
    _worker(world, random).leave(seconds)


def repeat_reports(world: World, random: Random, seconds: float) -> None:
    """A worker says everything twice."""
    worker = _worker(world, random)
    world.clock.tell(worker.name, "repeats its reports")
    worker.repeats_reports = True
    world.clock.after(seconds, setattr, worker, "repeats_reports", False)


def break_machine(world: World, random: Random, seconds: float) -> None:
    """A worker fails everything that it is given, at once."""
    worker = _worker(world, random)
    world.clock.tell(worker.name, "fails everything")
    world.broken.add(worker.name)
    world.clock.after(seconds, world.broken.discard, worker.name)


def fill_disk(world: World, random: Random, seconds: float) -> None:
    """A worker's machine cannot start anything."""
    worker = _worker(world, random)
    world.clock.tell(worker.name, "has a full disk")
    world.full.add(worker.name)
    world.clock.after(seconds, world.full.discard, worker.name)


def restart_server(world: World, random: Random, seconds: float) -> None:
    """The server dies with all connections."""
    world.clock.tell("server", "dies")
    world.server.stop()
    world.clock.after(min(seconds, 3.0), world.server.start)


def crash_manager(world: World, random: Random, seconds: float) -> None:
    """kill -9 of the manager; what it had not committed is lost."""
    world.manager.kill()
    world.clock.after(min(seconds, 5.0), world.manager.start)


def hang_manager(world: World, random: Random, seconds: float) -> None:
    """The manager's machine sleeps."""
    world.manager.stop()
    world.clock.after(seconds, world.manager.go_on)


def drop_manager(world: World, random: Random, seconds: float) -> None:
    """The manager's connection breaks, with what is in flight."""
    world.clock.tell("manager", "has its connection broken")
    if random.random() < 0.5:
        world.manager.drop_connection()
    else:
        world.server.drop(world.server.MANAGER, lossy=True)


def cut_manager(world: World, random: Random, seconds: float) -> None:
    """The manager's network is gone for a while."""
    world.manager.cut()
    world.clock.after(seconds, world.manager.heal)


def slow_commits(world: World, random: Random, seconds: float) -> None:
    """The disk is busy."""
    world.clock.tell("store", "is slow")
    world.store.slowness = 10.0
    world.clock.after(seconds, setattr, world.store, "slowness", 1.0)


def drain(world: World, random: Random, seconds: float) -> None:
    """An operator drains a worker and, later, has it back."""
    worker = _worker(world, random)
    world.users.drain(worker.name)
    world.clock.after(seconds, world.users.resume, worker.name)


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
    slow_commits: 2,
    drain: 2,
}
