"""Groups of workers, what became of members, which events a handler is for."""

from __future__ import annotations

import pytest

from kestrelctl.core.members.worker_groups import WorkerGroups
from kestrelctl.core.membership.event import EventQuery, MembershipEvent
from kestrelctl.core.membership.handler_definition import EventFilter, read_handlers
from kestrelctl.core.membership.roll import Roll
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.model.worker.worker_group import WorkerGroup
from kestrelctl.errors import UsageError

GPU = WorkerAd(assets={"cpus": 8.0, "gpus": 2.0}, tags=("gpu", "linux"))
PLAIN = WorkerAd(assets={"cpus": 4.0}, tags=("linux",))


def event(kind: str = "failed", *groups: str, worker: str = "w1@hosts.pool/1") -> MembershipEvent:
    return MembershipEvent(number=1, at=100.0, kind=kind, worker=worker, groups=groups)


class TestGroups:
    def test_a_worker_is_in_a_group_if_it_has_all_its_tags(self) -> None:
        groups = WorkerGroups([WorkerGroup(name="gpu", tags=("gpu", "linux"))])
        assert groups.of("w1@hosts.pool/1", GPU) == ("gpu",)
        assert groups.of("w1@hosts.pool/1", PLAIN) == ()

    def test_in_its_tags_case_does_not_matter(self) -> None:
        """`worker list` shows tags in capital letters."""
        groups = WorkerGroups([WorkerGroup(name="gpu", tags=("GPU", "Linux"))])
        assert groups.of("w1@hosts.pool/1", GPU) == ("gpu",)
        assert groups.of("w1@hosts.pool/1", PLAIN) == ()

    def test_globs_are_for_the_address_and_for_the_name(self) -> None:
        groups = WorkerGroups(
            [
                WorkerGroup(name="hall", names=("h?-*", "x*")),
                WorkerGroup(name="site", names=("*@hosts.pool",)),
            ]
        )
        assert groups.of("h7-3@hosts.pool/1", PLAIN) == ("hall", "site")
        assert groups.of("other@else.pool/1", PLAIN) == ()

    def test_an_expression_is_asked_of_the_ad(self) -> None:
        groups = WorkerGroups([WorkerGroup(name="big", where="Cpus >= 8")])
        assert groups.of("w1@hosts.pool/1", GPU) == ("big",)
        assert groups.of("w1@hosts.pool/1", PLAIN) == ()

    def test_a_number_other_than_0_is_true_as_in_every_other_expression(self) -> None:
        groups = WorkerGroups(
            [WorkerGroup(name="any", where="Cpus"), WorkerGroup(name="no", where="0")]
        )
        assert groups.of("w1@hosts.pool/1", GPU) == ("any",)

    def test_a_worker_of_which_it_is_not_known_is_not_in(self) -> None:
        groups = WorkerGroups([WorkerGroup(name="fast", where="Speed > 3")])
        assert groups.of("w1@hosts.pool/1", GPU) == ()

    def test_all_that_a_group_asks_for_must_be_true(self) -> None:
        both = WorkerGroup(name="both", tags=("linux",), names=("w*",), where="Cpus >= 8")
        groups = WorkerGroups([both])
        assert groups.of("w1@hosts.pool/1", GPU) == ("both",)
        assert groups.of("v1@hosts.pool/1", GPU) == ()
        assert groups.of("w1@hosts.pool/1", PLAIN) == ()

    @pytest.mark.parametrize(
        ("group", "said"),
        [
            (WorkerGroup(name="no way", tags=("a",)), "cannot be the name"),
            (WorkerGroup(name="all"), "asks for nothing"),
            (WorkerGroup(name="bad", where="Cpus >="), "that expression"),
            (WorkerGroup(name="two", where="TARGET.Cpus > 1"), "that expression"),
            (WorkerGroup(name="long", names=("x" * 201,)), "names too much"),
        ],
    )
    def test_what_cannot_be_a_group_is_refused(self, group: WorkerGroup, said: str) -> None:
        with pytest.raises(UsageError, match=said):
            WorkerGroups().put(group)


class TestRoll:
    def test_who_is_there_does_not_join_again(self) -> None:
        roll = Roll(["w1"])
        assert not roll.takes("join", "w1")
        assert roll.takes("join", "w2")
        assert roll.present == ["w1", "w2"]

    def test_who_is_gone_does_not_go_again(self) -> None:
        roll = Roll(["w1"])
        assert roll.takes("failed", "w1")
        assert not roll.takes("leave", "w1")
        assert roll.takes("join", "w1")

    def test_an_update_counts_of_those_that_are_there(self) -> None:
        roll = Roll(["w1"])
        assert roll.takes("update", "w1")
        assert not roll.takes("update", "w2")


class TestFilter:
    def test_kinds_stand_between_commas(self) -> None:
        found = EventFilter("join, leave")
        assert found.takes(event("join"))
        assert found.takes(event("leave"))
        assert not found.takes(event("failed"))

    def test_a_kind_may_be_for_a_group(self) -> None:
        found = EventFilter("failed:gpu,quarantine")
        assert found.takes(event("failed", "gpu", "hall"))
        assert not found.takes(event("failed", "hall"))
        assert found.takes(event("quarantine"))

    def test_a_star_is_any_kind(self) -> None:
        assert EventFilter("*").takes(event("drain-end"))
        assert not EventFilter("*:gpu").takes(event("drain-end"))

    def test_a_group_for_all_counts_where_none_is_named(self) -> None:
        found = EventFilter("failed:hall,leave", "gpu")
        assert found.takes(event("failed", "hall"))
        assert not found.takes(event("leave", "hall"))

    @pytest.mark.parametrize("text", ["", "fail", "failed,", "failed:", "join leave"])
    def test_anything_else_is_refused(self, text: str) -> None:
        with pytest.raises(UsageError):
            EventFilter(text)


class TestQuery:
    def test_it_means_what_fits_all_of_it(self) -> None:
        found = event("failed", "gpu")
        assert EventQuery().means(found)
        assert EventQuery(worker="w?", kind="failed", group="gpu", since=100.0).means(found)
        assert not EventQuery(worker="v*").means(found)
        assert not EventQuery(kind="join").means(found)
        assert not EventQuery(group="hall").means(found)
        assert not EventQuery(since=100.1).means(found)


class TestHandlers:
    def test_a_section_is_a_handler(self) -> None:
        text = """
            [tell]
            on = failed:gpu, quarantine
            mail = admin@example.org
            [log]
            on = *
            run = /usr/bin/logger -t "my pool"
            timeout = 5
            [chat]
            on = failed
            group = hall
            webhook = https://chat.example.org/hook?pool=1
            """
        tell, log, chat = read_handlers(text, "handlers.ini")
        assert (tell.name, tell.mail, tell.timeout_seconds) == ("tell", "admin@example.org", 30.0)
        assert log.run == ("/usr/bin/logger", "-t", "my pool")
        assert log.timeout_seconds == 5.0
        assert chat.webhook == "https://chat.example.org/hook?pool=1"
        assert tell.takes(event("failed", "gpu"))
        assert not chat.takes(event("failed", "gpu"))

    @pytest.mark.parametrize(
        ("lines", "said"),
        [
            ("on = failed", "what is to be done"),
            ("on = failed\nmail = a@b.c\nrun = /bin/true", "both run and mail"),
            ("mail = a@b.c", "about which events"),
            ("on = fails\nmail = a@b.c", "no kind of event"),
            ("on = failed\nmail = a@b.c, d@e.f", "one address"),
            ("on = failed\nmail = a@b.c\n  Bcc: d@e.f", "one address"),
            ("on = failed\nrun = tell", "where the program is"),
            ("on = failed\nrun = /bin/sh -c 'x", "cannot be read"),
            ("on = failed\nwebhook = file:///etc/passwd", "no address"),
            ("on = failed\nwebhook = http://[::1", "no address"),
            ("on = failed\nmail = a@b.c\ntimeout = nan", "timeout is 'nan'"),
            ("on = failed\nmail = a@b.c\nevery = 3", "there is no 'every'"),
        ],
    )
    def test_a_mistake_is_told_with_its_place(self, lines: str, said: str) -> None:
        with pytest.raises(UsageError, match=r"handlers.ini: \[tell\] is wrong") as caught:
            read_handlers(f"[tell]\n{lines}\n", "handlers.ini")
        assert said in (caught.value.cause or "")

    def test_what_is_no_ini_is_refused(self) -> None:
        with pytest.raises(UsageError, match=r"handlers.ini cannot be read"):
            read_handlers("on = failed\n", "handlers.ini")
