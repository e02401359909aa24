"""What `kestrelctl flock` asks, and what it shows."""

from __future__ import annotations

import json

import pytest
from cli_fake_pool import FLOCK, FLOCK_RULES, NEIGHBOURS, RUNNABLE, FakePool, run
from msgspec.structs import replace

from kestrelctl.chat import sentences
from kestrelctl.core.model.flock_rule import FlockRule
from kestrelctl.core.model.refusal import ClauseCount
from kestrelctl.errors import NotFound, UsageError
from kestrelctl.grammar.flock_words import cpus, neighbour_words
from kestrelctl.protocol.answers import FlockRules, FlockStatus, Neighbours
from kestrelctl.protocol.job_answers import NeighbourAnswer
from kestrelctl.protocol.requests import (
    ForgetPool,
    JoinFlock,
    LeaveFlock,
    ListNeighbours,
    SetFlockRule,
)
from kestrelctl.protocol.views import FlockView

STATUS = """\
pool           pool.example.org
flock          a member, joins through b.example.org
knows          12 pools: 9 in its routing table, 4 in its leaf set
lends          5.5 CPUs on 3 machines
guests         3 tasks of other pools run today, 1,204 since the manager started
announcements  900 sent, 800 received, 9 dropped (flood 2, old 7)

LENT TO        CLASS         CPUS  RUNNING       SINCE  ENDS IN
c.example.org  0a1b2c3d4e5f     2        2  1m 30s ago   1m 00s

LENT BY        CLASS         CPUS  RUNNING        SINCE  ENDS IN
b.example.org  5f4e3d2c1b0a   7.5        5  10m 00s ago   2m 00s
"""


def test_the_status_says_how_the_pool_stands() -> None:
    assert run(FakePool(), "flock", "status").stdout == STATUS


def test_the_status_is_the_view_as_json() -> None:
    found = json.loads(run(FakePool(), "-o", "json", "flock", "status").stdout)
    assert found["joined_through"] == ["b.example.org"]
    assert found["dropped"] == {"old": 7, "flood": 2}
    assert found["given"][0]["running"] == 2


def test_a_pool_that_lends_nothing_says_why() -> None:
    shut = replace(FLOCK, willing=False, why_unwilling="a rule denies it", given=[], taken=[])
    said = run(FakePool(AskFlock=FlockStatus(id="", flock=shut)), "flock", "status").stdout
    assert "lends          nothing: a rule denies it\n" in said
    assert "LENT" not in said
    alone = FlockView(pool="pool.example.org", member=False)
    said = run(FakePool(AskFlock=FlockStatus(id="", flock=alone)), "flock", "status").stdout
    assert "in no flock: it knows no other pool" in said


def test_where_there_is_no_flock_the_exit_status_says_not_found() -> None:
    result = run(FakePool(AskFlock=NotFound("this pool is in no flock")), "flock", "status")
    assert result.exit_code == 7
    assert "this pool is in no flock" in result.stderr


def test_pools_are_listed_the_nearest_first() -> None:
    pool = FakePool(ListNeighbours=Neighbours(id="", pools=NEIGHBOURS))
    said = run(pool, "flock", "pools").stdout.splitlines()
    assert [line.split()[0] for line in said] == ["POOL", *(f"{x}.example.org" for x in "cba")]
    assert "0.61 ms" in said[1]
    assert "no: denied there" in said[1]
    assert "40.5 ms" in said[2]
    assert "5.5 CPUs on 3 machines" in said[2]
    assert "silent" in said[3]
    assert said[3].endswith("no: rule eve")


def test_all_pages_are_asked_for() -> None:
    def page(request: ListNeighbours) -> Neighbours:
        place = [view.pool for view in NEIGHBOURS].index(request.after) + 1 if request.after else 0
        after = NEIGHBOURS[place].pool if place < 2 else None
        return Neighbours(id="", pools=[NEIGHBOURS[place]], after=after)

    found = json.loads(run(FakePool(ListNeighbours=page), "-o", "json", "flock", "pools").stdout)
    assert len(found) == 3


def test_a_pool_that_knows_no_other_says_so() -> None:
    nobody = FakePool(ListNeighbours=Neighbours(id="", pools=[]))
    assert "no other pool is known" in run(nobody, "flock", "pools").stderr


def test_an_admin_joins_forgets_leaves_and_pings() -> None:
    pool = FakePool()
    assert "joining through b.test" in run(pool, "flock", "join", "b.test").stdout
    assert pool.last(JoinFlock).domain == "b.test"
    forgotten = run(pool, "flock", "forget", "b.test").stdout
    assert forgotten == "no longer joining through b.test\n"
    assert pool.last(ForgetPool).domain == "b.test"
    assert run(pool, "flock", "leave").stdout == "the pool has left its flock\n"
    assert pool.count(LeaveFlock) == 1
    assert run(pool, "flock", "ping", "b.test").stdout == "b.test answers in 12.3 ms\n"
    assert [as_admin for _, as_admin in pool.opened] == [True] * 4


@pytest.mark.parametrize("verb", ["join", "forget", "ping"])
@pytest.mark.parametrize("word", ["", "a b", "b.test/x", "ada@b.test", "*", "a\x01b", "x" * 3000])
def test_what_is_no_domain_is_refused_in_words_and_not_sent(verb: str, word: str) -> None:
    pool = FakePool()
    result = run(pool, "flock", verb, "--", word)
    assert result.exit_code == UsageError.exit_status
    first, hint = result.stderr.splitlines()
    assert first.endswith("is not a domain")
    assert len(first) < 300
    assert hint.startswith("hint: for example ")
    assert pool.asked == []


def test_what_a_pool_only_tries_to_join_through_is_not_said_to_have_come_to_pass() -> None:
    trying = replace(FLOCK, joined_through=["b.example.org", "zzz"])
    said = run(FakePool(AskFlock=FlockStatus(id="", flock=trying)), "flock", "status").stdout
    assert "flock          a member, joins through b.example.org, zzz\n" in said


def test_a_rule_is_sent_as_it_was_given() -> None:
    pool = FakePool()
    said = run(
        pool,
        *("flock", "policy", "set", "friends", "--lend", "--allow", "--neighbour", "*.example.org"),
        *("--user", "ada", "--user", "b*", "--requirements", "RequestCpus <= 2"),
        *("--max-cpus", "8", "--max-time", "10m", "--isolation", "systemd", "--lease", "1h"),
    )
    assert said.stdout == "rule friends is in force\n"
    assert pool.last(SetFlockRule).rule == FLOCK_RULES[0]
    run(pool, "flock", "policy", "set", "eve", "--borrow", "--deny", "--order", "7", "--group", "g")
    assert pool.last(SetFlockRule).rule == FlockRule(
        name="eve", direction="borrow", action="deny", order=7, groups=("g",)
    )


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--lend"],
        ["--deny"],
        ["--lend", "--allow", "--max-cpus", "0"],
        ["--lend", "--allow", "--max-cpus", "nan"],
        ["--lend", "--allow", "--max-time", "soon"],
        ["--lend", "--allow", "--isolation", "vm"],
        ["--lend", "--allow", "--order", "-1"],
    ],
)
def test_what_is_no_rule_is_not_sent(words: list[str]) -> None:
    pool = FakePool()
    result = run(pool, "flock", "policy", "set", "r", *words)
    assert result.exit_code == 2
    assert not pool.asked


def test_rules_are_listed_with_whom_and_on_which_terms() -> None:
    both = FlockRules(id="", rules=FLOCK_RULES, rest={"lend": False, "borrow": True})
    result = run(FakePool(ListFlockRules=both), "flock", "policy", "list")
    _, friends, eve = result.stdout.splitlines()
    assert "lend allow" in friends
    assert "pool *.example.org; user ada, b*; where RequestCpus <= 2" in friends
    assert "8 CPUs, up to 10m 00s each, isolation systemd, leases of 1h 00m" in friends
    assert eve.split() == ["eve", "7", "borrow", "deny", "all"]
    assert "what no rule fits: lend deny, borrow allow" in result.stderr
    nothing = FlockRules(id="", rules=[], rest={"lend": True, "borrow": True})
    result = run(FakePool(ListFlockRules=nothing), "flock", "policy", "list")
    assert "no rules: this pool lends to all others" in result.stderr


def test_one_processor_is_told_of_in_the_singular() -> None:
    one = FlockRules(id="", rules=[replace(FLOCK_RULES[0], max_cpus=1.0)], rest={})
    said = run(FakePool(ListFlockRules=one), "flock", "policy", "list").stdout
    assert "  1 CPU, up to" in said
    assert [cpus(amount) for amount in (0.5, 1.0, 8.0)] == ["0.5 CPUs", "1 CPU", "8 CPUs"]


def test_a_rule_is_removed() -> None:
    assert run(FakePool(), "flock", "policy", "remove", "eve").stdout == "rule eve is removed\n"


NEAR = [
    NeighbourAnswer(pool="b.test", reason="full"),
    NeighbourAnswer(pool="c.test", reason="policy", detail="rule eve denies it"),
    NeighbourAnswer(pool="d.test", reason="too-small", detail="memory 1 GiB"),
]


def test_why_a_task_waits_names_each_neighbour() -> None:
    pool = FakePool(ExplainJob=replace(RUNNABLE, neighbours=NEAR))
    said = [line.strip() for line in run(pool, "job", "explain", "7").stdout.splitlines()]
    assert "b.test  it has nothing free" in said
    assert "c.test  it is ruled out by a policy: rule eve denies it" in said
    assert "d.test  it does not fit (too-small): memory 1 GiB" in said
    found = json.loads(run(pool, "-o", "json", "job", "explain", "7").stdout)
    assert found["neighbours"][0] == {"pool": "b.test", "reason": "full", "detail": ""}
    assert "WHY IT DOES NOT RUN THERE" not in run(FakePool(), "job", "explain", "7").stdout


def test_a_neighbour_that_is_about_to_be_asked_is_told_of_once() -> None:
    asked = NeighbourAnswer(pool="a.test", reason="asked", detail="it has some free")
    assert neighbour_words(asked) == "was asked for machines, or is about to be: it has some free"


def test_a_clause_without_attributes_fails_without_values() -> None:
    count = ClauseCount(by="start", clause="(false)", of=1, alone=0, so_far=0)
    closest = replace(count, closest="flock@b.test/0", fails=True)
    pool = FakePool(
        ExplainJob=replace(RUNNABLE, clauses=[closest, replace(closest, values="Cpus = 1")])
    )
    said = [line.rstrip() for line in run(pool, "job", "explain", "7").stdout.splitlines()]
    assert [line for line in said if line.endswith("(false)  b.test: fails")]
    assert [line for line in said if line.endswith("(false)  b.test: fails: Cpus = 1")]


def test_a_chat_names_the_nearest() -> None:
    said = sentences.explained(replace(RUNNABLE, waiting=3, neighbours=NEAR * 3))
    assert "Pool b.test has nothing free\nPool c.test is ruled out by a policy" in said
    assert said.endswith("and 4 other pools")


def test_a_chat_tells_how_the_flock_is() -> None:
    assert sentences.flock_line(FLOCK) == (
        "The pool pool.example.org knows 12 other pools.\n"
        "It lends to 1 pool: 2 tasks of theirs run here.\n"
        "It borrows from 1 pool: 5 tasks of ours run there."
    )
    shut = replace(FLOCK, willing=False, why_unwilling="a rule denies it", given=[])
    assert "It lends nothing: a rule denies it." in sentences.flock_line(shut)
    alone = FlockView(pool="pool.example.org", member=False)
    assert "is in no flock: it knows" in sentences.flock_line(alone)
