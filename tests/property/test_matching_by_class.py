"""Matching a shape with a class comes to the same as matching the job with each worker itself."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kestrel_worlds.memory_store import MemoryStore
from kestrelctl.core.classad.evaluation import Ad, Expression, is_true
from kestrelctl.core.classad.syntax import parse, references
from kestrelctl.core.jobs.queued_bytes import encoded_bytes
from kestrelctl.core.members.worker import Worker
from kestrelctl.core.model.config import Config
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.refusal import Reason, Refusal
from kestrelctl.core.model.validate import problem_with_job
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.model.worker.ad_rules import problem_with_ad
from kestrelctl.core.model.worker.matching_ads import Attributes, in_lower_case, job_ad, worker_ad
from kestrelctl.core.pool import Pool
from kestrelctl.core.scheduling.expression_answers import Side
from kestrelctl.core.scheduling.judgement import judge

MEBIBYTE = 1 << 20
_texts = st.sampled_from(["a", "A", "b", "crow", "ada", ""])
_literals = _texts.map(lambda text: f'"{text}"')
_identities = st.sampled_from(
    ["Machine", "TARGET.Machine", "MY.Owner", "Owner", "Name", "JobName", "TARGET.Owner"]
)
_numbers = st.sampled_from(
    ["Cpus", "Memory", "MY.Speed", "Speed", "TARGET.Speed", "RequestCpus", "JobPrio", "2", "Site"]
)
_comparisons = st.sampled_from(["==", "!=", "=?=", "=!=", "is", "isnt"])
_clauses = st.one_of(
    st.tuples(_identities, _comparisons, _literals).map(" ".join),
    st.tuples(_literals, _comparisons, _identities).map(" ".join),
    st.tuples(_identities, _literals, _literals).map(
        lambda t: f"member({t[0]}, {{{t[1]}, {t[2]}}})"
    ),
    st.tuples(_numbers, st.sampled_from(["<", ">=", "==", "=?="]), _numbers).map(" ".join),
    st.tuples(st.just("Site"), _comparisons, _literals).map(" ".join),
    st.tuples(_literals, st.just("Tags")).map(lambda t: f"member({t[0]}, {t[1]})"),
    st.sampled_from(
        ["isUndefined(Speed)", 'regexp("^c", TARGET.Site)', "Site", "TARGET.Fast", "Speed", "0.5"]
    ),
)
_expressions = st.recursive(
    _clauses,
    lambda inside: st.one_of(
        st.tuples(inside, st.sampled_from(["&&", "||", "=?="]), inside).map(
            lambda t: f"({t[0]}) {t[1]} ({t[2]})"
        ),
        inside.map(lambda text: f"!({text})"),
    ),
    max_leaves=4,
)
_ads = st.builds(
    WorkerAd,
    assets=st.sampled_from([{"cpus": 1.0}, {"cpus": 2.0, "memory": 512.0 * MEBIBYTE}]),
    tags=st.sampled_from([(), ("a",), ("b", "isolation:plain")]),
    host=_texts,
    attributes=st.dictionaries(
        st.sampled_from(["speed", "SITE", "fast"]),
        st.one_of(_texts, st.sampled_from([1, 2, 1.0, True, False])),
    ),
    start=st.one_of(st.just(""), _expressions),
)
_specs = st.builds(
    JobSpec,
    program=st.just(Program(argv=("x",))),
    request=st.sampled_from([{"cpus": 1.0}, {"cpus": 0.5, "memory": 1.0 * MEBIBYTE}]),
    name=_texts,
    priority=st.sampled_from([1, 2, 100]),
    requirements=st.one_of(st.just(""), _expressions),
    rank=st.one_of(st.just(""), _expressions),
)


def alone(spec: JobSpec, owner: str, ad: WorkerAd, jid: str) -> Reason | None:
    """Why this job and this worker refuse each other, by their whole ads."""
    job, worker = job_ad(spec, owner), worker_ad(ad, jid)
    mine, target = Side(in_lower_case(job)), Side(in_lower_case(worker))
    why = None
    if spec.requirements:
        why = judge(Reason.REQUIREMENTS, spec.requirements, mine, target)
        assert (why is None) == as_a_whole(spec.requirements, job, worker)
    if why is None and ad.start:
        why = judge(Reason.START, ad.start, target, mine)
        assert (why is None) == as_a_whole(ad.start, worker, job)
    return why and why.reason


def as_a_whole(text: str, mine: Attributes, target: Attributes) -> bool:
    """Whether an expression is true by the library, which reads it as one."""
    return is_true(Expression(scoped(text, mine)).evaluate(Ad(mine), Ad(target)))


def scoped(text: str, mine: Attributes) -> str:
    """An expression whose names without a scope say where they are looked up: the library looks
    for them in one's own ad alone.
    """
    own = {name.lower() for name in mine}
    for node in reversed(references(parse(text))):
        if not node.scope and node.name not in own:
            text = f"{text[: node.start]}TARGET.{text[node.start :]}"
    return text


@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(_ads, st.tuples(_texts, _specs)), max_size=14))
def test_matching_by_class_equals_matching_each_worker(
    comers: list[WorkerAd | tuple[str, JobSpec]],
) -> None:
    """In whatever order they come: each may bring an expression that tells earlier ones apart."""
    pool = Pool(MemoryStore().open(), Config())
    state = pool.state
    for place, comer in enumerate(comers):
        if isinstance(comer, WorkerAd):
            assert problem_with_ad(comer) is None
            jid = f"w{place}"
            state.workers[jid] = Worker(jid, state.class_of(comer, jid), comer, 0.0)
        else:
            owner, spec = comer
            assert problem_with_job(spec) is None
            state.new_job(place, owner, spec, 0.0, encoded_bytes(spec))
    for job in state.jobs.values():
        for jid, worker in state.workers.items():
            terms = state.supply.of(worker).terms(job.shape)
            found = terms.reason if isinstance(terms, Refusal) else None
            if found in (Reason.TOO_SMALL, Reason.MISSING_ASSET, Reason.MISSING_TAGS):
                continue
            assert found == alone(job.spec, job.owner, worker.ad, jid)
