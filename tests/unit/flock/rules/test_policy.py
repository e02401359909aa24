"""What a pool lends and borrows under its rules."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from kestrelctl.core.model.flock_rule import FlockDirection, FlockRule
from kestrelctl.core.model.refusal import Reason
from kestrelctl.core.model.worker.matching_ads import Attributes, in_lower_case
from kestrelctl.core.model.worker.significance import problem_with_expression
from kestrelctl.core.scheduling.expression_answers import Side
from kestrelctl.core.scheduling.judgement import judge
from kestrelctl.core.settings.flock_rules import problem_with_rule
from kestrelctl.flock.rules.policy import DEFAULT_ISOLATION, LOCAL_ISOLATION, Policy, Verdict

SMALL: Attributes = {"RequestCpus": 1, "RequestGpus": 0, "Owner": "ada@b.test", "JobName": "x"}


def rule(name: str, action: str = "allow", direction: str = "lend", **more: Any) -> FlockRule:
    found = {"name": name, "action": action, "direction": direction}
    made = FlockRule(**found, **more)
    assert problem_with_rule(made) is None
    return made


def lends(policy: Policy, user: str = "ada@b.test", pool: str = "b.test", **more: Any) -> Verdict:
    return policy.judge_task("lend", pool, user=user, **({"about": SMALL} | more))


def borrows(policy: Policy, user: str = "ada@a.test", **more: Any) -> Verdict:
    machines = {"Cpus": 4, "Gpus": 0}
    return policy.judge_task("borrow", "b.test", user=user, **({"about": machines} | more))


class TestWithoutRules:
    def test_all_is_allowed_at_the_default_isolation(self) -> None:
        policy = Policy()
        for verdict in (policy.may_lend_to("b.test"), policy.may_borrow_from("b.test")):
            assert (verdict.allowed, verdict.rule, verdict.why) == (True, "", "")
            assert verdict.terms.isolation == DEFAULT_ISOLATION == "bubblewrap"
            assert verdict.terms.max_cpus is verdict.terms.lease_seconds is None
        assert lends(policy).allowed
        assert policy.room_by_rule("lend", "b.test", {"c.test": 100.0}) is None
        assert policy.start_expression("lend", "b.test") == "true"

    def test_pools_of_one_machine_isolate_as_they_are_told(self) -> None:
        policy = Policy(default_isolation=LOCAL_ISOLATION)
        assert policy.limits("lend", "b.test").isolation == "plain"
        assert lends(policy).terms.isolation == "plain"


class TestWhichRuleDecides:
    def test_the_first_that_fits(self) -> None:
        policy = Policy(
            [
                rule("b", "deny", order=2),
                rule("a", order=2, users=("ada@*",)),
                rule("z", "deny", order=1, users=("eve@*",)),
            ]
        )
        assert lends(policy).rule == "a"
        denied = lends(policy, "eve@b.test")
        assert (denied.allowed, denied.rule, denied.why) == (False, "z", "rule z denies it")
        assert denied.terms.max_cpus == 0.0
        assert lends(policy, "bob@b.test").rule == "b"

    def test_who_only_denies_allows_the_rest(self) -> None:
        policy = Policy([rule("no", "deny", pools=("evil.*",))])
        assert not policy.may_lend_to("evil.test").allowed
        assert policy.may_lend_to("evil.test").rule == "no"
        assert policy.may_lend_to("b.test").allowed

    def test_who_names_some_that_may_means_these_alone(self) -> None:
        policy = Policy([rule("friends", pools=("*.edu",))])
        assert policy.may_lend_to("bio.edu").rule == "friends"
        refused = policy.may_lend_to("b.test")
        assert (refused.allowed, refused.rule) == (False, "")
        assert refused.why == "no rule allows it"
        assert not lends(policy).allowed
        assert policy.limits("lend", "b.test").max_cpus == 0.0

    def test_each_direction_has_its_own_rules(self) -> None:
        policy = Policy([rule("no", "deny"), rule("yes", direction="borrow", pools=("b.*",))])
        assert not policy.may_lend_to("b.test").allowed
        assert policy.may_borrow_from("b.test").allowed
        assert not policy.may_borrow_from("c.test").allowed

    @pytest.mark.parametrize("glob", ["b.test", "B.TEST", "*", "?.test", "*.te[sx]t", "[!a]*"])
    def test_pools_are_named_by_globs_in_any_case(self, glob: str) -> None:
        policy = Policy([rule("r", "deny", pools=("nobody", glob))])
        assert not policy.may_lend_to("b.test").allowed
        assert policy.may_lend_to("a.other").allowed == (glob != "*")

    @pytest.mark.parametrize("glob", ["ada@b.test", "ADA@*", "ada", "a?a", "*", "*@b.test"])
    def test_users_by_account_or_by_the_name_in_it(self, glob: str) -> None:
        policy = Policy([rule("r", "deny", users=(glob,))])
        assert not lends(policy).allowed
        assert lends(policy, "bob@c.test").allowed == (glob != "*")

    def test_a_name_is_no_part_of_another(self) -> None:
        policy = Policy([rule("r", "deny", users=("ada",), pools=("b.test",))])
        assert lends(policy, "adam@b.test").allowed
        assert lends(policy, "x@ada").allowed
        assert lends(policy, "ada@b.test", pool="b.test.org").allowed

    def test_groups(self) -> None:
        policy = Policy([rule("r", groups=("phys*",))])
        assert lends(policy, group="Physics").allowed
        assert not lends(policy, group="bio").allowed
        assert not lends(policy).allowed

    def test_a_condition_on_the_job(self) -> None:
        policy = Policy([rule("r", requirements="TARGET.RequestCpus <= 2 && !RequestGpus")])
        assert lends(policy).allowed
        assert not lends(policy, about=SMALL | {"RequestCpus": 4}).allowed
        assert not lends(policy, about=SMALL | {"RequestGpus": 1}).allowed

    def test_a_condition_that_is_undefined_does_not_hold(self) -> None:
        wants_time = rule("r", requirements="JobSeconds < 60")
        assert not lends(Policy([wants_time])).allowed
        assert lends(Policy([wants_time]), about=SMALL | {"JobSeconds": 5}).allowed

    def test_a_condition_on_the_other_pools_machines(self) -> None:
        policy = Policy([rule("r", direction="borrow", requirements="TARGET.Cpus >= 4")])
        assert borrows(policy).allowed
        assert not borrows(policy, about={"Cpus": 2}).allowed

    def test_a_pool_may_if_some_of_its_tasks_may(self) -> None:
        policy = Policy([rule("r", users=("ada",)), rule("s", "deny")])
        assert policy.may_lend_to("b.test").rule == "r"
        assert policy.may_lend_to("b.test").allowed
        some_denied = Policy([rule("r", "deny", users=("ada",))])
        assert some_denied.may_lend_to("b.test").allowed

    def test_what_was_taken_under_other_rules_lets_nothing_pass(self) -> None:
        broken = FlockRule(name="r", direction="lend", action="allow", requirements="gone(")
        assert not lends(Policy([broken])).allowed
        assert Policy([broken]).start_expression("lend", "b.test") == "false"
        broken = FlockRule(name="r", direction="lend", action="deny", requirements="gone(")
        assert lends(Policy([broken])).rule == "r"
        assert not lends(Policy([broken])).allowed
        assert Policy([broken]).start_expression("lend", "b.test") == "false"


class TestTerms:
    def test_an_attempt_may_run_so_long(self) -> None:
        policy = Policy([rule("r", max_seconds=60.0)])
        assert lends(policy).terms.max_seconds == 60.0
        assert lends(policy, seconds=60.0).allowed
        refused = lends(policy, seconds=61.0)
        assert (refused.allowed, refused.rule) == (False, "r")
        assert refused.why == "rule r allows it for up to 60 s, not for 61 s"

    def test_only_tasks_go_out_that_say_that_they_take_no_longer(self) -> None:
        policy = Policy([rule("r", direction="borrow", max_seconds=60.0)])
        assert borrows(policy, seconds=60.0).allowed
        assert not borrows(policy, seconds=61.0).allowed
        assert borrows(policy).why == "rule r allows it for up to 60 s, and the task says no time"

    def test_a_rule_that_fits_decides_also_where_its_terms_refuse(self) -> None:
        policy = Policy([rule("r", max_seconds=60.0), rule("s", order=200)])
        assert lends(policy, seconds=61.0).rule == "r"
        assert not lends(policy, seconds=61.0).allowed

    def test_processors_are_those_of_all_tasks_under_the_rule(self) -> None:
        policy = Policy([rule("r", max_cpus=8.0)])
        assert lends(policy, cpus=2.0, running={"r": 6.0, "other": 9.0}).allowed
        refused = lends(policy, cpus=2.0, running={"r": 6.5})
        assert refused.why == "rule r allows it on up to 8 processors, not on 2, and 6.5 are taken"
        assert not lends(policy, cpus=9.0).allowed

    def test_pools_share_the_processors_of_a_rule_that_fits_them(self) -> None:
        policy = Policy([rule("r", max_cpus=8.0, pools=("*.test",)), rule("s", max_cpus=3.0)])
        lent = {"b.test": 2.0, "c.test": 5.0, "d.edu": 1.0}
        assert policy.room_by_rule("lend", "b.test", lent) == {"r": 3.0}
        assert policy.room_by_rule("lend", "d.edu", lent) == {"s": 3.0}
        assert policy.room_by_rule("lend", "e.test", lent | {"f.test": 9.0}) == {"r": 0.0}
        assert policy.room_by_rule("borrow", "b.test", lent) is None

    def test_a_pool_whose_tasks_fall_under_several_rules_has_the_room_of_all(self) -> None:
        policy = Policy([rule("a", users=("ada",), max_cpus=8.0), rule("b", max_cpus=2.0)])
        lent = {"b.test": 9.0, "c.test": 1.0}
        assert policy.room_by_rule("lend", "b.test", lent) == {"a": 7.0, "b": 1.0}
        assert policy.limits("lend", "b.test").max_cpus == 10.0
        assert (
            Policy([rule("a", users=("ada",), max_cpus=8.0), rule("b")])
            .limits("lend", "b.test")
            .max_cpus
            is None
        )

    def test_the_widest_terms_are_those_of_the_loan_and_each_task_has_its_own(self) -> None:
        policy = Policy(
            [
                rule("a", users=("ada",), isolation="plain", lease_seconds=60.0, max_seconds=5.0),
                rule("b", isolation="systemd", lease_seconds=90.0, max_seconds=9.0),
            ]
        )
        widest = policy.limits("lend", "b.test")
        assert (widest.isolation, widest.lease_seconds, widest.max_seconds) == ("plain", 90.0, 9.0)
        assert lends(policy).terms.isolation == "plain"
        assert lends(policy, "bob@b.test").terms.isolation == "systemd"

    def test_a_rule_that_says_nothing_of_isolation_has_the_default(self) -> None:
        policy = Policy([rule("a", lease_seconds=60.0)], "systemd")
        assert lends(policy).terms.isolation == "systemd"
        assert lends(policy).terms.lease_seconds == 60.0

    def test_what_comes_after_a_rule_that_fits_all_grants_nothing(self) -> None:
        policy = Policy([rule("a", max_cpus=1.0), rule("b", max_cpus=9.0)])
        assert policy.limits("lend", "b.test").max_cpus == 1.0
        policy = Policy([rule("a", "deny", pools=("b.*",)), rule("b", max_cpus=9.0)])
        assert policy.limits("lend", "b.test").max_cpus == 0.0
        assert policy.room_by_rule("lend", "b.test", {}) == {}


def admits(start: str, job: Attributes) -> bool:
    """Whether a worker with this `start` expression takes a job."""
    assert problem_with_expression(start) is None
    return judge(Reason.START, start, Side({"cpus": 4}), Side(in_lower_case(job))) is None


class TestStart:
    def test_names_of_users_are_said(self) -> None:
        policy = Policy([rule("r", "deny", users=("EVE@b.test", "adam@b.test"))])
        start = policy.start_expression("lend", "b.test")
        assert not admits(start, SMALL | {"Owner": "eve@b.test"})
        assert admits(start, SMALL)

    def test_wildcards_cannot_be_said_of_users_that_are_not_known(self) -> None:
        policy = Policy([rule("r", "deny", users=("e*",))])
        assert policy.start_expression("lend", "b.test") == "true"
        owners = {"eve@b.test": "", "ada@b.test": ""}
        start = policy.start_expression("lend", "b.test", owners=owners)
        assert start == 'member(TARGET.Owner, {"ada@b.test"})'

    def test_groups_are_said_of_users_that_are_known(self) -> None:
        policy = Policy([rule("r", direction="borrow", groups=("lab",), max_seconds=60.0)])
        owners = {"eve@a.test": "", "ada@a.test": "lab"}
        start = policy.start_expression("borrow", "b.test", owners=owners, machines={"Cpus": 4})
        assert admits(start, {"Owner": "ada@a.test", "JobSeconds": 30})
        assert not admits(start, {"Owner": "ada@a.test", "JobSeconds": 90})
        assert not admits(start, {"Owner": "ada@a.test"})
        assert not admits(start, {"Owner": "eve@a.test", "JobSeconds": 30})
        nobody = policy.start_expression("borrow", "b.test", owners={"eve@a.test": ""})
        assert nobody == "false"

    def test_where_rules_tell_no_users_apart_none_are_named(self) -> None:
        policy = Policy([rule("r", "deny", requirements="RequestCpus > 2", users=("*",))])
        start = policy.start_expression("lend", "b.test", owners={"ada@b.test": ""})
        assert "Owner" not in start
        assert admits(start, SMALL | {"Owner": "somebody@b.test"})
        assert not admits(start, SMALL | {"RequestCpus": 4})

    def test_a_condition_is_about_the_job_whatever_the_machine_has_of_that_name(self) -> None:
        policy = Policy([rule("r", requirements="RequestCpus <= 2")])
        start = policy.start_expression("lend", "b.test")
        assert start == "(TARGET.RequestCpus <= 2)"
        machine = Side({"cpus": 4, "requestcpus": 1})
        assert judge(Reason.START, start, machine, Side({"requestcpus": 4})) is not None

    def test_of_more_users_than_have_room_the_first_are_named(self) -> None:
        policy = Policy([rule("r", "deny", direction="borrow", users=("eve",))])
        owners = {f"user-number-{n}@somewhere.a.test": "" for n in range(500)}
        start = policy.start_expression("borrow", "b.test", owners=owners)
        assert admits(start, {"Owner": "user-number-0@somewhere.a.test"})
        assert not admits(start, {"Owner": "user-number-499@somewhere.a.test"})
        assert not admits(start, {"Owner": "eve@a.test"})

    def test_a_user_whose_name_no_text_holds_is_left_out(self) -> None:
        policy = Policy([rule("r", "deny", direction="borrow", users=("eve",))])
        owners = {"a\\20b@a.test": "", "ada@a.test": ""}
        start = policy.start_expression("borrow", "b.test", owners=owners)
        assert start == 'member(TARGET.Owner, {"ada@a.test"})'

    def test_more_than_an_expression_holds_is_left_to_the_judgement_on_arrival(self) -> None:
        names = ", ".join(f'"job-{n}"' for n in range(250))
        long = f"member(JobName, {{{names}}})"
        policy = Policy([rule(f"r{n}", "deny", requirements=long) for n in range(2)])
        assert policy.start_expression("lend", "b.test") == "true"
        assert not lends(policy, about=SMALL | {"JobName": "job-7"}).allowed

    @pytest.mark.parametrize("seed", range(8))
    def test_it_refuses_nothing_that_is_allowed_and_of_known_users_allows_nothing_more(
        self, seed: int
    ) -> None:
        random = Random(seed)
        for _ in range(60):
            direction: FlockDirection = random.choice(["lend", "borrow"])
            policy = Policy(some_rules(random, direction))
            for _ in range(4):
                check_one(random, policy, direction)


_USERS = ("ada@a.test", "eve@b.test", "bob@b.test")
_GLOBS = ((), ("*",), ("ada@a.test",), ("eve@*",), ("EVE@b.test", "bob@b.test"), ("ada",))
_OF_JOBS = (
    "",
    "TARGET.RequestCpus <= 2",
    "RequestGpus",
    "Gone > 1 || RequestCpus > 1",
    'member(Owner, {"ada@a.test"})',
    'JobName == "x"',
)


def some_rules(random: Random, direction: FlockDirection) -> list[FlockRule]:
    conditions = _OF_JOBS if direction == "lend" else ("", "Cpus > 2", "Gpus")
    return [
        FlockRule(
            name=f"r{n}",
            direction=direction,
            action=random.choice(["allow", "deny"]),
            order=random.randrange(5),
            pools=random.choice([(), ("*.test",), ("b.*", "c.*")]),
            users=random.choice(_GLOBS),
            groups=random.choice([(), ("lab",), ("*",), ("g*",)]),
            max_seconds=random.choice([None, None, 60.0]),
            requirements=random.choice(conditions),
        )
        for n in range(random.randrange(5))
    ]


def check_one(random: Random, policy: Policy, direction: FlockDirection) -> None:
    """One task of one pool: by the judgement, and by the expressions."""
    pool = random.choice(["a.test", "b.test", "c.edu"])
    owners = {user: random.choice(["", "lab", "guests"]) for user in _USERS}
    user, seconds = random.choice(_USERS), random.choice([None, 10.0, 600.0])
    job: Attributes = {
        "Owner": user,
        "JobName": random.choice(["x", "y"]),
        "RequestCpus": random.choice([1, 4]),
        "RequestGpus": random.choice([0, 1]),
    }
    if seconds is not None:
        job["JobSeconds"] = seconds
    machines: Attributes = {"Cpus": random.choice([1, 4]), "Gpus": random.choice([0, 1])}
    about = job if direction == "lend" else machines
    verdict = policy.judge_task(
        direction, pool, user=user, group=owners[user], about=about, seconds=seconds
    )
    exact = policy.start_expression(direction, pool, owners=owners, machines=machines)
    assert admits(exact, job) == verdict.allowed
    loose = policy.start_expression(direction, pool, machines=machines)
    assert admits(loose, job) or not verdict.allowed
    whole = policy.may_lend_to(pool) if direction == "lend" else policy.may_borrow_from(pool)
    assert whole.allowed or not verdict.allowed
