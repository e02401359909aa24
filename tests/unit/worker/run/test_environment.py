"""What a task finds in its environment of the worker's own."""

from __future__ import annotations

import pytest

from kestrelctl.core.agent.agent import Agent, LocalAttempt
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.template import Template
from kestrelctl.core.model.worker.ad import AssetUnit, WorkerAd, unit_ids
from kestrelctl.core.model.worker.claim import Claim
from kestrelctl.worker.run.variables import Environments, host_lines

OWN = {"PATH": "/bin", "OMP_NUM_THREADS": "4", "TMPDIR": "/scratch", "NOTIFY_SOCKET": "/run/n"}


def environment(own: dict[str, str], **of_the_job: str) -> dict[str, str]:
    template = Template(job_id=1, program=Program(argv=("true",), env=of_the_job))
    return Environments("w1@pool.example.org/w1", own).of(
        LocalAttempt(1, template, 0, None, Claim({}), (1, 1, 0, 1, 0), 0.0)
    )


def test_a_task_inherits_little() -> None:
    assert {name for name in environment(OWN) if not name.startswith("KESTREL_")} == {"PATH"}


@pytest.mark.parametrize("comma", [",", ", "], ids=["comma", "comma-and-blank"])
def test_a_worker_can_hand_down_more_by_name(comma: str) -> None:
    names = comma.join(("OMP_NUM_THREADS", "TMPDIR", "NOWHERE"))
    found = environment({**OWN, "KESTREL_INHERIT": names})
    assert (found["OMP_NUM_THREADS"], found["TMPDIR"]) == ("4", "/scratch")
    assert not {"NOTIFY_SOCKET", "NOWHERE", "KESTREL_INHERIT"} & found.keys()


def test_the_job_has_the_last_word() -> None:
    own = {**OWN, "KESTREL_INHERIT": "OMP_NUM_THREADS"}
    assert environment(own, OMP_NUM_THREADS="1")["OMP_NUM_THREADS"] == "1"


def test_a_task_finds_which_attempt_it_is_as_people_count() -> None:
    template = Template(job_id=1, program=Program(argv=("true",)))
    agent = Agent({"cpus": 4.0})
    spans = [((3 << 40) + 5, 1, 0, 3, 0, 0)]
    claims = [{"cpus": 1000}]
    agent.on_run(spans, claims, [template], [], [], 0.0, [((3 << 40) + 6, 2)])
    environments = Environments("w1@pool.example.org/w1", OWN)
    found = [environments.of(attempt)["KESTREL_ATTEMPT"] for attempt in agent.queue]
    assert found == ["1", "2", "1"]


GPUS = WorkerAd(assets={"cpus": 4.0, "gpus": 2.0}, units={"gpus": (AssetUnit("0"), AssetUnit("1"))})


def environments_of(agent: Agent, environments: Environments) -> list[dict[str, str]]:
    """Of all that starts there now."""
    started = iter(lambda: agent.start_next(0.0), None)
    return [environments.of(attempt) for attempt in started]


def test_a_task_finds_its_units_and_no_others() -> None:
    agent = Agent(GPUS.assets, units=unit_ids(GPUS))
    template = Template(
        job_id=1, program=Program(argv=("true",), env={"CUDA_VISIBLE_DEVICES": "7"})
    )
    claims = [{"cpus": 1000, "gpus": 1000}, {"cpus": 1000}]
    spans = [(1, 1, 0, 2, 0, 0), (3, 1, 2, 1, 1, 0)]
    agent.on_run(spans, claims, [template], [], [], 0.0)
    first, second, third = environments_of(agent, Environments("w1@p/1", OWN, ad=GPUS))
    assert (first["KESTREL_GPUS"], first["CUDA_VISIBLE_DEVICES"]) == ("0", "0")
    assert (second["KESTREL_GPUS"], second["ROCR_VISIBLE_DEVICES"]) == ("1", "1")
    assert "KESTREL_GPUS" not in third
    assert third["CUDA_VISIBLE_DEVICES"] == "7", "the job's own word"
    assert third["ROCR_VISIBLE_DEVICES"] == ""


def test_a_gpu_that_is_no_longer_offered_is_still_hidden() -> None:
    environments = Environments("w1@p/1", OWN, ad=GPUS)
    environments.offer(WorkerAd())
    agent = Agent({"cpus": 1.0})
    agent.on_run(
        [(1, 1, 0, 1, 0, 0)],
        [{"cpus": 1000}],
        [Template(job_id=1, program=Program(argv=("x",)))],
        [],
        [],
        0.0,
    )
    [found] = environments_of(agent, environments)
    assert found["CUDA_VISIBLE_DEVICES"] == ""


def test_a_member_of_a_spanning_job_finds_the_others() -> None:
    agent = Agent({"cpus": 4.0})
    template = Template(job_id=1, program=Program(argv=("true",)), count=2)
    agent.on_run(
        [(7, 1, 1, 1, 0, 0)], [{"cpus": 2000}], [template], [], [], 0.0, hosts=["alpha", "beta"]
    )
    [found] = environments_of(agent, Environments("w1@p/1", OWN))
    assert found["KESTREL_RANK"] == "1"
    assert found["KESTREL_SPAN"] == "2"
    assert found["KESTREL_HOSTS"] == "alpha,beta"


def test_other_tasks_find_no_hosts() -> None:
    assert not {"KESTREL_RANK", "KESTREL_SPAN", "KESTREL_HOSTS"} & environment(OWN).keys()


def test_a_host_file_has_a_line_for_each_processor_of_each_member() -> None:
    hosts = ["alpha", "beta"]
    assert host_lines(hosts, Claim({"cpus": 2500})) == ("alpha", "alpha", "beta", "beta")
    assert host_lines(hosts, Claim({"cpus": 500})) == ("alpha", "beta")
    assert host_lines([], Claim({"cpus": 1000})) == ()
