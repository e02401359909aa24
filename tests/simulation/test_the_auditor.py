"""The worlds are worth something only if they find defects: here some are planted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from random import Random

import msgspec
import pytest

import kestrel_worlds
from kestrel_worlds import WorldSettings, faults
from kestrel_worlds.faults import Kind
from kestrel_worlds.nodes import Nodes
from kestrel_worlds.stage_audit import StageAudit
from kestrel_worlds.workload import OWNERS, ShareSetting, Submission, TokenChange
from kestrelctl.core import effects, pool
from kestrelctl.core.agent.agent import Agent, LocalAttempt
from kestrelctl.core.attempts import adoption, pairs
from kestrelctl.core.attempts.estimates import note_refusal
from kestrelctl.core.events import Event, Heard, TasksClosed
from kestrelctl.core.features import table
from kestrelctl.core.features.hold import HOLD
from kestrelctl.core.handlers import recovery, reporting, verdict
from kestrelctl.core.handlers.membership import on_heard
from kestrelctl.core.jobs.attempt import Attempt
from kestrelctl.core.jobs.fair_share import Sharer, Sharers
from kestrelctl.core.jobs.job import Job, Task
from kestrelctl.core.jobs.quota import Quota
from kestrelctl.core.jobs.tokens import Tokens, TokensLeft
from kestrelctl.core.members.outline import Outline
from kestrelctl.core.members.worker import Worker
from kestrelctl.core.model.config import Config
from kestrelctl.core.model.end_reason import EndReason
from kestrelctl.core.model.job.light_spec import Apart
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.core.model.records import JobRecord, TaskRecord
from kestrelctl.core.model.result import Outcome, Result
from kestrelctl.core.model.share_change import ShareChange
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.model.worker.assets import Amounts
from kestrelctl.core.model.worker.claim import Claim
from kestrelctl.core.model.worker.significance import Significance
from kestrelctl.core.pool import _HANDLERS, Pool
from kestrelctl.core.scheduling import match
from kestrelctl.core.scheduling.together import Members, Together
from kestrelctl.core.state import State
from kestrelctl.manager.commits import GroupCommit
from kestrelctl.manager.sending.acknowledgements import Acknowledgements
from kestrelctl.manager.service import Service
from kestrelctl.protocol import workers
from kestrelctl.store.port import StoreRecord
from kestrelctl.worker.connection import session
from kestrelctl.worker.connection.session import WorkerSession
from kestrelctl.worker.process import WorkerProcess


def is_found(
    problem: str,
    seeds: int = 60,
    settings: kestrel_worlds.WorldSettings | None = None,
    first: int = 0,
) -> bool:
    """Whether one of so many worlds, from this seed on, shows the problem.

    Where few do, `first` is one that did when it was looked for: those before it take long.
    """
    return any(
        problem in line
        for seed in range(first, first + seeds)
        for line in kestrel_worlds.run(seed, settings).problems
    )


def trouble(*kinds: Kind, job: JobSpec, cancel_after_seconds: float | None = None) -> WorldSettings:
    """Three workers and one job, while this goes wrong again and again."""
    submission = Submission(at_seconds=0.5, spec=job, cancel_after_seconds=cancel_after_seconds)
    return WorldSettings(
        ads=[WorkerAd(assets={"cpus": 4.0})] * 3,
        submissions=[submission],
        faults=12,
        fault_kinds=dict.fromkeys(kinds, 1.0),
        fault_seconds=6.0,
        latency_seconds=(0.01, 0.1),
    )


def test_a_task_that_starts_before_the_end_of_its_parents_is_durable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def feed_at_once(state: State, records: list[TaskRecord]) -> None:
        for record in records:
            span = [(record.index, record.index)]
            done = record.state is TaskState.DONE
            event = TasksClosed(
                at=state.at,
                job_id=record.job_id,
                done=span if done else [],
                bad=[] if done else span,
            )
            pairs.on_tasks_closed(state, event)

    monkeypatch.setattr(pairs, "feed_ends", feed_at_once)
    assert is_found("starts before that of job")


def test_a_task_that_does_not_wait_for_its_parents(monkeypatch: pytest.MonkeyPatch) -> None:
    def all_done(state: State, parent: int, ended: object) -> tuple[object, list[object]]:
        job = state.job(parent)
        return [(0, job.spec.count - 1)] if job is not None else [], []

    monkeypatch.setattr(pairs, "_how_far", all_done)
    assert is_found("starts before that of job")


def test_an_expression_that_nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(match, "expressions_refuse", lambda shape, cls: None)
    assert is_found("against Refusal(reason=<Reason.")


def test_members_of_which_some_start_without_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    find = Together.members

    def one_too_few(
        self: Together, job: Job, left: int, before: int, affordable: Callable[[Claim], bool]
    ) -> Members:
        found = find(self, job, left, before, affordable)
        return found if found.places is None else Members(found.places[:-1], False)

    monkeypatch.setattr(Together, "members", one_too_few)
    assert is_found("are handed out", first=16)


def test_a_member_that_is_done_before_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """One world in four has such a job; that one member is over then ends the others."""
    monkeypatch.setattr(reporting, "_is_early", lambda state, worker, result: False)
    assert is_found("though no member of it has failed", first=14)


def test_a_computation_that_runs_again_because_what_follows_it_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(EndReason, "has_computed", False)
    assert is_found("and only the end of its files had failed", first=6)


def test_a_task_that_is_over_and_is_handed_out() -> None:
    """It has failed, durably, and nobody had it brought back."""
    audit = StageAudit()
    audit.only_out_failed(70)
    failed = Result(70, 1, 4, Outcome.FAILED, 0.0, 0.0)
    row = TaskRecord(1, 4, TaskState.FAILED, 1, 0, "w", failed)
    assert audit.row(row) == ""
    assert list(audit.handed_out((80, 1, 3, 3, 0))) == [
        "task 1/4 runs again as 81: only its stage out had failed"
    ]
    audit.decided(msgspec.structs.replace(row, state=TaskState.WAITING, failures=0, result=None))
    assert list(audit.handed_out((80, 1, 3, 3, 0))) == []


def test_tokens_that_are_handed_out_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TokensLeft, "times_free", lambda self, wanted: 1000)
    assert is_found("seats are used at once")


def test_tokens_that_are_handed_out_while_it_is_not_known_who_has_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    free = Tokens.free

    def hasty(self: Tokens, name: str, wanted: Amounts | None = None) -> int:
        self.settled = True
        return free(self, name, wanted)

    monkeypatch.setattr(Tokens, "free", hasty)
    spec = JobSpec(
        program=Program(argv=("t",)), name="long", count=12, request={"cpus": 1.0, "seats": 1.0}
    )
    world = msgspec.structs.replace(
        trouble(faults.crash_manager, job=spec), tokens=(TokenChange(0.0, "seats", 5),)
    )
    assert is_found("seats are used at once", settings=world)


def test_tokens_that_come_back_and_nobody_is_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "take_lacking", lambda state: [])
    assert is_found("idles while tasks wait")


def test_quotas_that_come_back_and_nobody_is_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "ease", lambda state, eased: None)
    assert is_found("idles while tasks wait", first=38)


def test_quotas_that_count_what_is_handed_out_and_not_what_comes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    take = Quota.take
    monkeypatch.setattr(Quota, "take", lambda self, amounts, n: take(self, amounts, abs(n)))
    assert is_found("is counted to have")


def test_quotas_that_hold_nobody_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Quota, "room", lambda self, amounts, most: most)
    monkeypatch.setattr(Quota, "is_full", False)
    # One in five of these worlds shows it.
    assert is_found("thousandths of")


def members(*kinds: Kind) -> WorldSettings:
    """Two owners who may have four tasks at once together, while this goes wrong."""
    world = trouble(*kinds, job=JobSpec(program=Program(argv=("t",)), name="long", count=12))
    shares = [ShareSetting(0.0, "physics", ShareChange(max_running=4))]
    shares += [ShareSetting(0.3, name, ShareChange(), "physics") for name in OWNERS[:2]]
    jobs = [msgspec.structs.replace(world.submissions[0], owner=name) for name in OWNERS[:2]]
    return msgspec.structs.replace(world, submissions=jobs, shares=tuple(shares))


def test_quotas_of_a_group_that_each_member_has_for_himself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bind = Sharers.bind

    def each(self: Sharers) -> None:
        bind(self)
        for sharer in self.users():
            sharer.quotas = tuple(quota.copy() for quota in sharer.quotas)

    monkeypatch.setattr(Sharers, "bind", each)
    # Each of these worlds shows it.
    assert is_found("thousandths of attempts of physics", 3, members(faults.drain))


def test_quotas_that_count_from_nothing_after_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Quota, "settled", property(lambda _: True, lambda *_: None), False)
    # One in seven of these worlds shows it.
    assert is_found("thousandths of attempts of physics", settings=members(faults.crash_manager))


def test_workers_that_are_not_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Significance, "learn", lambda self, interest: False)
    assert is_found("against Refusal(reason=<Reason.") or is_found("idles while tasks wait")


def test_a_result_acknowledged_before_its_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effects.Acknowledge, "after_commit", False)
    assert is_found("was acknowledged and dropped")


def test_a_job_acknowledged_before_its_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effects.Answer, "after_commit", False)
    assert is_found("was acknowledged twice")


def test_a_task_that_is_said_to_be_over_before_its_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effects.TasksEnded, "after_commit", False)
    assert is_found("was said to be over before its commit", seeds=5)


def test_a_worker_that_reports_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def on_welcome(
        self: Agent, greeting: int, kill: Sequence[int], now: float, wall: float
    ) -> list[int]:
        self.welcomed = True
        return self.on_kill(kill, now, wall)

    monkeypatch.setattr(Agent, "on_welcome", on_welcome)
    assert is_found("the world does not come to rest")


def test_a_worker_that_runs_too_much_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    start_next = Agent.start_next

    def boundless(agent: Agent, now: float) -> LocalAttempt | None:
        agent.free = dict.fromkeys(agent.free, 1 << 40)
        return start_next(agent, now)

    monkeypatch.setattr(Agent, "start_next", boundless)
    monkeypatch.setattr(Agent, "can_start", property(lambda self: bool(self.waiting)))
    assert is_found("at once, it has")


def test_kills_that_are_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    do = Service._do

    def forgetful(self: Service, effect: effects.Effect) -> None:
        if not isinstance(effect, effects.Kill):
            do(self, effect)

    monkeypatch.setattr(Service, "_do", forgetful)
    assert is_found("runs though its task is over", first=7)


def test_attempts_that_a_hello_brings_back_to_life(monkeypatch: pytest.MonkeyPatch) -> None:
    keep = adoption._keep

    def credulous(state: State, worker: Worker, number: int, task: Task, claim: Claim) -> bool:
        task.concluded = 0
        return keep(state, worker, number, task, claim)

    monkeypatch.setattr(adoption, "_keep", credulous)
    assert is_found("was accepted twice", seeds=400, first=88)


def test_tasks_of_a_cancelled_job_that_wait_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def put_back(state: State, task: Task, jid: str) -> None:
        task.job.make_ready(task)
        state.touch_job(task.job)

    monkeypatch.setattr(recovery, "put_back", put_back)
    world = trouble(
        faults.crash_manager,
        faults.crash_worker,
        job=JobSpec(program=Program(argv=("t",)), name="long", count=12),
        cancel_after_seconds=1.0,
    )
    # About one in sixty of these worlds comes to the moment that shows it.
    assert is_found("cancelled task", seeds=400, settings=world, first=242)


def test_results_acknowledged_while_their_commit_is_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A report that comes twice brings nothing new: its acknowledgement waits for a commit only."""
    monkeypatch.setattr(
        GroupCommit, "_committing", property(lambda _: False, lambda *_: None), False
    )
    world = trouble(
        faults.repeat_reports,
        faults.slow_commits,
        job=JobSpec(program=Program(argv=("t",)), name="medium", count=200),
    )
    assert is_found("was acknowledged and dropped", settings=world)


def test_results_reported_before_they_are_spooled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WorkerProcess, "wants_to_report", lambda self, worker: worker.report())
    assert is_found("is reported before it is spooled")


def test_acknowledgements_that_wait_for_company_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Acknowledgements, "send_all", lambda _: None)
    assert is_found("the world does not come to rest")


def test_a_worker_that_does_not_hear_kills(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WorkerSession, "_on_kill", lambda *_: None)
    assert is_found("runs on", first=7)


def test_attempts_that_come_before_the_welcome(monkeypatch: pytest.MonkeyPatch) -> None:
    on_run = WorkerSession._on_run

    def hasty(self: WorkerSession, message: workers.Run) -> None:
        welcomed, self.agent.welcomed = self.agent.welcomed, True
        on_run(self, message)
        self.agent.welcomed = welcomed and self.agent.welcomed

    monkeypatch.setattr(WorkerSession, "_on_run", hasty)
    # Workers that say hello often: more of it is under way when attempts come.
    monkeypatch.setattr(session, "LONGEST_NOBODY_SECONDS", session.NOBODY_SECONDS)
    # One in two hundred and fifty of these worlds shows it: four of the first thousand.
    assert is_found("is held by one side only", seeds=400, first=943)


def test_a_shell_that_is_late_to_wake_the_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    set_timer = Service._set_timer

    def lazy(self: Service, moment: float) -> None:
        if self._timer is None:
            set_timer(self, moment)

    monkeypatch.setattr(Service, "_set_timer", lazy)
    assert is_found("the pool is woken")


def test_events_that_are_not_fed_back(monkeypatch: pytest.MonkeyPatch) -> None:
    do = Service._do

    def deaf(self: Service, effect: effects.Effect) -> None:
        if not isinstance(effect, effects.Feed):
            do(self, effect)

    monkeypatch.setattr(Service, "_do", deaf)
    assert is_found("never ended", seeds=5)


def test_signs_of_life_that_renew_no_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(state: State, event: Heard) -> None:
        worker = state.workers.get(event.worker)
        lease_until = worker.lease_until if worker else 0.0
        on_heard(state, event)
        if worker:
            worker.lease_until = lease_until

    kind: type[Event] = Heard
    monkeypatch.setitem(_HANDLERS, kind, forgetful)
    assert is_found("is given up though it is well")


def test_a_user_who_waits_for_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def long(nodes: Nodes, random: Random, seconds: float) -> None:
        faults.fill_store(nodes, random, 30.0)

    monkeypatch.setattr(Service, "_refuse_answers", lambda *_: None)
    world = WorldSettings(
        ads=[WorkerAd()],
        submissions=[
            Submission(at_seconds=at, spec=JobSpec(program=Program(argv=("t",)), name="short"))
            for at in (1.0, 3.0, 5.0, 7.0)
        ],
        faults=3,
        fault_kinds={long: 1.0},
        fault_seconds=40.0,
    )
    assert is_found("is not answered", settings=world)


def test_a_hold_that_holds_nothing_back(monkeypatch: pytest.MonkeyPatch) -> None:
    others = tuple(each for each in table.FEATURES if each is not HOLD)
    monkeypatch.setattr(table, "FEATURES", (*others, msgspec.structs.replace(HOLD, gate=None)))
    assert is_found("is handed out, which is on hold", seeds=20)


def test_a_hold_that_a_restart_forgets(monkeypatch: pytest.MonkeyPatch) -> None:
    restored = State.restored_job

    def forgetful(self: State, record: JobRecord, apart: Apart | None = None) -> Job:
        return restored(self, msgspec.structs.replace(record, hold=None), apart)

    monkeypatch.setattr(State, "restored_job", forgetful)
    assert is_found("a manager starts with the holds")


def test_leases_that_never_run_out(monkeypatch: pytest.MonkeyPatch) -> None:
    handle = Pool.handle

    def hopeful(self: Pool, event: Event) -> list[effects.Effect]:
        for worker in self.state.workers.values():
            worker.lease_until = float("inf")
        return handle(self, event)

    monkeypatch.setattr(Pool, "handle", hopeful)
    world = kestrel_worlds.WorldSettings(
        ads=[WorkerAd()],
        submissions=[],
        faults=8,
        fault_kinds={faults.hang_worker: 1.0},
        fault_seconds=60.0,
        config=Config(min_heartbeat_seconds=1.0, late_seconds=0.5),
    )
    problems = [line for seed in range(5) for line in kestrel_worlds.run(seed, world).problems]
    assert any("w0 is believed to be there" in line for line in problems)


def test_an_attempt_that_is_charged_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Say, because its end is written twice."""
    commit = GroupCommit._commit

    async def write_the_first_end_twice(self: GroupCommit, records: list[StoreRecord]) -> bool:
        ends = (record for record in records if isinstance(record, TaskRecord) and record.result)
        return await commit(self, [*records, *islice(ends, 1)])

    monkeypatch.setattr(GroupCommit, "_commit", write_the_first_end_twice)
    assert is_found("is charged", seeds=3)


# -- assets of unknown capacity: of calm worlds at least four in five show each of these -----------


def is_found_among(worlds: Callable[[int], WorldSettings], problem: str, seeds: int = 6) -> bool:
    """Whether one of so many worlds of a sort shows the problem."""
    return any(
        problem in line
        for seed in range(seeds)
        for line in kestrel_worlds.run(seed, worlds(seed)).problems
    )


def test_refusals_that_count_as_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdict, "refused_asset", lambda *_: "")
    # One in five of these worlds shows it.
    assert is_found("was refused, and that is counted against it", first=11)


def test_an_estimate_that_falls_twice_for_one_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def twice(state: State, worker: Worker, asset: str, attempt: Attempt) -> None:
        for _ in range(2):
            worker.outlines[asset].fell = 0
            note_refusal(state, worker, asset, attempt)

    monkeypatch.setattr(verdict, "note_refusal", twice)
    assert is_found_among(kestrel_worlds.calm, "less than")


def test_an_estimate_that_falls_for_what_was_sent_before_it_fell(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Outline, "fell", property(lambda _: 0, lambda *_: None), False)
    # One in thirty of these worlds shows it.
    assert is_found("falls, and nothing was refused", seeds=200, first=25)


def test_an_estimate_that_does_not_fall(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdict, "note_refusal", lambda *_: None)
    assert is_found_among(kestrel_worlds.calm, "lets in too many")


def test_an_estimate_that_falls_to_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Outline, "after_refusal", lambda *_: 0)
    assert is_found_among(kestrel_worlds.calm, "is less than one unit of")


def test_an_estimate_that_does_not_rise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporting, "note_success", lambda *_: None)
    assert is_found_among(kestrel_worlds.calm, "has not reached")


def test_an_estimate_that_rises_for_what_was_sent_before_it_rose(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Outline, "changed", property(lambda _: 0, lambda *_: None), False)
    assert is_found_among(kestrel_worlds.calm, "is far above")


def test_a_worker_that_rests_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "try_one", lambda *_: None)
    job = JobSpec(
        program=Program(argv=("t",)), name="medium", count=3, request={"cpus": 1.0, "db": 1.0}
    )
    world = WorldSettings(
        ads=[WorkerAd(unknown={"db": 75})],
        hidden=({"db": 0.0},),
        submissions=[Submission(at_seconds=0.5, spec=job, cancel_after_seconds=20.0)],
    )
    assert is_found("has rested, and nobody tries", 1, world)


# -- shares: of worlds of their sort at least half show each of these ------------------------------


def test_shares_that_are_rounded_and_never_evened_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sharers, "_find_leads", lambda *_: None)
    assert is_found_among(kestrel_worlds.shared, "of all, and not")


def test_weights_that_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sharers, "_weights", lambda _, active: [1.0] * len(active))
    assert is_found_among(kestrel_worlds.shared, "of all, and not")


def test_members_of_a_group_who_each_have_all_its_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    def each(self: Sharers, active: Sequence[Sharer]) -> list[float]:
        return [self.group(one.record.group).weight * one.record.weight for one in active]

    monkeypatch.setattr(Sharers, "_weights", each)
    assert is_found_among(kestrel_worlds.shared, "of all, and not")


def first_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """Owners are served in the order in which they came."""
    monkeypatch.setattr(Sharer, "held_for_share", 0.0)
    monkeypatch.setattr(Sharer, "hand", lambda *_: None)


def test_an_owner_who_waits_until_another_wants_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    first_come(monkeypatch)
    assert is_found_among(kestrel_worlds.shared, "starves")


def test_few_tasks_behind_many_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    first_come(monkeypatch)
    assert is_found_among(kestrel_worlds.crowded, "waits for his few tasks")


def test_a_task_that_needs_a_whole_worker_and_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "keep_workers", lambda *_: None)
    assert is_found_among(kestrel_worlds.streaming, "waits for his few tasks")
