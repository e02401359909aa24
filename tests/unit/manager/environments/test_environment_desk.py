"""Which environments, and which accounts, the manager takes away."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from neighbourskit import on_its_own_clock

from kestrelctl.core.classad.evaluation import Ad, Answer, Expression
from kestrelctl.core.environments.environment_class import EnvironmentClass, EnvironmentResources
from kestrelctl.core.environments.on_demand import HostRoom
from kestrelctl.core.environments.start_failures import FIRST_PAUSE_SECONDS
from kestrelctl.core.environments.started import EnvironmentPhase
from kestrelctl.core.events import Drain
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.errors import NotFound, Unreachable, UsageError
from kestrelctl.manager.caller import Caller
from kestrelctl.manager.environments.accounts import EnvironmentAccounts
from kestrelctl.manager.environments.answering import (
    MOST_FAILURES,
    MOST_HOSTS,
    EnvironmentRequests,
)
from kestrelctl.manager.environments.service import (
    AWAY_SECONDS,
    GIVES_UP_SECONDS,
    SETTLE_SECONDS,
    EnvironmentService,
)
from kestrelctl.manager.environments.table import FIRST_NUMBER, NODE_SETTLES_SECONDS, worker_name
from kestrelctl.protocol import codec
from kestrelctl.protocol.answers import EnvironmentList
from kestrelctl.protocol.requests import ListEnvironments
from kestrelctl.protocol.workers import (
    EndedEnvironment,
    EnvironmentsHere,
    HeldEnvironment,
    StartEnvironment,
    StopEnvironment,
)
from kestrelctl.store.kept_text import TextFile

HOST = "w@workers.pool/h"


class Accounts:
    """Writes down what is asked for.

    Attributes:
        server: clear it to have an invitation wait.
    """

    def __init__(self) -> None:
        self.invited: list[str] = []
        self.deleted: list[str] = []
        self.away = False
        self.server = asyncio.Event()
        self.server.set()

    async def invite(self, name: str, valid_seconds: float) -> tuple[str, str, int]:
        await self.server.wait()
        if self.away:
            raise Unreachable("the server is away")
        self.invited.append(name)
        return f"join-{name}@workers.pool", "secret", 0

    async def take_away(self, jid: str, by: str) -> None:
        if self.away:
            raise Unreachable("the server is away")
        self.deleted.append(jid)


def worker(jid: str, offline_since: float | None = None) -> Any:
    return SimpleNamespace(
        jid=jid, account=jid.partition("/")[0], online=offline_since is None, held={},
        offline_since=offline_since or 0.0, synced=True, draining=False, leaving=False,
        quarantined_until=0.0, free={"cpus": 4000}, ad=WorkerAd(),
    )  # fmt: skip


BIG = EnvironmentClass(name="big", kind="venv", hosts="Cpus > 4")


def desk(
    tmp_path: Path, *workers: Any, classes: Mapping[str, EnvironmentClass] | None = None
) -> tuple[EnvironmentService, Any, Accounts]:
    """A desk of a manager that knows these workers; with the manager's service."""
    loop = asyncio.get_running_loop()
    there = {each.jid: each for each in workers}
    pool = SimpleNamespace(epoch=1, workers=there, connected=True, unmet=lambda now: [])
    told: list[object] = []

    def handle(event: Drain) -> None:
        told.append(event)
        there[event.worker].draining = True

    service: Any = SimpleNamespace(
        pool=pool, now=loop.time, after_schedule=[], domain="pool", told=told,
        tell=lambda host, message: told.append((host, message)), handle=handle,
    )  # fmt: skip
    accounts = Accounts()
    gpu = EnvironmentClass(name="gpu", kind="venv", tags=("gpu",), maximum=2)
    mpi = EnvironmentClass(name="mpi", kind="venv", maximum=2, runs=("slurmd", "-N", "{name}"))
    lab = EnvironmentClass(name="lab", kind="venv", tags=("lab",))
    classes = classes or {"gpu": gpu, "mpi": mpi, "lab": lab}
    names = EnvironmentAccounts(TextFile(tmp_path / "names"))
    made = EnvironmentService(service, classes, {}, accounts, "workers.pool", names)
    return made, service, accounts


def here(*numbers: int, of: str = "gpu") -> EnvironmentsHere:
    held = [HeldEnvironment(n, of, False, False, of == "mpi") for n in numbers]
    return EnvironmentsHere(kinds=["venv"], here=held)


def ended(number: int, of: str, why: str) -> EnvironmentsHere:
    return EnvironmentsHere(kinds=["venv"], ended=[EndedEnvironment(number, of, why)])


@on_its_own_clock
async def test_a_host_that_is_away_for_a_moment_keeps_its_environments(tmp_path: Path) -> None:
    """After a restart of the server all are away for seconds."""
    host = worker(HOST)
    inside = worker(f"{worker_name('gpu', FIRST_NUMBER)}@workers.pool/x")
    found, service, accounts = desk(tmp_path, host, inside)
    found.on_here(HOST, here(FIRST_NUMBER))
    assert [each.phase for each in found.there()] == [EnvironmentPhase.READY]
    host.online, host.offline_since = False, service.now()
    await asyncio.sleep(AWAY_SECONDS - 5)
    assert [each.number for each in found.there()] == [FIRST_NUMBER]
    assert not accounts.deleted
    await asyncio.sleep(10)
    assert not found.there()
    await asyncio.sleep(1)
    assert accounts.deleted == [f"{worker_name('gpu', FIRST_NUMBER)}@workers.pool"]


@on_its_own_clock
async def test_what_a_host_was_starting_that_has_vanished_is_not_waited_for(tmp_path: Path) -> None:
    """Nobody knows whether it was started, so it is stopped when the host is back after all."""
    host = worker(HOST)
    found, service, accounts = desk(tmp_path, host)
    found.on_here(HOST, here(FIRST_NUMBER))
    host.online, host.offline_since = False, service.now()
    await asyncio.sleep(GIVES_UP_SECONDS - 1)
    assert [each.number for each in found.there()] == [FIRST_NUMBER]
    await asyncio.sleep(3)
    assert not found.there()
    assert found.failures.latest("gpu", HOST) is None, "it is no fault of the class"
    assert not accounts.deleted, "its worker may still join, and then is known by it"
    host.online = True
    found.on_here(HOST, here(FIRST_NUMBER))
    assert service.told == [(HOST, StopEnvironment(number=FIRST_NUMBER))]
    assert not found.there()
    found.on_here(HOST, here())
    await asyncio.sleep(1)
    assert accounts.deleted == [f"{worker_name('gpu', FIRST_NUMBER)}@workers.pool"]


@on_its_own_clock
async def test_what_was_given_up_and_joins_all_the_same_counts_again(tmp_path: Path) -> None:
    host = worker(HOST)
    found, service, accounts = desk(tmp_path, host)
    found.on_here(HOST, here(FIRST_NUMBER))
    host.online, host.offline_since = False, service.now()
    await asyncio.sleep(GIVES_UP_SECONDS + 2)
    assert not found.there()
    inside = worker(f"{worker_name('gpu', FIRST_NUMBER)}@workers.pool/x")
    service.pool.workers[inside.jid] = inside
    assert [each.phase for each in found.there()] == [EnvironmentPhase.READY]
    host.online = True
    found.on_here(HOST, here(FIRST_NUMBER))
    assert not service.told
    assert not accounts.deleted


@on_its_own_clock
async def test_hosts_have_time_to_come_back_from_the_moment_at_which_the_server_has(
    tmp_path: Path,
) -> None:
    host = worker(HOST)
    found, service, _ = desk(tmp_path, host)
    found.on_here(HOST, here(FIRST_NUMBER))
    host.online, host.offline_since = False, service.now()
    for connected in (False, True):
        service.pool.connected = connected
        for schedule in service.after_schedule:
            schedule()
        await asyncio.sleep(GIVES_UP_SECONDS - 1)
        assert [each.number for each in found.there()] == [FIRST_NUMBER]
    await asyncio.sleep(3)
    assert not found.there()


@on_its_own_clock
@pytest.mark.parametrize("how", ["draining", "leaving"])
async def test_on_a_host_that_is_drained_environments_get_nothing_new_either(
    tmp_path: Path, how: str
) -> None:
    host = worker(HOST)
    inside = worker(f"{worker_name('gpu', FIRST_NUMBER)}@workers.pool/x")
    inside.held = {1: "a task"}
    found, service, _ = desk(tmp_path, host, inside)
    found.on_here(HOST, here(FIRST_NUMBER - 1, FIRST_NUMBER))
    setattr(host, how, True)
    await asyncio.sleep(2)
    stop, drain = service.told
    assert stop == (HOST, StopEnvironment(number=FIRST_NUMBER - 1)), "it has not even started"
    assert isinstance(drain, Drain)
    assert (drain.worker, drain.by) == (inside.jid, "the pool: its host is drained")
    inside.held = {}
    await asyncio.sleep(2)
    assert service.told[2:] == [(HOST, StopEnvironment(number=FIRST_NUMBER))]


@on_its_own_clock
async def test_no_account_outlives_its_environment_when_all_are_killed_at_once(
    tmp_path: Path,
) -> None:
    """Nobody is left who knows of the environment, but for the list."""
    before, _, _ = desk(tmp_path, worker(HOST))
    before.on_here(HOST, here())
    ours = [before.start("gpu"), before.start("gpu")]
    await asyncio.sleep(1)
    there = worker(f"{ours[1].worker}@workers.pool/x")
    others = [worker(f"{name}@workers.pool/x", 0.0) for name in ("env-lab", "env-gpu-1", "w")]
    found, service, accounts = desk(tmp_path, there, *others)
    accounts.away = True
    for schedule in service.after_schedule:
        schedule()
    await asyncio.sleep(1.5 * AWAY_SECONDS)
    assert not accounts.deleted, "the server is away; it is tried again"
    accounts.away = False
    await asyncio.sleep(AWAY_SECONDS)
    assert accounts.deleted == [f"{ours[0].worker}@workers.pool"], "and not of one that is there"
    there.online = False
    await asyncio.sleep(AWAY_SECONDS + 2)
    assert accounts.deleted[1:] == [f"{ours[1].worker}@workers.pool"]
    assert (tmp_path / "names").read_text() == ""
    assert found.there() == []


@on_its_own_clock
async def test_one_that_was_stopped_for_being_late_has_failed_once(tmp_path: Path) -> None:
    found, service, _ = desk(tmp_path, worker(HOST))
    found.on_here(HOST, here())
    started = found.start("gpu")
    started.asked_for = False
    await asyncio.sleep(1)
    found.on_here(HOST, here(started.number))
    await asyncio.sleep(61)
    found.on_here(HOST, ended(started.number, "gpu", "late"))
    latest = found.failures.latest("gpu", HOST)
    assert latest is not None
    assert latest.times == 1
    assert [type(message).__name__ for _, message in service.told] == [
        "StartEnvironment", "StopEnvironment",
    ]  # fmt: skip


@on_its_own_clock
async def test_a_node_of_something_else_is_given_no_account(tmp_path: Path) -> None:
    found, service, accounts = desk(tmp_path, worker(HOST))
    found.on_here(HOST, here())
    found.start("mpi")
    found.start("gpu")
    await asyncio.sleep(1)
    mpi, gpu = [message for _, message in service.told]
    assert isinstance(mpi, StartEnvironment)
    assert isinstance(gpu, StartEnvironment)
    assert (mpi.jid, mpi.password, mpi.runs) == ("", "", ["slurmd", "-N", "{name}"])
    assert (gpu.jid, gpu.runs) == (f"join-{gpu.worker}@workers.pool", [])
    assert accounts.invited == [gpu.worker]
    found.on_here(HOST, ended(mpi.number, "mpi", ""))
    await asyncio.sleep(1)
    assert not accounts.deleted


@on_its_own_clock
async def test_a_node_that_ends_at_once_has_failed_and_a_later_end_is_its_own_affair(
    tmp_path: Path,
) -> None:
    found, _, _ = desk(tmp_path, worker(HOST))
    found.on_here(HOST, here())
    first, second = found.start("mpi"), found.start("mpi")
    found.on_here(HOST, here(first.number, second.number, of="mpi"))
    assert first.phase is EnvironmentPhase.READY
    await asyncio.sleep(NODE_SETTLES_SECONDS + 2)
    found.on_here(HOST, ended(first.number, "mpi", "its program has ended"))
    assert found.failures.latest("mpi", HOST) is None
    third = found.start("mpi")
    found.on_here(HOST, here(third.number, of="mpi"))
    await asyncio.sleep(NODE_SETTLES_SECONDS / 2)
    found.on_here(HOST, ended(third.number, "mpi", "its program has ended"))
    assert found.failures.latest("mpi", HOST) is not None


@on_its_own_clock
async def test_what_asks_again_and_again_is_kept_within_limits(tmp_path: Path) -> None:
    found, _, _ = desk(tmp_path, worker(HOST))
    found.on_here(HOST, here())
    with pytest.raises(UsageError, match="it is not known yet"):
        found.start("mpi", patient=True)
    await asyncio.sleep(SETTLE_SECONDS + 1)
    failed = found.start("mpi", patient=True)
    found.on_here(HOST, ended(failed.number, "mpi", "no such program"))
    with pytest.raises(UsageError, match="have failed of late"):
        found.start("mpi", patient=True)
    found.start("mpi")
    await asyncio.sleep(11)
    found.start("mpi", patient=True)
    with pytest.raises(UsageError, match="and no more may be"):
        found.start("mpi")


@on_its_own_clock
async def test_new_work_does_not_wait_for_the_next_round(tmp_path: Path) -> None:
    found, service, _ = desk(tmp_path, worker(HOST))
    found.on_here(HOST, here())
    found.start("gpu")
    await asyncio.sleep(5.5)
    asked: list[float] = []

    def unmet(now: float) -> list[Any]:
        asked.append(now)
        return []

    service.pool.unmet = unmet
    for schedule in service.after_schedule:
        schedule()
    happened = service.now()
    await asyncio.sleep(0.05)
    assert len(asked) == 1
    for _ in range(100):
        for schedule in service.after_schedule:
            schedule()
        await asyncio.sleep(0.001)
    assert len(asked) == 2, "much that happens is looked at together"
    assert asked[0] - happened < 0.05


@dataclass(eq=False)
class OneShape:
    """What waiting tasks ask for."""

    tag: str
    request: Mapping[str, int] = field(default_factory=lambda: {"cpus": 1000})


def lacks(tag: str, ad: WorkerAd) -> str | None:
    return None if not tag or tag in ad.tags else "missing-tags"


@on_its_own_clock
async def test_what_the_host_could_run_itself_starts_nothing_however_full_it_is(
    tmp_path: Path,
) -> None:
    found, service, _ = desk(tmp_path, worker(HOST))
    shapes = {tag: OneShape(tag) for tag in ("", "GPU")}
    waiting = [SimpleNamespace(shape=shapes[""], tasks=6)]
    service.pool.unmet = lambda now: waiting
    service.pool.would_fit = lambda shape, ad, jid: lacks(shape.tag, ad)
    await asyncio.sleep(5)
    found.on_here(HOST, here())
    await asyncio.sleep(5)
    assert (found.demand.needed["gpu"], found.there()) == (0, [])
    waiting.append(SimpleNamespace(shape=shapes["GPU"], tasks=1))
    found.on_here(HOST, here())
    await asyncio.sleep(1)
    assert (found.demand.needed["gpu"], len(found.there())) == (1, 1)


@on_its_own_clock
async def test_who_waits_is_told_of_classes_for_which_a_host_is_large_enough(
    tmp_path: Path,
) -> None:
    host = worker(HOST)
    host.ad = WorkerAd(assets={"cpus": 1.0})
    found, service, _ = desk(tmp_path, host)
    service.pool.would_fit = lambda shape, ad, jid: lacks(shape.tag, ad)
    wide = EnvironmentClass(
        name="wide", kind="venv", tags=("wide",), resources=EnvironmentResources(cpus=2.0)
    )
    found.classes["wide"], found._hosts_of["wide"] = wide, None  # type: ignore[index]
    shape: Any = OneShape("WIDE")
    found.on_here(HOST, here())
    assert found.coming_for(shape) == ([], None)
    found.on_here(HOST, here(FIRST_NUMBER))
    assert found.coming_for(shape) == (["wide"], None), "the host has what its environment has"


@on_its_own_clock
async def test_a_host_gives_way_to_what_it_could_run_without_its_environments(
    tmp_path: Path,
) -> None:
    host = worker(HOST)
    host.ad = WorkerAd(assets={"cpus": 1.0})
    found, service, _ = desk(tmp_path, host)
    service.pool.would_fit = lambda shape, ad, jid: None if ad.assets["cpus"] >= 2.0 else "small"
    shape: Any = OneShape("ANY")
    found.on_here(HOST, here())
    assert found.demand.gives_way(shape, found.hosts()) == ""
    found.on_here(HOST, here(FIRST_NUMBER))
    assert found.demand.gives_way(shape, found.hosts()) == HOST


@on_its_own_clock
async def test_who_waits_is_told_of_the_next_try_if_starts_fail_wherever_they_could_be(
    tmp_path: Path,
) -> None:
    other = "v@workers.pool/h"
    found, service, _ = desk(tmp_path, worker(HOST), worker(other))
    service.pool.would_fit = lambda shape, ad, jid: lacks(shape.tag, ad)
    shape: Any = OneShape("GPU")
    found.on_here(HOST, here())
    found.on_here(other, here())
    for host in (HOST, other):
        assert found.coming_for(shape) == (["gpu"], None)
        failed = found.start("gpu", host)
        found.on_here(host, ended(failed.number, "gpu", "no such image"))
    assert found.coming_for(shape) == (["gpu"], FIRST_PAUSE_SECONDS)
    await asyncio.sleep(FIRST_PAUSE_SECONDS - 1)
    assert found.coming_for(shape) == (["gpu"], 1.0)


@on_its_own_clock
async def test_it_is_decided_anew_only_if_something_has_changed_and_once_a_second(
    tmp_path: Path,
) -> None:
    """Each sign of life of a worker is followed by a look."""
    host, other = worker(HOST), worker("v@workers.pool/h")
    found, service, _ = desk(tmp_path, host, other)
    for each in (host, other):
        found.on_here(each.jid, here())
    own, gpu = OneShape(""), OneShape("GPU")
    waiting = [SimpleNamespace(shape=own, tasks=9)]
    service.pool.unmet = lambda now: list(waiting)
    decided: list[float] = []

    def would_fit(shape: OneShape, ad: WorkerAd, jid: str) -> str | None:
        decided.append(service.now())
        return lacks(shape.tag, ad)

    service.pool.would_fit = would_fit

    async def decisions(seconds: float) -> int:
        decided.clear()
        for _ in range(round(seconds / 0.1)):
            for schedule in service.after_schedule:
                schedule()
            await asyncio.sleep(0.1)
        return len(set(decided))

    await decisions(SETTLE_SECONDS + 1)
    assert await decisions(3) == 3
    waiting[0].tasks, host.free = 8, {"cpus": 3000}
    assert await decisions(0.5) <= 1, "of what no environment could run any number may wait"
    await asyncio.sleep(2)
    assert await decisions(0.3) == 1
    await asyncio.sleep(1.2)
    assert len(set(decided)) == 2, "what is not looked at, such as a policy, counts a second later"
    waiting.append(SimpleNamespace(shape=gpu, tasks=1))
    host.free = other.free = {"cpus": 500}
    assert await decisions(0.3) >= 1
    assert await decisions(3) == 3, "there is no room for what it needs"
    for change in (
        lambda: setattr(waiting[1], "tasks", 2),
        lambda: setattr(other, "online", False),
    ):
        await asyncio.sleep(1)
        await decisions(0.2)
        change()
        assert await decisions(0.3) == 1
    assert not found.there()
    host.free = {"cpus": 2000}
    await decisions(0.3)
    assert [each.of for each in found.there()] == ["gpu", "gpu"]


@on_its_own_clock
async def test_nobody_starts_more_than_the_class_allows(tmp_path: Path) -> None:
    found, _, _ = desk(tmp_path, worker(HOST))
    found.on_here(HOST, here())
    for _ in range(2):
        found.start("gpu")
    with pytest.raises(UsageError, match="there are 2 environments of class gpu"):
        found.start("gpu")


@on_its_own_clock
async def test_what_is_ordered_is_not_free_though_its_host_has_not_said_that_it_has_it(
    tmp_path: Path,
) -> None:
    """From then on the host offers less by itself."""
    found, _, _ = desk(tmp_path, worker(HOST), worker("v@workers.pool/h"))
    found.on_here(HOST, here())
    found.on_here("v@workers.pool/h", here())
    started = found.start("gpu", HOST)
    assert {room.name[0]: room.free["cpus"] for room in found.hosts()} == {"w": 3000, "v": 4000}
    found.on_here(HOST, here(started.number))
    assert {room.name[0]: room.free["cpus"] for room in found.hosts()} == {"w": 4000, "v": 4000}


@on_its_own_clock
async def test_a_class_that_starves_is_made_room_for_and_served_first(tmp_path: Path) -> None:
    """Others have more work than the pool can do, and so their environments never idle."""
    numbers = [FIRST_NUMBER - 1, FIRST_NUMBER]
    busy = [worker(f"{worker_name('gpu', number)}@workers.pool/x") for number in numbers]
    host = worker(HOST)
    found, service, _ = desk(tmp_path, host, *busy)
    host.free = {"cpus": 0}
    for each in busy:
        each.held = {1: "a task"}
    tags = ("GPU", "LAB")
    shapes = [OneShape(tag) for tag in tags]
    waiting = [SimpleNamespace(shape=shape, tasks=9) for shape in shapes]
    service.pool.unmet = lambda now: waiting
    service.pool.would_fit = lambda shape, ad, jid: lacks(shape.tag, ad)
    found.on_here(HOST, here(*numbers))
    await asyncio.sleep(5)
    assert not service.told
    await asyncio.sleep(10)
    [drain] = service.told
    assert isinstance(drain, Drain)
    assert (drain.worker, drain.cause) == (busy[1].jid, "pool@pool")
    assert "work for class lab has waited for 10 s" in drain.by
    assert [each.makes_room_for for each in found.there()] == ["", "lab"]
    busy[1].held = {}
    await asyncio.sleep(2)
    assert service.told[1:] == [(HOST, StopEnvironment(number=FIRST_NUMBER))]
    host.free = {"cpus": 1000}
    found.on_here(HOST, here(numbers[0]))
    await asyncio.sleep(1)
    assert [each.of for each in found.there()] == ["gpu", "lab"]


@on_its_own_clock
async def test_one_that_is_stopped_before_its_account_is_there_is_not_started(
    tmp_path: Path,
) -> None:
    host = worker(HOST)
    found, service, accounts = desk(tmp_path, host)
    found.on_here(HOST, here())
    accounts.server.clear()
    number = found.start("gpu").number
    await asyncio.sleep(1)
    found.stop(number)
    found.on_here(HOST, ended(number, "", ""))
    accounts.server.set()
    await asyncio.sleep(1)
    assert service.told == [(HOST, StopEnvironment(number=number))]
    assert not found.there()
    assert accounts.deleted == [f"{worker_name('gpu', number)}@workers.pool"]


@on_its_own_clock
async def test_one_that_is_stopped_while_the_server_is_away_has_not_failed(
    tmp_path: Path,
) -> None:
    found, _, accounts = desk(tmp_path, worker(HOST))
    found.on_here(HOST, here())
    accounts.server.clear()
    accounts.away = True
    number = found.start("gpu").number
    await asyncio.sleep(1)
    found.stop(number)
    accounts.server.set()
    await asyncio.sleep(1)
    assert not found.there()
    assert found.failures.latest("gpu", HOST) is None


async def listed(found: EnvironmentService, of: str = "", after: int = 0) -> EnvironmentList:
    """The answer to a list of environments, which fits into a message."""
    told: list[Any] = []
    caller = Caller("ada@users.pool/1", False, told.append)
    await EnvironmentRequests(found).list(caller, ListEnvironments(id="1", of=of, after=after))
    [answer] = told
    assert codec.fits(codec.encode(answer))
    return cast(EnvironmentList, answer)


@on_its_own_clock
async def test_a_list_fits_into_a_message_however_many_hosts_and_environments_there_are(
    tmp_path: Path,
) -> None:
    hosts = [worker(f"worker-{n}@workers.kestrel.example.org/host-{n}") for n in range(1_500)]
    found, _, _ = desk(tmp_path, *hosts)
    numbers = range(FIRST_NUMBER - 3_999, FIRST_NUMBER + 1)
    hosts[0].free = {"cpus": 0}
    found.on_here(hosts[0].jid, here(*reversed(numbers)))
    for host in hosts[1:]:
        found.on_here(host.jid, here())
        found.failures.failed("gpu", host.jid, found.now(), "no room on its disk " * 10)
    first = await listed(found)
    assert [(each.name, len(each.hosts), each.more_hosts) for each in first.classes] == [
        ("gpu", MOST_HOSTS // 3, 1_500 - MOST_HOSTS // 3),
        ("mpi", MOST_HOSTS // 3, 1_500 - MOST_HOSTS // 3),
        ("lab", MOST_HOSTS // 3, 1_500 - MOST_HOSTS // 3),
    ]
    assert [len(each.failures) for each in first.classes] == [MOST_FAILURES // 3, 0, 0]
    assert first.after is not None
    second = await listed(found, after=first.after)
    assert (second.classes, second.after) == ([], None)
    told = [each.number for page in (first, second) for each in page.environments]
    assert told == list(numbers)


@on_its_own_clock
async def test_of_a_class_that_is_asked_for_the_hosts_that_could_make_one_are_told_first(
    tmp_path: Path,
) -> None:
    hosts = [worker(f"worker-{n}@workers.kestrel.example.org/host-{n}") for n in range(1_500)]
    found, _, _ = desk(tmp_path, *hosts)
    for host in hosts[:-1]:
        host.free = {"cpus": 0}
    for host in hosts:
        found.on_here(host.jid, here())
        found.failures.failed("mpi", host.jid, found.now(), "no room on its disk " * 10)
    found.on_here(hosts[0].jid, here(FIRST_NUMBER, of="gpu"))
    found.on_here(hosts[1].jid, here(FIRST_NUMBER - 1, of="lab"))
    found.on_here(hosts[2].jid, here(FIRST_NUMBER - 2, of="lab"))
    found.book.known[FIRST_NUMBER - 2].makes_room_for = "gpu"
    answer = await listed(found, "gpu")
    [gpu] = answer.classes
    assert (gpu.name, len(gpu.hosts), gpu.more_hosts) == ("gpu", MOST_HOSTS, 1_000)
    assert [host.why_not for host in gpu.hosts[:2]] == ["", "it lacks 1 cpu"]
    assert gpu.hosts[0].host == hosts[-1].jid
    assert [each.number for each in answer.environments] == [FIRST_NUMBER - 2, FIRST_NUMBER]
    [mpi] = (await listed(found, "mpi")).classes
    assert len(mpi.failures) == MOST_FAILURES


@on_its_own_clock
async def test_a_class_that_is_asked_for_and_not_there_is_refused(tmp_path: Path) -> None:
    found, _, _ = desk(tmp_path)
    with pytest.raises(NotFound, match="no environment class art"):
        await listed(found, "art")


@on_its_own_clock
async def test_a_list_looks_at_the_hosts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a thousand hosts, a look for each of them and each class took minutes."""
    hosts = [worker(f"w{n}@workers.pool/h") for n in range(3)]
    found, _, _ = desk(tmp_path, *hosts)
    for each in hosts:
        found.on_here(each.jid, here())
    look, looks = found.hosts, 0

    def counted() -> list[HostRoom]:
        nonlocal looks
        looks += 1
        return look()

    monkeypatch.setattr(found, "hosts", counted)
    [gpu] = (await listed(found, "gpu")).classes
    assert [host.why_not for host in gpu.hosts] == [""] * 3
    assert looks == 1


@on_its_own_clock
async def test_where_a_class_may_be_is_found_out_when_a_host_says_something_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a pool of a thousand hosts, half of the manager's time would go into that."""
    evaluate, calls = Expression.evaluate, 0

    def counted(self: Expression, ad: Ad) -> Answer:
        nonlocal calls
        calls += 1
        return evaluate(self, ad)

    monkeypatch.setattr(Expression, "evaluate", counted)
    host = worker(HOST)
    found, _, _ = desk(tmp_path, host, classes={"big": BIG})
    found.on_here(HOST, here())
    assert [each.classes for each in (*found.hosts(), *found.hosts())] == [frozenset()] * 2
    assert calls == 1
    host.ad = WorkerAd(assets={"cpus": 8.0})
    assert [each.classes for each in found.hosts()] == [{"big"}]
    found.on_here(HOST, EnvironmentsHere(kinds=["docker"]))
    assert [each.classes for each in found.hosts()] == [frozenset()]
