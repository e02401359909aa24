"""Nothing is sent that is too large for the server, which would end the whole connection."""

from __future__ import annotations

import bisect
from typing import Any

import pytest
from jobkit import job_spec

from kestrelctl.core.agent.agent import Agent
from kestrelctl.core.effects import Run
from kestrelctl.core.jobs.fair_share import Sharer
from kestrelctl.core.jobs.job import Job
from kestrelctl.core.model.config import Config
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.shape import Shape
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.template import Template
from kestrelctl.core.model.records import UserRecord
from kestrelctl.core.model.seal import SECRET_BYTES, Seals
from kestrelctl.protocol import codec, directions, requests, workers
from kestrelctl.protocol.codec import MAX_ITEM_BYTES
from kestrelctl.protocol.handout import problem_with_size, run_messages
from kestrelctl.xmpp import stanza
from kestrelctl.xmpp.xmpp_session import MOST_STANZA_BYTES


def job(job_id: int, **spec: Any) -> Job:
    ada = Sharer(UserRecord(name="ada"), Config())
    return Job(job_id, ada, job_spec(**{"argv": ("x",), **spec}), Shape({}, frozenset()), 0.0, 0)


ONE_CPU = {"cpus": 1000}


def all_is_sent(span: tuple[int, int, int, int, int], why: str) -> None:
    raise AssertionError(f"{span} is not sent: {why}")


def handed_out(
    jobs: list[Job], spans: list[tuple[int, int, int, int, int]], ack: list[int]
) -> list[workers.Run]:
    """The messages of one hand-out, in which every template is new."""
    by_id = {each.id: each for each in jobs}
    items: list[str] = []
    for _, job_id, index, n, _ in spans:
        items.extend((by_id[job_id].spec.items or ())[index : index + n])
    effect = Run(
        worker="w",
        spans=spans,
        claims=[ONE_CPU],
        templates=[
            by_id[job_id].template(keep_logs=False) for job_id in dict.fromkeys(s[1] for s in spans)
        ],
        items=items,
        items_of=frozenset(each.id for each in jobs if each.spec.items),
        forget=[99],
    )
    return run_messages(effect, ack, Seals(bytes(SECRET_BYTES)), all_is_sent)


def items_started(messages: list[workers.Run]) -> list[tuple[int, str | None]]:
    agent = Agent({"cpus": 1000})
    for message in messages:
        assert codec.fits(codec.encode(message))
        assert not agent.on_run(
            message.spans, message.claims, message.jobs, message.items, message.forget, 0.0
        )
    return [(start.number, start.item) for start in iter(lambda: agent.start_next(0.0), None)]


def test_a_payload_that_fits_makes_a_stanza_that_is_sent() -> None:
    for character in "x<&>é\uffff":
        payload = character * codec.MAX_PAYLOAD_BYTES
        while not codec.fits(payload):
            payload = payload[: len(payload) * 9 // 10]
        assert len(stanza.message(payload, "a@b").encode()) <= MOST_STANZA_BYTES


def test_what_grows_on_its_way_counts_as_it_arrives() -> None:
    payload = '{"type": "heartbeat", "x": "' + ">" * (codec.MAX_PAYLOAD_BYTES // 3) + '"}'
    with pytest.raises(codec.BadMessage, match="the limit is"):
        directions.from_worker.decode(payload)


def test_a_refusal_quotes_little_of_what_it_refuses() -> None:
    with pytest.raises(codec.BadMessage) as refused:
        directions.from_worker.decode('{"type": "' + "x" * 100_000 + '"}')
    assert len(str(refused.value)) <= 300


def test_the_id_of_a_request_is_short_because_answers_repeat_it() -> None:
    payload = '{"type": "pool_status", "id": "' + "x" * 101 + '"}'
    with pytest.raises(codec.BadMessage, match="id"):
        directions.requests.decode(payload)
    assert codec.id_in(payload) == ""
    assert directions.requests.decode(payload.replace("x", "", 1)) == requests.PoolStatus(
        id="x" * 100
    )


def test_small_attempts_travel_together() -> None:
    small = job(1, count=40, items=tuple(map(str, range(40))))
    [message] = handed_out([small, job(2)], [(100, 1, 0, 40, 0), (140, 2, 0, 1, 0)], ack=[7])
    assert message.ack == [7]
    assert message.forget == [99]
    assert len(message.jobs) == 2


def test_large_items_travel_apart_in_their_order() -> None:
    large = tuple(f"{i}" + "<" * 40_000 for i in range(20))
    messages = handed_out([job(1, count=20, items=large)], [(100, 1, 0, 20, 0)], ack=[7])
    assert len(messages) > 1
    assert [message.ack for message in messages if message.ack] == [[7]]
    assert [message.forget for message in messages if message.forget] == [[99]]
    assert items_started(messages) == [(100 + i, large[i]) for i in range(20)]


def test_the_largest_command_travels_apart_from_acknowledgements() -> None:
    longest = 1
    while problem_with_size(JobSpec(program=Program(argv=("x" * (longest * 2),)))) is None:
        longest *= 2
    step = longest
    while step := step // 2:
        longer = JobSpec(program=Program(argv=("x" * (longest + step),)))
        longest += step * (problem_with_size(longer) is None)
    messages = handed_out(
        [job(1, argv=("x" * longest,))], [(100, 1, 0, 1, 0)], ack=list(range(10**15, 10**15 + 500))
    )
    assert [len(message.ack) for message in messages] == [500, 0]
    assert items_started(messages) == [(100, None)]


def test_items_stay_with_their_attempts_when_jobs_without_any_stand_between() -> None:
    large = tuple(f"{i}" + "<" * 40_000 for i in range(6))
    jobs = [job(1, count=6, items=large), job(2, count=9), job(3, count=6, items=large)]
    spans = [(100, 1, 0, 6, 0), (106, 2, 0, 9, 0), (115, 3, 0, 6, 0)]
    messages = handed_out(jobs, spans, ack=[])
    assert len(messages) > 1
    expected = [*large, *[None] * 9, *large]
    assert items_started(messages) == list(zip(range(100, 121), expected, strict=True))


def test_large_jobs_travel_apart_each_template_once() -> None:
    jobs = [job(i, argv=("x" * 300_000,), count=3) for i in (1, 2, 3)]
    messages = handed_out(jobs, [(100, 1, 0, 3, 0), (103, 2, 0, 3, 0), (106, 3, 0, 3, 0)], ack=[])
    assert [each.job_id for message in messages for each in message.jobs] == [1, 2, 3]
    assert [number for number, _ in items_started(messages)] == list(range(100, 109))


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (JobSpec(program=Program(argv=("x", "<" * 200_000))), "command and environment take 8"),
        (
            JobSpec(program=Program(argv=("x",), env={"A": "x" * 600_000})),
            "command and environment",
        ),
        (JobSpec(program=Program(argv=("x" * 400_000,)), items=("a",)), "command and environment"),
        (
            JobSpec(program=Program(argv=("x",)), items=("a", "\x01" * 40_000), count=2),
            "the item of task 1",
        ),
    ],
)
def test_what_no_message_could_hand_out_is_no_job(spec: JobSpec, why: str) -> None:
    assert why in str(problem_with_size(spec))


def test_the_largest_job_can_be_handed_out() -> None:
    item = "x" * (MAX_ITEM_BYTES - 3)

    def is_too_large(size: int) -> bool:
        return (
            problem_with_size(JobSpec(program=Program(argv=("x" * size,)), items=(item,)))
            is not None
        )

    largest = bisect.bisect_left(range(500_000), True, key=is_too_large) - 1
    assert largest > 300_000
    [message] = handed_out(
        [job(1, argv=("x" * largest,), items=(item,))], [(1, 1, 0, 1, 0)], ack=[]
    )
    assert codec.fits(codec.encode(message))


def test_items_after_a_job_that_is_not_known_are_not_taken_for_others() -> None:
    agent = Agent({"cpus": 10})
    known = Template(job_id=2, program=Program(argv=("x",)), with_items=True)
    spans = [(10, 1, 0, 1, 0, 9), (11, 2, 0, 1, 0, 9)]
    assert agent.on_run(spans, [ONE_CPU], [known], ["of 1", "of 2"], [], 0.0) == [10, 11]
    assert agent.start_next(0.0) is None


@pytest.mark.parametrize(
    "text", ["\ufffe", "\uffff\u00e4", "\x7f\u00e4", "\x7f", "&", "<>", "\U0001f40d"]
)
def test_no_stanza_is_larger_than_its_payload_was_taken_for(text: str) -> None:
    payload = text * 1000
    frame = len(stanza.message("", "w"))
    assert len(stanza.message(payload, "w").encode()) - frame <= codec.text_bytes(payload)


def test_thousands_of_single_attempts_travel_in_messages_that_fit() -> None:
    first, n = 980_001_310_906_515_456, 17_000
    effect = Run(
        worker="w",
        spans=[(first + k, 7, 2 * k, 1, 0) for k in range(n)],
        claims=[ONE_CPU],
        templates=[],
        items=[],
        items_of=frozenset(),
        forget=[],
        counts=[(first + k, 2) for k in range(n)],
    )
    messages = run_messages(effect, list(range(10_000)), Seals(bytes(SECRET_BYTES)), all_is_sent)
    assert all(codec.fits(codec.encode(message)) for message in messages)
    assert [span[0] for message in messages for span in message.spans] == [
        first + k for k in range(n)
    ]


def test_what_attempts_may_use_travels_with_each_part_of_a_message() -> None:
    """Places of claims count from the start of its own message's claims."""
    many = job(7, items=["x" * 100_000] * 8, count=8)
    effect = Run(
        worker="w",
        spans=[(10, 7, 0, 4, 0), (14, 7, 4, 4, 1)],
        claims=[ONE_CPU, {"cpus": 500}],
        templates=[many.template(keep_logs=False)],
        items=list(many.spec.items or ()),
        items_of=frozenset([7]),
        forget=[],
        limits=[(1, {"memory": 1000})],
    )
    messages = run_messages(effect, [], Seals(bytes(SECRET_BYTES)), all_is_sent)
    assert len(messages) > 1
    agent = Agent({"cpus": 9.0})
    agent.holds()
    agent.on_welcome(agent.greeting, [], 0.0, 0.0)
    limits = {}
    for sent in messages:
        told = directions.to_worker.decode(codec.encode(sent))
        assert isinstance(told, workers.Run)
        agent.on_run(
            told.spans, told.claims, told.jobs, told.items, told.forget, 0.0, limits=told.limits
        )
        while (attempt := agent.start_next(0.0)) is not None:
            limits[attempt.number] = attempt.limits
    assert limits == {number: {"memory": 1000} if number > 13 else {} for number in range(10, 18)}


def test_which_attempt_it_is_travels_with_the_attempt() -> None:
    many = job(7, items=["x" * 100_000] * 8, count=8)
    effect = Run(
        worker="w",
        spans=[(10, 7, 0, 8, 0)],
        claims=[ONE_CPU],
        templates=[many.template(keep_logs=False)],
        items=list(many.spec.items or ()),
        items_of=frozenset([7]),
        forget=[],
        counts=[(10, 2), (13, 3), (14, 4), (17, 5)],
    )
    messages = run_messages(effect, [], Seals(bytes(SECRET_BYTES)), all_is_sent)
    assert len(messages) > 1
    for message in messages:
        numbers = [number + k for number, _, _, n, _, _ in message.spans for k in range(n)]
        assert all(number in numbers for number, _ in message.counts)
    assert [told for message in messages for told in message.counts] == effect.counts


def test_what_fits_into_no_message_is_told_of_and_the_rest_is_sent() -> None:
    large = job(2, name="n" * codec.MAX_PAYLOAD_BYTES)
    effect = Run(
        worker="w",
        spans=[(100, 1, 0, 1, 0), (101, 2, 0, 1, 0), (102, 3, 0, 1, 0)],
        claims=[ONE_CPU],
        templates=[each.template(keep_logs=False) for each in (job(1), large, job(3))],
        items=[],
        items_of=frozenset(),
        forget=[99],
    )
    unsent: dict[int, str] = {}
    messages = run_messages(
        effect,
        [7],
        Seals(bytes(SECRET_BYTES)),
        lambda span, why: unsent.update({span[0]: why}),
    )
    assert [number for number, _ in items_started(messages)] == [100, 102]
    assert [message.ack for message in messages if message.ack] == [[7]]
    assert [message.forget for message in messages if message.forget] == [[99]]
    assert list(unsent) == [101]
    assert f"{codec.MAX_PAYLOAD_BYTES:,} is the most" in unsent[101]
