"""Which environments a manager knows, by what their hosts say."""

from __future__ import annotations

from kestrelctl.core.environments.started import EnvironmentPhase
from kestrelctl.manager.environments.table import FIRST_NUMBER, EnvironmentTable, worker_name
from kestrelctl.protocol.workers import EndedEnvironment, EnvironmentsHere, HeldEnvironment

HOST = "w@workers/h"


def said(
    *here: tuple[int, bool], ended: tuple[tuple[int, str], ...] = (), of: str = "gpu"
) -> EnvironmentsHere:
    return EnvironmentsHere(
        kinds=["venv"],
        here=[HeldEnvironment(n, of, False, starts) for n, starts in here],
        ended=[EndedEnvironment(n, of, why) for n, why in ended],
    )


def test_numbers_of_different_starts_of_a_manager_differ() -> None:
    first, second = EnvironmentTable(1), EnvironmentTable(2)
    numbers = {book.order("gpu", HOST, 0.0, asked_for=False).number for book in (first, second)}
    assert len(numbers) == 2


def test_workers_have_names_that_accounts_may_have() -> None:
    assert worker_name("big_gpu", 4194305) == "env-big-gpu-2hwch"


def test_what_a_host_has_is_known_after_a_restart_of_the_manager() -> None:
    book = EnvironmentTable(2)
    book.heard(HOST, said((77, False)), 5.0)
    [found] = book.known.values()
    assert (found.number, found.host, found.held) == (77, HOST, True)


def test_what_was_ordered_counts_before_its_host_has_said_anything() -> None:
    book = EnvironmentTable(1)
    ordered = book.order("gpu", HOST, 0.0, asked_for=False)
    assert book.heard(HOST, said(), 1.0) == []
    assert list(book.known) == [ordered.number]
    assert not ordered.held


def test_one_that_has_ended_is_forgotten_with_the_reason() -> None:
    book = EnvironmentTable(1)
    ordered = book.order("gpu", HOST, 0.0, asked_for=False)
    book.heard(HOST, said((ordered.number, True)), 1.0)
    [(gone, why)] = book.heard(HOST, said(ended=((ordered.number, "no disk"),)), 2.0)
    assert (gone, why) == (ordered, "no disk")
    assert not book.known


def test_what_a_host_had_and_has_no_more_went_with_its_process() -> None:
    book = EnvironmentTable(1)
    ordered = book.order("gpu", HOST, 0.0, asked_for=False)
    book.heard(HOST, said((ordered.number, False)), 1.0)
    [(gone, why)] = book.heard(HOST, said(), 2.0)
    assert (gone, why) == (ordered, "its host has started anew")


def test_a_host_speaks_for_no_other() -> None:
    book = EnvironmentTable(1)
    ordered = book.order("gpu", HOST, 0.0, asked_for=False)
    assert book.heard("liar@workers/l", said(ended=((ordered.number, "mine"),)), 1.0) == []
    book.heard("liar@workers/l", said((ordered.number, False)), 2.0)
    assert not ordered.held
    assert ordered.host == HOST


def test_one_is_ready_when_its_worker_is_there_and_idles_from_then_on() -> None:
    book = EnvironmentTable(1)
    ordered = book.order("gpu", HOST, 0.0, asked_for=False)
    assert book.see_workers([("another", True)], 1.0) == []
    assert ordered.phase is EnvironmentPhase.STARTING
    book.see_workers([(ordered.worker, True)], 2.0)
    assert (ordered.phase, ordered.idle_since) == (EnvironmentPhase.READY, 2.0)
    assert book.see_workers([(ordered.worker, False)], 3.0) == [ordered]
    assert ordered.idle_since is None
    assert book.see_workers([(ordered.worker, False)], 4.0) == []


def test_with_a_host_goes_what_it_had() -> None:
    book = EnvironmentTable(1)
    ordered = book.order("gpu", HOST, 0.0, asked_for=False)
    other = book.order("gpu", "v@workers/v", 0.0, asked_for=False)
    assert book.forget_host(HOST) == [ordered]
    assert list(book.known.values()) == [other]


def test_nothing_is_believed_that_nobody_has_ordered() -> None:
    """The account of what has gone is deleted: a host must not be able to name any."""
    book = EnvironmentTable(1)
    book.heard(HOST, said((1 << 60, False)), 1.0)
    book.heard(HOST, said((FIRST_NUMBER, False), of="w5@elsewhere"), 2.0)
    assert not book.known
