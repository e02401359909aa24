"""`pool events` and `worker group`: what became of workers, and those that go by one name."""

from __future__ import annotations

import json
import sys

import pytest
from cli_fake_pool import EVENTS, NOW, WORKER, FakePool, run
from msgspec.structs import replace

from kestrelctl.cli.pool import events as cli_events
from kestrelctl.cli.pool.events import shown_time
from kestrelctl.core.membership.event import EventQuery
from kestrelctl.core.model.worker.worker_group import WorkerGroup
from kestrelctl.errors import KestrelError, Unreachable
from kestrelctl.protocol import answers as an
from kestrelctl.protocol.answers import EventPage
from kestrelctl.protocol.requests import ListEvents, SetWorkerGroup

FIRST, SECOND = EVENTS


def test_events_have_a_line_each() -> None:
    pool = FakePool(ListEvents=EventPage(id="", events=EVENTS, after=7))
    join, failed = run(pool, "pool", "events").stdout.splitlines()[1:]
    assert join.split() == [*shown_time(FIRST.at).split(), "join", "w1"]
    assert failed.endswith("failed  w2      gpu     it fell silent")


def test_options_say_which_are_meant() -> None:
    pool = FakePool()
    options = ["--worker", "w*", "--kind", "failed", "--group", "gpu", "--since", "1h"]
    run(pool, "pool", "events", *options)
    [asked] = [request for request in pool.asked if isinstance(request, ListEvents)]
    meant = EventQuery(worker="w*", kind="failed", group="gpu", since=NOW - 3600.0)
    assert (asked.query, asked.after) == (meant, 0)


def test_that_nothing_fits_is_not_that_nothing_has_happened() -> None:
    pool = FakePool(ListEvents=EventPage(id="", events=[], after=7))
    assert "no events of workers" in run(pool, "pool", "events").output
    assert "no such events of workers" in run(pool, "pool", "events", "--group", "gpu").output


def test_pages_are_asked_for_one_after_the_other() -> None:
    pages = {0: EventPage(id="", events=[FIRST], after=6, more=True)}
    rest = EventPage(id="", events=[SECOND], after=7)
    pool = FakePool(ListEvents=lambda r: pages.get(r.after, rest))
    found = json.loads(run(pool, "-o", "json", "pool", "events").stdout)
    assert [event["number"] for event in found] == [6, 7]


def test_followed_events_are_told_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli_events, "INTERVAL_SECONDS", 0.0)
    come = iter(
        [
            EventPage(id="", events=[], after=5),
            EventPage(id="", events=[FIRST], after=6),
            Unreachable("the server is away"),
            EventPage(id="", events=[], after=6),
            EventPage(id="", events=[SECOND], after=7),
            KestrelError("enough"),
        ]
    )

    def answer(_request: ListEvents) -> EventPage:
        found = next(come)
        if isinstance(found, Exception):
            raise found
        return found

    pool = FakePool(ListEvents=answer)
    result = run(pool, "-o", "jsonl", "pool", "events", "-f")
    assert [json.loads(line)["number"] for line in result.stdout.splitlines()] == [6, 7]
    asked = [request.after for request in pool.asked if isinstance(request, ListEvents)]
    assert asked == [-1, 5, 6, 6, 6, 7]


def test_whoever_follows_through_a_pipe_gets_each_event_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A pipe is written to in large pieces, if nobody says otherwise."""
    monkeypatch.setattr(cli_events, "INTERVAL_SECONDS", 0.0)
    arrived: list[bytes] = []

    def answer(request: ListEvents) -> EventPage:
        arrived.append(sys.stdout.buffer.getvalue())  # type: ignore[attr-defined]
        if len(arrived) > 1:
            raise KestrelError("enough")
        return EventPage(id="", events=[FIRST], after=6)

    run(FakePool(ListEvents=answer), "-o", "jsonl", "pool", "events", "-f")
    assert json.loads(arrived[1])["number"] == FIRST.number


def test_what_has_no_end_is_no_json_document() -> None:
    result = run(FakePool(), "-o", "json", "pool", "events", "-f")
    assert result.exit_code == 2
    assert "jsonl" in result.stdout + result.stderr


def test_a_group_is_set_as_an_admin() -> None:
    pool = FakePool()
    options = ["--tag", "gpu", "--name", "h7-*", "--where", "Cpus >= 8"]
    said = run(pool, "worker", "group", "set", "gpu", *options).stdout
    assert said == "2 workers in gpu\n"
    [asked] = [request for request in pool.asked if isinstance(request, SetWorkerGroup)]
    wanted = WorkerGroup(name="gpu", tags=("gpu",), names=("h7-*",), where="Cpus >= 8")
    assert asked.group == wanted
    assert [as_admin for _, as_admin in pool.opened] == [True]


def test_a_worker_says_which_groups_it_is_in() -> None:
    pool = FakePool(
        ListWorkers=an.Workers(id="", workers=[replace(WORKER, groups=["gpu", "hall"])])
    )
    lines = run(pool, "worker", "info", "w1").stdout.splitlines()
    assert [line.split() for line in lines if line.startswith("groups")] == [
        ["groups", "gpu", "hall"]
    ]
