"""`requirements` and `rank` of jobs, `start` of workers: who gets what, and why not."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest
from poolkit import PoolDriver

from kestrelctl.core import events as ev
from kestrelctl.core.classad import syntax
from kestrelctl.core.classad.evaluation import NOTHING, Ad, Answer, Expression, Unknown
from kestrelctl.core.handlers.submission import MOST_EXPRESSIONS
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.records import JobRecord
from kestrelctl.core.model.refusal import Reason, Refusal
from kestrelctl.core.model.validate import problem_with_job
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.model.worker.matching_ads import worker_ad
from kestrelctl.core.scheduling.expression_answers import Side, comes_to

MEBIBYTE = 1 << 20


def why(driver: PoolDriver, job_id: int) -> Refusal:
    """The closest of the workers' reasons."""
    job = driver.pool.state.jobs[job_id]
    return driver.pool.explain(job, driver.now).groups[0].refusal


def classes(driver: PoolDriver) -> int:
    return len({id(worker.cls) for worker in driver.pool.workers.values()})


def test_a_task_runs_where_its_requirements_are_true() -> None:
    driver = PoolDriver()
    driver.join("small", cpus=4, memory_bytes=1024 * MEBIBYTE)
    driver.join("large", cpus=4, memory_bytes=4096 * MEBIBYTE)
    job = driver.submit(8, requirements="Memory >= 2048 && TARGET.Cpus > 2")
    assert driver.jobs_at("small") == []
    assert set(driver.jobs_at("large")) == {job}
    closest = driver.submit(requirements="Memory > 8000 && Cpus == 4", cpus=3)
    assert why(driver, closest) == Refusal(
        Reason.REQUIREMENTS, "Memory > 8000", "Memory = 1024", pytest.approx(0.55)
    )


def test_an_attribute_that_is_not_there_is_named() -> None:
    driver = PoolDriver()
    driver.join("w", cpus=2, attributes={"rack": 7})
    job = driver.submit(requirements="Rack == 7 && TARGET.Site == MY.RequestCpus")
    refusal = why(driver, job)
    assert refusal.reason is Reason.UNDEFINED
    assert refusal.wanted == "requirements: TARGET.Site == MY.RequestCpus"
    assert refusal.found == "TARGET.Site is undefined, MY.RequestCpus = 1"


@pytest.mark.parametrize(
    ("requirements", "wanted", "found"),
    [
        ('Rack + "a" == 3', 'requirements: Rack + "a" == 3', "Rack = 7"),
        ("Cpus / (Cpus - 2) > 1", "requirements: Cpus / (Cpus - 2) > 1", "Cpus = 2"),
        ("Site", "requirements: Site", 'Site = "north"; it comes to "north"'),
        ('"north"', 'requirements: "north"', 'it comes to "north"'),
    ],
)
def test_an_error_shows_the_values(requirements: str, wanted: str, found: str) -> None:
    driver = PoolDriver()
    driver.join("w", cpus=2, attributes={"rack": 7, "site": "north"})
    refusal = why(driver, driver.submit(requirements=requirements))
    assert (refusal.reason, refusal.wanted, refusal.found) == (Reason.ERROR, wanted, found)


def test_a_worker_takes_the_jobs_that_its_start_is_true_of() -> None:
    driver = PoolDriver()
    driver.join("w", cpus=9, start='Owner == "bob" && RequestMemory < 100 && MY.Cpus > 1')
    ours = driver.submit(owner="ada")
    theirs = driver.submit(owner="bob")
    large = driver.submit(owner="bob", memory_bytes=0, name="x")
    assert driver.jobs_at("w") == [theirs, large]
    refusal = why(driver, ours)
    assert (refusal.reason, refusal.wanted) == (Reason.START, 'Owner == "bob"')
    assert refusal.found == "Owner is another"
    driver.restart()
    driver.join("w", cpus=9, start='Owner == "ada"')
    assert ours in driver.jobs_at("w")


def test_a_start_that_comes_later_tells_jobs_apart_that_wait() -> None:
    driver = PoolDriver()
    job = driver.submit(5, owner="ada")
    other = driver.submit(5, owner="bob")
    assert driver.pool.job(job).shape is driver.pool.job(other).shape  # type: ignore[union-attr]
    driver.join("w", cpus=20, start='Owner == "bob"')
    assert set(driver.jobs_at("w")) == {other}
    driver.join("v", cpus=20)
    assert set(driver.jobs_at("v")) == {job}


def test_workers_are_told_apart_only_by_what_is_asked() -> None:
    driver = PoolDriver()
    for n in range(20):
        driver.join(f"w{n}", host=f"host{n}", attributes={"rack": n % 3, "serial": n})
    assert classes(driver) == 1
    driver.submit(requirements='Machine == "host7" && Machine != "host8"')
    assert classes(driver) == 3
    assert driver.jobs_at("w7")
    driver.submit(5, requirements="Rack == 2")
    assert classes(driver) == 5
    assert len([n for n in range(2, 20, 3) if driver.jobs_at(f"w{n}")]) >= 5
    driver.submit(requirements="NoSuchThing =!= undefined")
    assert classes(driver) == 5


def test_what_nobody_asks_any_more_tells_nobody_apart() -> None:
    driver = PoolDriver()
    for n in range(20):
        driver.join(f"w{n}", attributes={"serial": n})
    driver.submit(requirements="Serial == 7")
    assert classes(driver) == 20
    driver.finish_all()
    for n in range(150):
        driver.submit(cpus=0.5 + n / 1000)
        driver.finish_all()
    assert classes(driver) == 1


def test_identities_may_only_be_compared_with_texts() -> None:
    for text in ("Machine > 3", 'regexp("^a", Machine)', "MY.Owner == TARGET.Name", "!Machine"):
        problem = problem_with_job(JobSpec(program=Program(argv=("x",)), requirements=text))
        assert problem is not None
        assert "can only be compared with texts" in problem
    for text in ('member(Machine, {"a", "b"})', '"a" == (Machine)', "Machine isnt undefined"):
        assert problem_with_job(JobSpec(program=Program(argv=("x",)), requirements=text)) is None
    assert problem_with_job(JobSpec(program=Program(argv=("x",)), requirements="Cpus > > 2")) == (
        "requirements: a value is expected, not '>', at character 8\nCpus > > 2\n       ^"
    )


@pytest.mark.parametrize(
    ("text", "character", "what"),
    [
        ("MY.TARGET.Cpus > 1", 10, "MY.TARGET has no parts: write X, MY.X or TARGET.X"),
        ("Cpus > 1 && TARGET.Site.Name == 3", 24, "TARGET.Site has no parts"),
        ("member(3, Rack.Units)", 15, "Rack has no parts"),
        ("MY.TARGET == 1", 1, "TARGET is no attribute: write X, MY.X or TARGET.X"),
        ("TARGET", 1, "TARGET is no attribute"),
    ],
)
def test_what_would_be_undefined_for_ever_is_refused(text: str, character: int, what: str) -> None:
    for spec in (
        JobSpec(program=Program(argv=("x",)), requirements=text),
        JobSpec(program=Program(argv=("x",)), rank=text),
    ):
        problem = problem_with_job(spec)
        assert problem is not None
        assert what in problem
        assert f"at character {character}\n" in problem


def test_a_place_in_a_list_is_no_part_of_an_attribute() -> None:
    driver = PoolDriver()
    driver.join("w", cpus=1, tags=("LINUX",))
    job = driver.submit(requirements='{1, 2}[0] == 1 && Tags[0] == "linux"')
    assert driver.jobs_at("w") == [job]


def test_the_workers_of_highest_rank_are_filled_first() -> None:
    driver = PoolDriver()
    for n in (2, 0, 3, 1):
        driver.join(f"w{n}", cpus=2, attributes={"speed": n})
    driver.hold_back()
    driver.submit(5, rank="TARGET.Speed")
    driver.let_go()
    assert [len(driver.held(f"w{n}")) for n in range(4)] == [0, 1, 2, 2]


def test_a_rank_does_not_let_jobs_of_lower_priority_by() -> None:
    driver = PoolDriver()
    for n in range(4):
        driver.join(f"w{n}", cpus=1, attributes={"speed": n})
    driver.hold_back()
    late = driver.submit(4, priority=50)
    first = driver.submit(3, rank="Speed", priority=200)
    driver.let_go()
    assert [driver.jobs_at(f"w{n}") for n in range(4)] == [[late], [first], [first], [first]]


@pytest.mark.parametrize("rank", ["NoSuch", "1/0", '"a"', "-Speed", "Speed > 1"])
def test_whatever_a_rank_comes_to_all_that_waits_is_handed_out(rank: str) -> None:
    driver = PoolDriver()
    for n in range(40):
        driver.join(f"w{n}", cpus=1, attributes={"speed": n})
    driver.submit(100, rank=rank)
    driver.submit(100, rank="Speed")
    assert all(driver.held(f"w{n}") for n in range(40))
    driver.finish_all()
    assert len(driver.ended) == 2


def test_expressions_of_one_user_are_bounded() -> None:
    driver = PoolDriver()
    driver.join("w", cpus=1)
    for n in range(MOST_EXPRESSIONS):
        driver.submit(requirements=f"Cpus > {n + 1}")
    driver.submit(requirements="Cpus > 1")
    driver.tell(
        ev.Submit(
            at=driver.now,
            request="r",
            owner="ada",
            spec=JobSpec(program=Program(argv=("x",)), requirements="Cpus > 2000"),
        )
    )
    assert driver.answers[-1].error == "usage"
    assert "different requirements and ranks" in driver.answers[-1].message
    other = driver.submit(owner="bob", requirements="Cpus > 0")
    assert driver.jobs_at("w") == [other]
    assert driver.submit() in {job.id for job in driver.pool.jobs}


def test_a_match_is_evaluated_once_for_many() -> None:
    driver = PoolDriver()
    for n in range(30):
        driver.join(f"w{n}", cpus=2, attributes={"rack": n % 2})
    jobs = [driver.submit(10, requirements="Rack == 1") for _ in range(5)]
    assert len({id(driver.pool.job(job).shape) for job in jobs}) == 1  # type: ignore[union-attr]
    assert classes(driver) == 2


def test_a_name_in_quotes_may_stand_next_to_a_word() -> None:
    driver = PoolDriver()
    driver.join("w", cpus=1, attributes={"site": "a", "home": "a"})
    job = driver.submit(requirements="Site is'home'&&'home'isnt \"b\"")
    assert driver.jobs_at("w") == [job]


def test_a_zero_below_zero_is_the_other_one() -> None:
    """HTCondor's library tells them apart, and nothing that is remembered of values does."""
    driver = PoolDriver()
    for name, value in (("w", -0.0), ("v", 0.0)):
        driver.join(name, cpus=1, attributes={"speed": value})
    driver.submit(4, requirements='string(Speed) == "0.0"')
    assert (len(driver.held("w")), len(driver.held("v"))) == (1, 1)
    assert "-" not in str(worker_ad(WorkerAd(properties={"x": -0.0})))


def test_true_is_not_one() -> None:
    driver = PoolDriver()
    driver.join("one", cpus=1, attributes={"fast": 1})
    driver.join("true", cpus=1, attributes={"fast": True})
    driver.submit(4, requirements="Fast =?= true")
    assert (len(driver.held("one")), len(driver.held("true"))) == (0, 1)


def test_more_than_texts_tells_all_values_apart() -> None:
    driver = PoolDriver()
    for site in ("north", "south", "east"):
        driver.join(site, cpus=1, attributes={"site": site})
    driver.submit(4, requirements='Site == "east"')
    assert classes(driver) == 2
    driver.submit(4, requirements='size(Site) == 5 && Site == "east"')
    assert classes(driver) == 3


def clause_table(driver: PoolDriver, job_id: int) -> list[tuple[str, int, int, int, int, bool]]:
    job = driver.pool.state.jobs[job_id]
    return [
        (each.clause, each.of, each.alone, each.so_far, each.undefined, each.fails)
        for each in driver.pool.explain(job, driver.now).clauses
    ]


def test_each_clause_is_shown_with_the_workers_that_it_leaves() -> None:
    driver = PoolDriver()
    for n in range(10):
        attributes: dict[str, bool | int | float | str] = {"rack": n % 2} if n < 6 else {}
        memory = (2048 if n < 4 else 1024) * MEBIBYTE
        driver.join(f"w{n}", cpus=4, memory_bytes=memory, attributes=attributes, host=f"h{n}")
    job = driver.submit(requirements='Cpus >= 4 && Memory > 2000 && Rack == 1 && Machine == "h6"')
    assert clause_table(driver, job) == [
        ("Cpus >= 4", 10, 10, 10, 0, False),
        ("Memory > 2000", 10, 4, 4, 0, False),
        ("Rack == 1", 10, 3, 2, 4, False),
        ('Machine == "h6"', 10, 1, 0, 0, True),
    ]
    found = driver.pool.explain(driver.pool.state.jobs[job], driver.now).clauses
    assert {each.closest for each in found} == {"w1"}
    assert [each.values for each in found] == [
        "Cpus = 4",
        "Memory = 2048",
        "Rack = 1",
        'Machine = "h1"',
    ]


def test_the_starts_of_workers_are_shown_likewise() -> None:
    driver = PoolDriver()
    driver.join("a", "b", cpus=4, start='RequestCpus <= 2 && Owner == "ada"')
    driver.join("c", cpus=4, start='Owner == "bob"')
    driver.join("d", cpus=1)
    job = driver.submit(cpus=3)
    assert clause_table(driver, job) == [
        ("RequestCpus <= 2", 2, 0, 0, 0, True),
        ('Owner == "ada"', 2, 2, 0, 0, False),
        ('Owner == "bob"', 1, 0, 0, 0, True),
    ]
    values = [each.values for each in driver.pool.explain(driver.pool.state.jobs[job], 0).clauses]
    assert values == ["RequestCpus = 3", 'Owner = "ada"', 'Owner = "ada"']


def test_memory_and_disk_have_as_many_digits_as_other_amounts() -> None:
    """The machine has 2014.308594 MiB. Other numbers are shown as they are."""
    driver = PoolDriver()
    assets = {"memory_bytes": 2_112_155_648, "disk": 15_718_535_169.0}
    driver.join("w", cpus=1, attributes={"speed": 1.359375}, **assets)  # type: ignore[arg-type]
    job = driver.submit(
        requirements="Memory >= 4000 && TARGET.Disk > 9e9 && RequestMemory > 1 && Speed > 2",
        memory_bytes=10_000_000,
    )
    assert why(driver, job).found == "Memory = 2014"
    found = driver.pool.explain(driver.pool.state.jobs[job], driver.now).clauses
    assert [each.values for each in found] == [
        "Memory = 2014",
        "TARGET.Disk = 15350132",
        "RequestMemory = 9.537",
        "Speed = 1.359375",
    ]


def test_the_values_shown_are_those_of_a_worker_that_refuses() -> None:
    """Rather than of one at which the job only has to wait."""
    driver = PoolDriver()
    driver.join("fits", cpus=1, attributes={"rack": 1})
    driver.join("other", cpus=1, attributes={"rack": 2})
    driver.submit()
    job = driver.submit(2, requirements="Cpus == 1 && Rack == 1")
    found = driver.pool.explain(driver.pool.state.jobs[job], driver.now).clauses
    assert [(each.closest, each.fails, each.values) for each in found] == [
        ("other", False, "Cpus = 1"),
        ("other", True, "Rack = 2"),
    ]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Memory > RequestMemory", True),
        ("Cpus", 2),
        ("TARGET.Cpus", 5),
        ("Cpus + my.cpus + Target.'CPUS'", 9),
        ("MY.Memory", Unknown.UNDEFINED),
        ("TARGET.RequestMemory", Unknown.UNDEFINED),
        ("MY.Owner == TARGET.Owner", False),
        ("member('Owner', TARGET.Owners)", True),
    ],
)
def test_a_name_without_a_scope_is_ones_own_or_else_the_others(text: str, answer: Answer) -> None:
    mine = Side({"requestmemory": 1, "cpus": 2, "owner": "ada"})
    target = Side({"memory": 3, "cpus": 5, "owner": "bob", "owners": ("ada", "eve")})
    assert comes_to(text, mine, target) == answer


@pytest.fixture
def evaluated(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts of all expressions that the library has evaluated; names are numbered in them."""
    texts: list[str] = []
    evaluate = Expression.evaluate

    def noted(expression: Expression, my: Ad = NOTHING, target: Ad | None = NOTHING) -> Answer:
        texts.append(" ".join(expression.text.split()))
        return evaluate(expression, my, target)

    monkeypatch.setattr(Expression, "evaluate", noted)
    return texts


def test_a_clause_is_evaluated_once_for_workers_that_agree_in_what_it_asks(
    evaluated: list[str],
) -> None:
    """Of whatever class they are: 5,000 workers are explained as fast as their kinds."""
    driver = PoolDriver()
    job = driver.submit(requirements="Bay >= 0 && Bay =!= undefined && Cpus > 41.5 && 1.5 < Memory")
    evaluated.clear()
    for n in range(80):
        driver.join(f"w{n}", cpus=1, attributes={"bay": n % 40})
    assert classes(driver) == 40
    clause_table(driver, job)
    assert Counter(evaluated) == {
        "a0 >= 0": 40,
        "a0 =!= undefined": 40,
        "a0 > 41.5": 1,
        "1.5 < a0": 1,
    }
    evaluated.clear()
    clause_table(driver, job)
    assert evaluated == []


def test_a_start_that_many_workers_share_is_read_and_evaluated_once(
    evaluated: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    read = []
    parse = syntax._Reader
    monkeypatch.setattr(syntax, "_Reader", lambda words: read.append(words) or parse(words))
    driver = PoolDriver()
    driver.submit(requirements="Dock == 1")
    for n in range(40):
        driver.join(f"w{n}", cpus=1, attributes={"dock": n + 2}, start="RequestCpus > 42.5")
    assert classes(driver) == 40
    read.clear()
    job = driver.submit()
    clause_table(driver, job)
    assert evaluated.count("a0 > 42.5") == 1
    assert len(read) < 10


def test_where_workers_are_counted_true_is_not_one() -> None:
    driver = PoolDriver()
    driver.join("one", cpus=1, attributes={"fast": 1})
    driver.join("true", "yes", cpus=1, attributes={"fast": True})
    driver.join("float", cpus=1, attributes={"fast": 1.0})
    job = driver.submit(requirements="Fast =?= true && Cpus > 1")
    assert clause_table(driver, job) == [
        ("Fast =?= true", 4, 2, 2, 0, False),
        ("Cpus > 1", 4, 0, 0, 0, True),
    ]


UTF8 = "it comes to a text that is no UTF-8"


@pytest.mark.parametrize("name", ["requirements", "rank"])
def test_a_job_whose_expression_cannot_be_evaluated_is_held_and_costs_nobody_else(
    name: str,
) -> None:
    driver = PoolDriver()
    driver.join("plain", cpus=4, attributes={"site": "Bonn"})
    bad = driver.submit(40, **{name: "substr(Site, 0, 2)"} | {"name": "bad"})
    other = driver.submit(9)
    driver.join("w", cpus=9, attributes={"site": "München"})
    job = driver.pool.state.jobs[bad]
    assert job.hold is not None
    assert (job.hold.by, job.hold.reason) == ("pool", f"{name}: substr(Site, 0, 2): {UTF8}")
    assert other in driver.jobs_at("w")
    assert bad not in driver.jobs_at("w")
    groups = driver.pool.explain(job, driver.now).groups
    assert UTF8 in [group.refusal.found for group in groups]
    again = driver.submit(**{name: "substr(Site, 0, 2)"})
    assert driver.pool.state.jobs[again].hold is not None
    driver.restart()
    driver.join("w", cpus=9, attributes={"site": "München"})
    assert driver.pool.state.jobs[bad].hold is not None


def test_a_job_that_is_released_runs_where_its_rank_can_be_evaluated() -> None:
    driver = PoolDriver()
    driver.join("w", cpus=1, attributes={"site": "München"})
    bad = driver.submit(rank="substr(Site, 0, 2)")
    driver.release(bad)
    assert driver.jobs_at("w") == []
    driver.join("plain", cpus=1, attributes={"site": "Bonn"})
    assert driver.jobs_at("plain") == [bad]


@pytest.mark.parametrize("name", ["requirements", "rank"])
@pytest.mark.parametrize("text", [r'"\303"', r'{"\303"}', r'ifThenElse(true, "\303", 1)'])
def test_an_expression_that_never_can_be_evaluated_is_refused(name: str, text: str) -> None:
    driver = PoolDriver()
    driver.submit(**{name: text})
    answer = driver.answers[-1]
    assert answer.error == "usage"
    assert answer.message.startswith(f"{name}: {text}: ")


def test_the_start_of_a_worker_that_cannot_be_evaluated_holds_nobody() -> None:
    driver = PoolDriver()
    driver.join("w", cpus=9, start=r'"\303"')
    job = driver.submit(name="München")
    assert driver.pool.state.jobs[job].hold is None
    assert (why(driver, job).reason, why(driver, job).found) == (Reason.ERROR, UTF8)


@pytest.mark.parametrize("text", [r'"\303"', "X ?: !Y", "Cpus\u2003> 1"])
def test_a_stored_job_that_would_not_be_taken_now_is_held_at_the_start(text: str) -> None:
    driver = PoolDriver()
    job = driver.submit(name="under other rules")
    other = driver.submit()
    for n, record in enumerate(driver.records):
        if isinstance(record, JobRecord) and record.job_id == job:
            spec = msgspec.structs.replace(record.spec, requirements=text)
            driver.records[n] = msgspec.structs.replace(record, spec=spec)
    driver.restart()
    hold = driver.pool.state.jobs[job].hold
    assert hold is not None
    assert hold.reason.startswith("requirements: ")
    driver.join("w", cpus=9)
    assert driver.jobs_at("w") == [other]
    driver.release(job)
    assert why(driver, job).reason is Reason.ERROR
