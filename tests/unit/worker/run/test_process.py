"""When the sessions of a worker process start what they have."""

from __future__ import annotations

import asyncio

import pytest
from msgspec import structs
from msgspec.structs import replace
from workerkit import Worker

from kestrelctl.core.agent.agent import Agent
from kestrelctl.core.agent.held_attempt import HeldAttempt
from kestrelctl.core.model.files.stored_file import Piece, StoredFile
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.stage import Stage
from kestrelctl.core.model.job.template import Template
from kestrelctl.core.model.result import Outcome, Result
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.protocol import codec, workers
from kestrelctl.worker.process import ONE_WISH_SECONDS
from kestrelctl.worker.run.executor import Completion


async def test_a_task_may_use_what_it_is_charged_unless_the_pool_says_more() -> None:
    """More is said where a policy charges less than was asked for."""
    worker = Worker(sessions=1)
    session = worker.process.sessions[0]
    session.agent.resize({"cpus": 3.0, "memory": 900.0, "disk": 900.0})
    worker.tell(
        session,
        workers.Run(
            spans=[(0, 1, 0, 1, 0, 0), (1, 1, 1, 1, 1, 0), (2, 1, 2, 1, 2, 0)],
            claims=[
                {"cpus": 1000, "memory": 64_000, "disk": 7_000},
                {"cpus": 1000, "memory": 64_000, "disk": 7_000},
                {"cpus": 1000},
            ],
            limits=[(1, {"memory": 100_000}), (2, {"disk": 9_000})],
            jobs=[Template(job_id=1, program=Program(argv=("true",)), count=3)],
        ),
    )
    await worker.turn()
    assert worker.executor.limits_bytes == [(64, 7), (100, 7), (0, 9)]


async def test_the_commands_of_stages_are_filled_as_that_of_the_task() -> None:
    worker = Worker(sessions=1)
    put = Stage(name="out", argv=("put", "{n}", "{i}", "{}"), time_limit_seconds=5.0, tries=3)
    spec = JobSpec(program=Program(argv=("true",), stages=(put,)), items=("a",), first=7)
    run = workers.Run(
        spans=[(0, 1, 0, 1, 0, 0)],
        claims=[{"cpus": 1000}],
        jobs=[Template.of(1, spec)],
        items=["a"],
    )
    worker.tell(worker.process.sessions[0], run)
    await worker.turn()
    assert worker.executor.stages == [(replace(put, argv=("put", "7", "0", "a")),)]


@pytest.mark.parametrize("join", [True, False])
async def test_a_task_writes_into_one_file_if_its_job_says_so(join: bool) -> None:
    worker = Worker(sessions=1)
    template = Template.of(1, JobSpec(program=Program(argv=("true",), join=join)))
    run = workers.Run(spans=[(0, 1, 0, 1, 0, 0)], claims=[{"cpus": 1000}], jobs=[template])
    worker.tell(worker.process.sessions[0], run)
    await worker.turn()
    assert worker.executor.joined == [join]


async def test_starts_give_way_to_everything_else() -> None:
    worker = Worker(sessions=10)
    worker.give(attempts=1)
    assert [len(await worker.turn()) for _ in range(4)] == [4, 4, 2, 0]


async def test_sessions_within_their_turn_go_on_and_the_others_follow() -> None:
    worker = Worker(sessions=8)
    worker.give(attempts=2)
    assert await worker.turn() == [0, 10, 20, 30], "in the order in which they came"
    worker.executor.complete(Completion(20, 0))
    worker.executor.complete(Completion(10, 0))
    assert await worker.turn() == [11, 21, 40, 50], "those that have begun, then the oldest"
    worker.executor.complete(Completion(0, 0))
    assert await worker.turn() == [1, 60, 70]


async def test_an_attempt_that_waits_for_its_turn_counts_as_queued() -> None:
    worker = Worker(sessions=5)
    worker.give(attempts=1)
    await worker.turn()
    agents = [session.agent for session in worker.process.sessions]
    assert [len(agent.running) for agent in agents] == [1, 1, 1, 1, 0]
    assert [len(agent.queue) for agent in agents] == [0, 0, 0, 0, 1]


async def test_a_result_is_reported_when_the_start_of_the_next_leaves_as_little_waiting() -> None:
    worker = Worker(sessions=1)
    worker.give(attempts=3)
    await worker.turn()
    worker.executor.complete(Completion(0, 0))
    assert worker.connection.sent == [], "two wait, and it is one"
    assert await worker.turn() == [1]
    await worker.turn()
    assert [report.results[0].number for report in worker.said] == [0]  # type: ignore[union-attr]


async def test_results_with_many_pieces_of_files_do_not_travel_in_one_message() -> None:
    piece = Piece(sha256="5a" * 32, size_bytes=1, url="https://share.pool/" + "x" * 200)
    stored = StoredFile(sha256="5a" * 32, size_bytes=300, pieces=(piece,) * 300)
    worker = Worker(sessions=1)
    worker.give(attempts=20)
    for number in range(20):
        await worker.turn()
        worker.executor.complete(
            Completion(number, 0, output_files=1, outputs=stored, stdout_stored=stored)
        )
    await worker.turn()
    assert worker.process.stored.files == {"outputs": 20, "logs": 20}
    reports = [said for said in worker.said if isinstance(said, workers.Report)]
    assert [result.stdout_stored for report in reports for result in report.results] == [
        stored
    ] * 20
    assert [result.outputs for report in reports for result in report.results] == [stored] * 20
    assert all(codec.fits(payload) for payload in worker.connection.sent)


async def test_an_attempt_that_was_killed_before_its_turn_does_not_start() -> None:
    worker = Worker(sessions=2)
    worker.give(attempts=2)
    worker.tell(worker.process.sessions[0], workers.Kill(numbers=[0]))
    worker.tell(worker.process.sessions[1], workers.Kill(numbers=[10, 11]))
    assert await worker.turn() == [1]


async def test_an_attempt_that_cannot_be_started_ends_and_makes_room() -> None:
    worker = Worker(sessions=3)
    worker.executor.broken_for = {0}
    worker.give(attempts=2)
    failures: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: failures.append(context["exception"]))
    assert await worker.turn() == [1, 10, 20], "nobody else is kept from starting"
    assert [str(failure) for failure in failures] == ["0"]
    await worker.turn()
    (report,) = worker.said
    assert isinstance(report, workers.Report)
    assert [(result.number, result.outcome) for result in report.results] == [(0, Outcome.UNABLE)]
    assert report.results[0].reason.startswith("no-resources: ")


async def test_a_session_that_fails_keeps_nobody_else_from_starting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails() -> None:
        raise ValueError("broken")

    worker = Worker(sessions=3)
    monkeypatch.setattr(worker.process.sessions[0], "next_command", fails)
    worker.give(attempts=1)
    failures: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: failures.append(context["exception"]))
    await worker.turn()
    assert await worker.turn() == [10, 20]
    assert [str(failure) for failure in failures] == ["broken"]


async def test_a_session_that_fails_keeps_nobody_else_from_reporting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails() -> None:
        raise ValueError("broken")

    worker = Worker(sessions=3)
    monkeypatch.setattr(worker.process.sessions[0], "report", fails)
    worker.give(attempts=1)
    await worker.turn()
    failures: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: failures.append(context["exception"]))
    for number in (0, 10, 20):
        worker.executor.complete(Completion(number, 0))
    for _ in range(3):
        await worker.turn()
    reports = [said for said in worker.said if isinstance(said, workers.Report)]
    assert [result.number for report in reports for result in report.results] == [10, 20]
    assert [str(failure) for failure in failures] == ["broken"]


async def test_nothing_starts_when_the_process_is_closed() -> None:
    worker = Worker(sessions=2)
    worker.give(attempts=1)
    await worker.process.close()
    worker.give(attempts=1)
    assert await worker.turn() == []
    assert worker.executor.started == []


async def test_what_waits_is_given_back_by_a_drain_between_hello_and_welcome() -> None:
    """The hello on its way names it; the pool would keep it here, and nobody would start it."""
    worker = Worker(sessions=1)
    worker.give(attempts=3)
    await worker.turn()
    worker.process.sessions[0].on_online()
    worker.process.on_signal()
    hello, *rest = worker.said
    assert isinstance(hello, workers.Hello)
    assert [number for number, *_ in hello.holds] == [0, 1, 2]
    assert rest == [workers.Leaving(), workers.Returned(numbers=[1, 2])]


async def test_a_drain_without_a_connection_says_nothing() -> None:
    worker = Worker(sessions=1)
    worker.give(attempts=3)
    await worker.turn()
    worker.connection.online = False
    worker.process.on_signal()
    assert worker.said == []


async def test_a_result_that_cannot_be_read_keeps_no_worker_from_starting() -> None:
    sound = b'[[2,1,0,0,1000.0,1.0],[2,1,0,1,77],"w0"]'
    without_seal = b"[1,1,0,0,1000.0,1.0]"
    no_text = sound.replace(b"w0", b"\xff")
    left = {1: b"nonsense", 2: sound, 3: b"[3]", 4: b'["4",{}]', 5: without_seal, 6: no_text}
    worker = Worker(sessions=1, left=left)
    assert list(worker.process.sessions[0].agent.unacknowledged) == [2]
    assert worker.spool.records == {2: sound}


async def test_each_session_reports_what_an_earlier_process_left_of_its_account() -> None:
    left = {
        n: b'[[%d,1,0,0,1000.0,1.0],[%d,1,0,1,77],"%s"]' % (n, n, account)
        for n, account in ((1, b"w1"), (2, b"w0"), (3, b"w1"), (4, b"gone"))
    }
    worker = Worker(sessions=3, left=left)
    assert [list(each.agent.unacknowledged) for each in worker.process.sessions] == [
        [2],
        [1, 3],
        [],
    ]
    worker.process.done.set()
    await worker.process.run()
    assert list(worker.spool.records) == [1, 2, 3]  # nobody could report the fourth


async def test_a_result_is_spooled_with_the_account_of_its_session() -> None:
    worker = Worker(sessions=2)
    worker.give(attempts=1)
    await worker.turn()
    worker.executor.complete(Completion(10, 0))
    await worker.turn()
    again = Worker(sessions=2, left=worker.spool.records)
    assert [list(each.agent.unacknowledged) for each in again.process.sessions] == [[], [10]]


async def test_what_ended_is_spooled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker(sessions=1)
    spooled: list[int] = []
    monkeypatch.setattr(
        worker.spool, "append", lambda records: spooled.extend(number for number, _ in records)
    )
    worker.give(attempts=2)
    for number in (0, 1):
        await worker.turn()
        worker.executor.complete(Completion(number, 0))
        await worker.turn()
    await worker.turn()
    assert spooled == [0, 1]


async def test_a_signal_in_the_last_minute_of_a_lifetime_ends_no_task() -> None:
    worker = Worker(sessions=1)
    worker.give(attempts=1)
    await worker.turn()
    worker.process.drain()
    worker.process.on_signal()
    assert not worker.process.stopped
    worker.clock.seconds += ONE_WISH_SECONDS
    worker.process.on_signal()
    assert worker.process.stopped


async def test_one_wish_to_end_that_is_heard_twice_ends_no_task() -> None:
    """The keeper passes on what `pkill -f` has told the worker, too."""
    worker = Worker(sessions=1)
    worker.give(attempts=1)
    await worker.turn()
    worker.process.on_signal()
    worker.clock.seconds += 0.01
    worker.process.on_signal()
    assert not worker.process.stopped
    assert worker.executor.killed == []


# -- what an earlier process has computed ----------------------------------------------------------


async def computed_by(worker: Worker, **claim: int) -> HeldAttempt:
    """What is written down of the attempt that the first session is given and starts."""
    template = Template(job_id=1, program=Program(argv=("true",), outputs=("*",)), count=3)
    run = workers.Run(spans=[(4, 1, 2, 1, 0, 77)], claims=[claim], jobs=[template], counts=[(4, 3)])
    worker.tell(worker.process.sessions[0], run)
    await worker.turn()
    [held] = worker.executor.held
    assert held is not None
    return held


async def test_a_process_holds_again_what_an_earlier_one_has_computed() -> None:
    before = Worker(sessions=1)
    now = Worker(sessions=2, computed=[await computed_by(before, cpus=1000)])
    assert now.executor.started == [4], "at once, whether or not the pool is there"
    first, second = now.process.sessions
    assert first.agent.holds() == before.process.sessions[0].agent.holds()
    assert second.agent.holds()[0] == []
    assert first.agent.free["cpus"] == 0
    now.executor.complete(Completion(4, 0, started_at=1000.0))
    first.agent.on_welcome(first.agent.greeting, [], 1000.0, 1000.0)
    await worker_reports(now)
    [report] = [message for message in now.said if isinstance(message, workers.Report)]
    assert [(r.number, r.job_id, r.index, r.outcome) for r in report.results] == [
        (4, 1, 2, Outcome.DONE)
    ]
    assert report.seals == [(4, 1, 2, 1, 77)]
    assert first.agent.free["cpus"] == 1000


async def test_each_task_leaves_its_files_in_a_directory_of_its_own() -> None:
    worker = Worker(sessions=1)
    template = Template(
        job_id=1,
        program=Program(argv=("true",), outputs=("*",), output_to="file:///shared/ada@pool/"),
        count=3,
        first=10,
        owner="ada@pool",
    )
    run = workers.Run(spans=[(4, 1, 1, 2, 0, 77)], claims=[{}], jobs=[template])
    worker.tell(worker.process.sessions[0], run)
    await worker.turn()
    assert worker.executor.places == [
        ("file:///shared/ada@pool/11", "ada@pool"),
        ("file:///shared/ada@pool/12", "ada@pool"),
    ]


async def test_an_attempt_of_another_pool_says_whose_it_is_though_it_has_no_files() -> None:
    worker = Worker(sessions=1)
    theirs = Template(
        job_id=1, program=Program(argv=("true",)), owner="bob@home.example", group="lab"
    )
    run = workers.Run(spans=[(4, 1, 0, 1, 0, 77)], claims=[{}], jobs=[theirs])
    worker.tell(worker.process.sessions[0], run)
    own = Template(job_id=2, program=Program(argv=("true",), join=True))
    run = workers.Run(spans=[(5, 2, 0, 1, 0, 77)], claims=[{}], jobs=[own])
    worker.tell(worker.process.sessions[0], run)
    await worker.turn()
    first, second = worker.executor.commands
    assert (first.owner, first.group) == ("bob@home.example", "lab")
    assert first.program == Program(argv=first.program.argv)
    assert (second.owner, second.group) == ("", "")


async def worker_reports(worker: Worker) -> None:
    for session in worker.process.sessions:
        worker.process.wants_to_report(session)
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def test_it_holds_the_same_units_again() -> None:
    before = Worker(sessions=1)
    session = before.process.sessions[0]
    session.agent.resize({"cpus": 1.0, "gpus": 2.0}, {"gpus": ("a", "b")})
    held = await computed_by(before, cpus=1000, gpus=1000)
    agent = Agent({"cpus": 1.0, "gpus": 2.0}, units={"gpus": ("a", "b")})
    assert agent.resume(held.again(5.0))
    assert agent.running[4].claim.units == {"gpus": ("a",)}
    assert agent.holds()[1] == session.agent.holds()[1]
    without = Agent({"cpus": 1.0, "gpus": 1.0}, units={"gpus": ("b",)})
    assert not without.resume(held.again(5.0))


async def test_what_does_not_fit_any_more_is_dropped() -> None:
    before = Worker(sessions=1)
    before.process.sessions[0].agent.resize({"cpus": 2.0})
    now = Worker(sessions=1, computed=[await computed_by(before, cpus=2000)])
    assert (now.executor.started, now.executor.killed) == ([], [4])
    assert now.process.sessions[0].agent.holds()[0] == []


async def test_what_another_account_has_computed_is_dropped() -> None:
    held = await computed_by(Worker(sessions=1), cpus=1000)
    now = Worker(sessions=1, computed=[structs.replace(held, account="somebody else")])
    running = asyncio.create_task(now.process.run())
    await asyncio.sleep(0)
    assert (now.executor.started, now.executor.killed) == ([], [4])
    now.process.done.set()
    await running


async def test_the_pool_ends_it_and_a_drained_worker_waits_for_it() -> None:
    now = Worker(sessions=1, computed=[await computed_by(Worker(sessions=1), cpus=1000)])
    session = now.process.sessions[0]
    now.process.drain()
    assert not now.process.done.is_set()
    now.tell(session, workers.Kill(numbers=[4]))
    assert now.executor.killed == [4]
    now.executor.complete(Completion(4, 0, reason="cancelled", started_at=1000.0))
    await worker_reports(now)
    now.tell(session, workers.Ack(numbers=[4]))
    assert now.process.done.is_set()


async def test_a_known_result_is_reported_and_not_made_again() -> None:
    held = await computed_by(Worker(sessions=1), cpus=1000)
    agent = Agent({"cpus": 1.0}, [(Result(4, 1, 2, Outcome.DONE, 0.0, 0.0), held.seal)])
    assert not agent.resume(held.again(5.0))


async def test_a_worker_that_is_stopped_says_so_first() -> None:
    worker = Worker(sessions=2)
    worker.process.stop()
    assert worker.said == [workers.Leaving(), workers.Leaving()]


# ---- what waits at the executor


async def ahead(attempts: int = 5) -> Worker:
    """A session of one processor, at whose executor some attempts wait behind the first."""
    worker = Worker(sessions=1)
    worker.executor.most_ahead = 3
    worker.process.sessions[0].most_ahead = 3
    worker.give(attempts=attempts)
    while await worker.turn():
        pass
    return worker


async def test_attempts_wait_at_the_executor_behind_one_of_their_lane() -> None:
    worker = await ahead()
    assert worker.executor.started == [0, 1, 2, 3]
    assert [command.waits for command in worker.executor.commands] == [False, True, True, True]
    [lane] = {command.lane for command in worker.executor.commands}
    assert lane > 0


async def test_sessions_have_lanes_of_their_own() -> None:
    worker = Worker(sessions=2)
    for session in worker.process.sessions:
        session.most_ahead = 1
    worker.give(attempts=2)
    while await worker.turn():
        pass
    lanes = {command.number: command.lane for command in worker.executor.commands}
    assert lanes[0] == lanes[1] != lanes[10] == lanes[11]


async def test_another_waits_there_when_one_has_begun() -> None:
    worker = await ahead()
    worker.process.on_begun(1, 2000.0)
    worker.executor.complete(Completion(0, 0))
    assert await worker.turn() == [4]
    assert worker.executor.begun == []


async def test_the_executor_is_told_to_begin_when_nothing_has_followed() -> None:
    worker = await ahead()
    worker.executor.complete(Completion(0, 0))
    assert await worker.turn() == [4]
    assert worker.executor.begun == [1]
    assert sorted(worker.process.sessions[0].agent.running) == [1]


async def test_a_recall_is_answered_once_and_when_it_is_known_what_has_begun() -> None:
    worker = await ahead()
    session = worker.process.sessions[0]
    worker.tell(session, workers.Recall(numbers=[1, 2, 3, 4]))
    assert worker.executor.withdrawn == [3, 2, 1]
    assert worker.said == []
    worker.process.on_begun(1, 2000.0)
    worker.process.on_withdrawn(2)
    worker.process.on_withdrawn(3)
    assert worker.said == [workers.Returned(numbers=[2, 3, 4])]


async def test_recalls_are_answered_in_their_order() -> None:
    worker = await ahead()
    session = worker.process.sessions[0]
    worker.tell(session, workers.Recall(numbers=[3, 4]))
    worker.tell(session, workers.Recall(numbers=[2]))
    worker.process.on_withdrawn(2)
    assert worker.said == []
    worker.process.on_withdrawn(3)
    assert worker.said == [workers.Returned(numbers=[3, 4]), workers.Returned(numbers=[2])]


async def test_a_drain_gives_back_what_waits_at_the_executor() -> None:
    worker = await ahead()
    worker.process.drain()
    assert worker.said == [workers.Leaving()]
    for number in (1, 2, 3):
        worker.process.on_withdrawn(number)
    assert worker.said == [workers.Leaving(), workers.Returned(numbers=[1, 2, 3, 4])]
    assert not worker.process.done.is_set()
    worker.executor.complete(Completion(0, 0))
    assert worker.process.sessions[0].agent.running == {}


async def test_a_drain_without_a_connection_leaves_nothing_at_the_executor() -> None:
    worker = await ahead()
    worker.connection.online = False
    worker.process.drain()
    assert worker.executor.withdrawn == [3, 2, 1]
    for number in (3, 2, 1):
        worker.process.on_withdrawn(number)
    session = worker.process.sessions[0]
    assert (list(session.agent.running), session.agent.waiting) == ([0], 0)
    assert worker.said == [], "the next hello names what is left"


async def test_a_resize_without_a_connection_leaves_nothing_at_the_executor() -> None:
    worker = await ahead()
    worker.connection.online = False
    worker.process.sessions[0].resize(WorkerAd(assets={"cpus": 2.0}))
    assert worker.executor.withdrawn == [3, 2, 1]
    assert worker.said == []


async def test_a_resize_has_what_waits_at_the_executor_wait_at_the_worker_again() -> None:
    worker = await ahead()
    session = worker.process.sessions[0]
    session.resize(WorkerAd(assets={"cpus": 2.0}))
    assert [type(said) for said in worker.said] == [workers.Resized]
    worker.process.on_begun(1, 2000.0)
    for number in (3, 2):
        worker.process.on_withdrawn(number)
    assert sorted(session.agent.running) == [0, 1]
    assert await worker.turn() == [2, 3, 4], "behind two that run"
    assert all(command.waits for command in worker.executor.commands[-3:])
    assert [type(said) for said in worker.said] == [workers.Resized], "nothing is given back"


async def test_what_waits_at_the_executor_is_killed_there() -> None:
    worker = await ahead()
    worker.tell(worker.process.sessions[0], workers.Kill(numbers=[2, 4]))
    assert worker.executor.killed == [2]
    worker.executor.complete(Completion(2, reason="cancelled"))
    await worker.turn()
    [report] = [said for said in worker.said if isinstance(said, workers.Report)]
    assert {result.number: result.outcome for result in report.results} == {
        2: Outcome.KILLED,
        4: Outcome.KILLED,
    }
