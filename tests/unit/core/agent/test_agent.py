"""What a worker session does with the attempts that it is sent."""

from __future__ import annotations

from agentkit import ONE_CPU, WALL, end, give, start, started, template

from kestrelctl.core.agent.agent import COMPANY_SECONDS, ENDED, Agent
from kestrelctl.core.model.result import Outcome, Result


def welcomed(**assets: float) -> Agent:
    """An agent that is in and has nothing to do; with two processors unless told otherwise."""
    agent = Agent(assets or {"cpus": 2.0})
    agent.holds()
    agent.on_welcome(agent.greeting, [], 0.0, wall=WALL)
    return agent


# -- starting --------------------------------------------------------------------------------------


def test_what_an_attempt_may_use_outlasts_a_resize_and_its_start() -> None:
    """It is booked by units then, in a claim of its own."""
    agent = Agent({"cpus": 2.0, "gpus": 1.0}, units={"gpus": ["a"]})
    agent.holds()
    agent.on_welcome(agent.greeting, [], 0.0, wall=WALL)
    claim = {"cpus": 1000, "gpus": 1000}
    job = template()
    spans = [(100, 1, 0, 1, 0, 9)]
    agent.on_run(spans, [claim], [job], [], [], now=1.0, limits=[(0, {"memory": 5000})])
    agent.resize({"cpus": 2.0, "gpus": 1.0, "memory": 9.0}, {"gpus": ["b"]})
    [attempt] = started(agent)
    assert attempt.claim.units == {"gpus": ("b",)}
    assert attempt.limits == {"memory": 5000}


def test_limits_of_a_claim_that_was_not_sent_are_nobodys() -> None:
    agent = welcomed(cpus=1)
    agent.on_run(
        [(100, 1, 0, 1, 0, 9)], [ONE_CPU], [template()], [], [], 1.0, limits=[(7, {"memory": 5})]
    )
    assert [attempt.limits for attempt in started(agent)] == [{}]


def test_attempts_start_in_their_order_as_far_as_there_is_room() -> None:
    agent = welcomed(cpus=2)
    give(agent, 5)
    assert start(agent) == [100, 101]
    assert start(agent) == []
    end(agent, 101)
    assert start(agent) == [102]


def test_a_large_one_at_the_head_is_not_passed() -> None:
    agent = welcomed(cpus=2)
    give(agent, 1)
    start(agent)
    give(agent, 1, first=200, job=template(2), claim={"cpus": 2000})
    give(agent, 1, first=300)
    assert start(agent) == []
    end(agent, 100)
    assert start(agent) == [200]


def test_every_asset_of_the_claim_is_charged() -> None:
    agent = welcomed(cpus=8, memory=300, fpga=2)
    give(agent, 8, claim={"cpus": 1000, "memory": 100_000})
    assert len(start(agent)) == 3
    give(agent, 8, first=200, claim={"cpus": 1000, "fpga": 500})
    agent.on_recall(range(103, 200))
    assert len(start(agent)) == 4
    assert agent.free == {"cpus": 1000, "memory": 0, "fpga": 0}


def test_what_is_charged_is_what_was_sent_and_not_what_comes_later() -> None:
    agent = welcomed(cpus=4)
    give(agent, 1, claim={"cpus": 3000})
    start(agent)
    give(agent, 1, first=200, claim={"cpus": 1000})
    start(agent)
    assert agent.free == {"cpus": 0}
    end(agent, 100)
    assert agent.free == {"cpus": 3000}


def test_a_span_without_its_claim_is_given_back() -> None:
    agent = welcomed()
    assert agent.on_run([(100, 1, 0, 2, 1, 9)], [ONE_CPU], [template()], [], [], now=1.0) == [
        100,
        101,
    ]


def test_a_start_says_which_task_of_which_job_with_which_line() -> None:
    agent = welcomed()
    job = template(with_items=True, first=10, step=5)
    agent.on_run([(100, 1, 4, 2, 0, 9)], [ONE_CPU], [job], ["four", "five"], [], now=1.0)
    first, second = started(agent)
    assert (first.index, first.item, first.template.task_id(first.index)) == (4, "four", 30)
    assert (second.index, second.item) == (5, "five")


def test_lines_go_to_the_jobs_that_have_some() -> None:
    agent = welcomed(cpus=4)
    with_lines = template(2, with_items=True)
    spans = [(1, 1, 0, 1, 0, 9), (2, 2, 0, 2, 0, 9)]
    agent.on_run(spans, [ONE_CPU], [template(), with_lines], ["a", "b"], [], now=1.0)
    assert [one.item for one in started(agent)] == [None, "a", "b"]


def test_a_template_is_sent_once_and_can_be_forgotten() -> None:
    agent = welcomed()
    give(agent, 1)
    assert agent.on_run([(101, 1, 1, 1, 0, 9)], [ONE_CPU], [], [], [], now=1.0) == []
    assert agent.on_run([], [], [], [], [1], now=1.0) == []
    assert agent.on_run([(102, 1, 2, 2, 0, 9)], [ONE_CPU], [], [], [], now=1.0) == [102, 103]
    assert start(agent) == [100, 101], "what had come before still runs"


# -- reporting -------------------------------------------------------------------------------------


def test_a_result_is_reported_at_once_when_nothing_else_waits() -> None:
    agent = welcomed()
    give(agent, 1)
    start(agent)
    assert agent.report_at() is None
    end(agent, 100, now=2.0)
    assert agent.report_at() == 2.0


def test_results_wait_for_company_while_more_than_they_are_is_queued() -> None:
    agent = welcomed(cpus=1)
    give(agent, 4)
    start(agent)
    end(agent, 100, now=2.0)
    assert agent.report_at() == 2.0 + COMPANY_SECONDS
    start(agent)
    end(agent, 101, now=2.01)
    assert agent.report_at() == 2.0, "two are done, and two left: the manager should hurry"
    assert [result.number for result in agent.take_report()] == [100, 101]
    assert agent.report_at() is None


def test_an_attempt_that_is_about_to_start_gives_no_result_company() -> None:
    """With its spawn still to come it is in the queue, but the manager should send the next."""
    agent = welcomed(cpus=1)
    give(agent, 3)
    start(agent)
    end(agent, 100, now=2.0)
    assert agent.can_start
    assert agent.report_at() == 2.0
    give(agent, 1, first=200)
    assert agent.report_at() == 2.0 + COMPANY_SECONDS


def test_results_wait_for_company_while_the_manager_is_about_to_send_more() -> None:
    agent = welcomed(cpus=1)
    give(agent, 7)
    for number in range(100, 103):
        start(agent)
        end(agent, number, now=2.0)
    agent.take_report()
    for number in (103, 104):
        start(agent)
        end(agent, number, now=2.1)
    assert agent.report_at() == 2.1 + COMPANY_SECONDS, "half of the rest, but the manager knows"
    give(agent, 2, first=200)
    assert agent.report_at() == 2.1 + COMPANY_SECONDS, "four wait again"
    start(agent)
    end(agent, 105, now=2.2)
    assert agent.report_at() == 2.1, "more than half of what it has sent is done"


def test_when_nothing_is_left_results_do_not_wait_for_the_manager_to_send_more() -> None:
    agent = welcomed(cpus=1)
    give(agent, 3)
    for number in (100, 101):
        start(agent)
        end(agent, number, now=2.0)
        agent.take_report()
    start(agent)
    assert agent.report_at() is None
    end(agent, 102, now=2.1)
    assert agent.report_at() == 2.1


def test_a_result_says_how_long_its_attempt_waited_here() -> None:
    agent = welcomed(cpus=1)
    give(agent, 1)
    started(agent, now=3.5)
    assert end(agent, 100).waited_seconds == 2.5, "whatever the machine's clock says of its start"


def test_what_is_not_acknowledged_is_reported_again_after_every_welcome() -> None:
    agent = welcomed()
    give(agent, 2)
    start(agent)
    end(agent, 100)
    end(agent, 101)
    agent.take_report()
    assert agent.on_ack([100, 7]) == [100]
    agent.holds()
    agent.on_welcome(agent.greeting, [], 3.0, wall=WALL)
    assert [result.number for result in agent.take_report()] == [101]


def test_a_result_goes_with_the_seal_of_the_span_that_it_came_with() -> None:
    agent = welcomed(cpus=4)
    give(agent, 2)
    give(agent, 2, first=200)
    start(agent)
    assert agent.seals_of([end(agent, 101), end(agent, 200), end(agent, 100)]) == [
        (100, 1, 0, 2, 9),
        (200, 1, 0, 2, 9),
    ]


def test_what_is_safe_already_is_not_reported_again() -> None:
    agent = welcomed()
    give(agent, 2)
    start(agent)
    end(agent, 100)
    end(agent, 101)
    agent.on_ack([100])
    assert [result.number for result in agent.take_report()] == [101]


def test_an_earlier_process_may_have_left_results() -> None:
    left = Result(55, 1, 0, Outcome.DONE, 1.0, 1.0)
    seal = (50, 1, 0, 9, 77)
    agent = Agent({"cpus": 1.0}, [(left, seal)])
    assert agent.holds() == ([(55, 1, 0, ENDED)], [], [seal])
    assert agent.report_at() is None, "not before it is in"
    agent.on_welcome(agent.greeting, [], 3.0, wall=WALL)
    assert agent.take_report() == [left]
    assert agent.seals_of([left]) == [seal]
    assert not agent.idle
    agent.on_ack([55])
    assert agent.idle


# -- hello and welcome -----------------------------------------------------------------------------


def test_it_says_all_that_it_has() -> None:
    agent = welcomed(cpus=1)
    give(agent, 3)
    give(agent, 1, first=200, job=template(2), claim={"cpus": 500})
    start(agent)
    end(agent, 100)
    start(agent)
    held, claims, seals = agent.holds()
    assert held == [(101, 1, 1, 0), (102, 1, 2, 0), (200, 2, 0, 1), (100, 1, 0, ENDED)]
    assert claims == [ONE_CPU, {"cpus": 500}]
    assert seals == [(100, 1, 0, 3, 9), (200, 2, 0, 1, 9)]


def test_a_hello_forgets_templates_because_the_pool_sends_them_again() -> None:
    agent = welcomed(cpus=1)
    give(agent, 2)
    agent.holds()
    assert agent.templates == {}
    agent.on_welcome(agent.greeting, [], 2.0, wall=WALL)
    [runs] = started(agent)
    end(agent, runs.number)
    [next_one] = started(agent)
    assert next_one.template == template()


def test_only_the_welcome_to_its_latest_hello_counts() -> None:
    agent = Agent({"cpus": 1.0})
    agent.holds()
    early = agent.greeting
    agent.holds()
    agent.on_welcome(early, [], 1.0, wall=WALL)
    assert not agent.welcomed
    agent.on_welcome(agent.greeting, [], 1.0, wall=WALL)
    assert agent.welcomed


def test_nothing_is_reported_between_hello_and_welcome() -> None:
    agent = welcomed()
    give(agent, 1)
    start(agent)
    agent.holds()
    end(agent, 100)
    assert agent.report_at() is None
    agent.on_welcome(agent.greeting, [], 3.0, wall=WALL)
    assert agent.report_at() == 3.0


def test_a_welcome_may_kill() -> None:
    agent = welcomed(cpus=1)
    give(agent, 2)
    start(agent)
    agent.holds()
    assert agent.on_welcome(agent.greeting, [100, 101], 3.0, wall=WALL) == [100]
    assert [(r.number, r.outcome) for r in agent.take_report()] == [(101, Outcome.KILLED)]


def test_a_welcome_takes_nobody_s_grace() -> None:
    """It names all that is to end: also what was killed before the connection was lost."""
    agent = welcomed(cpus=2)
    give(agent, 2)
    start(agent)
    assert agent.on_kill([100], 2.0, wall=WALL) == [100]
    agent.holds()
    assert agent.on_welcome(agent.greeting, [100, 101], 3.0, wall=WALL) == [101]
    assert agent.on_kill([100], 4.0, wall=WALL) == [100], "somebody asked a second time"


# -- killing, taking back, leaving -----------------------------------------------------------------


def test_what_is_queued_ends_as_killed_and_what_runs_is_named() -> None:
    agent = welcomed(cpus=1)
    give(agent, 3)
    start(agent)
    assert agent.on_kill([100, 102, 999], 2.0, wall=WALL) == [100]
    assert [(r.number, r.outcome, r.started_at, r.wall_seconds) for r in agent.take_report()] == [
        (102, Outcome.KILLED, WALL, 0.0)
    ]
    end(agent, 100, Outcome.KILLED)
    assert start(agent) == [101]


def test_only_what_has_not_started_is_given_back() -> None:
    agent = welcomed(cpus=1)
    give(agent, 3)
    start(agent)
    assert agent.on_recall([100, 102]) == [102]
    end(agent, 100)
    assert start(agent) == [101]


def test_a_session_that_leaves_gives_back_what_waits_and_takes_nothing_new() -> None:
    agent = welcomed(cpus=1)
    give(agent, 3)
    start(agent)
    assert agent.drain() == [101, 102]
    assert give(agent, 2, first=200) == [200, 201]
    end(agent, 100)
    assert start(agent) == []
    agent.on_ack([100])
    assert agent.idle
