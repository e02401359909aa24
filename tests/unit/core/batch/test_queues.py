"""What programs of batch systems print is counted as a property asks.

Of Slurm what 22.05.8 printed in the lab. Of the others samples after their documented formats: of
Grid Engine `qstat.xsd` in its sources, with the tags that its programs really print; of PBS the
design documents PP-483 to PP-485, "Enhance output of qstat", and pbsnodes(8B); of HTCondor
condor_q(1) and condor_status(1), expressions as its ClassAd library writes them in JSON
(`/Expr(…)/`).
"""

from __future__ import annotations

from contextlib import suppress
from xml.sax.saxutils import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kestrelctl.core.batch.question import SYSTEMS, BatchQuestion
from kestrelctl.core.batch.queue_facts import UnreadableOutput
from kestrelctl.errors import UsageError

SQUEUE = """\
PENDING;1;debug;mpi;ReqNodeNotAvail, May be reserved for other job
PENDING;2;debug;mpi&big|x;PartitionConfig
PENDING;1;debug,long;(null);Nodes required for job are DOWN, DRAINED or reserved for jobs in \
higher priority partitions
PENDING;1;debug;[mpi*2];JobHeldUser
PENDING;1;debug;mpi;Dependency
PENDING;1;debug;mpi;JobArrayTaskLimit
PENDING;1;debug;mpich&2xgpu;Resources
RUNNING;3;debug;mpi;None
COMPLETING;1;long;(null);None
"""
SINFO = """\
mpi-none;down;debug;mpi
node1;idle;debug;mpi,big
node1;idle;long;mpi,big
node2;mixed;debug;mpi
node3;idle*;debug;mpi
node4;idle~;debug;mpi
node5;draining;long;(null)
node6;idle;long;(null)
"""
QSTAT_XML = """\
<?xml version='1.0'?>
<job_info  xmlns:xsd="http://arc.liv.ac.uk/repos/darcs/sge/source/dist/util/resources/schemas/qstat/qstat.xsd">
  <queue_info>
    <Queue-List>
      <name>all.q@oak.example.org</name><qtype>BIP</qtype>
      <slots_used>1</slots_used><slots_resv>0</slots_resv><slots_total>4</slots_total>
      <load_avg>0.31000</load_avg><arch>lx-amd64</arch>
      <resource name="mem_free" type="hl">14.9G</resource>
      <resource name="mpi" type="hf">1</resource>
      <job_list state="running">
        <JB_job_number>41</JB_job_number><JAT_prio>0.55500</JAT_prio><JB_name>sleep</JB_name>
        <JB_owner>ada</JB_owner><state>r</state><JAT_start_time>2018-10-10T14:37:16</JAT_start_time>
        <slots>1</slots>
        <hard_request name="mpi" resource_contribution="0.000000">TRUE</hard_request>
      </job_list>
    </Queue-List>
    <Queue-List>
      <name>long.q@oak.example.org</name><qtype>BIP</qtype>
      <slots_used>0</slots_used><slots_resv>0</slots_resv><slots_total>4</slots_total>
    </Queue-List>
    <Queue-List>
      <name>all.q@elm.example.org</name><qtype>BIP</qtype>
      <slots_used>0</slots_used><slots_resv>0</slots_resv><slots_total>4</slots_total>
      <resource name="mpi" type="hf">1.000000</resource>
    </Queue-List>
    <Queue-List>
      <name>all.q@ash.example.org</name><qtype>BIP</qtype>
      <slots_used>0</slots_used><slots_resv>0</slots_resv><slots_total>4</slots_total>
      <state>au</state><resource name="mpi" type="hf">1.000000</resource>
    </Queue-List>
  </queue_info>
  <job_info>
    <job_list state="pending">
      <JB_job_number>42</JB_job_number><JAT_prio>0.50500</JAT_prio><JB_name>sleep</JB_name>
      <JB_owner>bob</JB_owner><state>qw</state><slots>3</slots>
      <requested_pe name="orte">3</requested_pe>
      <hard_request name="mpi" resource_contribution="0.000000">TRUE</hard_request>
      <hard_request name="h_rt" resource_contribution="0.000000">360</hard_request>
      <hard_req_queue>all.q</hard_req_queue>
    </job_list>
    <job_list state="pending">
      <JB_job_number>43</JB_job_number><JB_name>sleep</JB_name><JB_owner>bob</JB_owner>
      <state>hqw</state><slots>1</slots>
      <hard_request name="mpi" resource_contribution="0.000000">TRUE</hard_request>
    </job_list>
    <job_list state="pending">
      <JB_job_number>44</JB_job_number><JAT_prio>0.00000</JAT_prio><JB_name>sleep</JB_name>
      <JB_owner>bob</JB_owner><state>qw</state><slots>1</slots><tasks>2</tasks>
      <hard_req_queue>lon*</hard_req_queue>
    </job_list>
    <job_list state="pending">
      <JB_job_number>45</JB_job_number><JAT_prio>0.00000</JAT_prio><JB_name>tomorrow</JB_name>
      <JB_owner>bob</JB_owner><state>qw</state><slots>1</slots>
    </job_list>
    <job_list state="pending">
      <JB_job_number>46</JB_job_number><JAT_prio>0.50500</JAT_prio><JB_name>yesterday</JB_name>
      <JB_owner>bob</JB_owner><state>qw</state><slots>1</slots>
      <hard_req_queue>*.q@@fast</hard_req_queue>
    </job_list>
  </job_info>
</job_info>
"""
QSTAT_WITH_DATE = """\
<?xml version='1.0'?>
<job_info>
  <queue_info/>
  <job_info>
    <job_list state="pending">
      <JB_job_number>45</JB_job_number><JAT_prio>0.00000</JAT_prio><state>qw</state>
    </job_list>
    <job_list state="pending">
      <JB_job_number>46</JB_job_number><JAT_prio>0.50500</JAT_prio><state>qw</state>
    </job_list>
  </job_info>
</job_info>
"""
QSTAT_JSON = """\
{"timestamp": 1479277336, "pbs_version": "20.0.1", "pbs_server": "pbs", "Jobs": {
 "1.pbs": {"Job_Name": "STDIN", "Job_Owner": "ada@pbs", "job_state": "Q", "queue": "workq",
   "Hold_Types": "n", "Resource_List": {"ncpus": 8, "nodect": 2, "place": "scatter",
   "select": "2:ncpus=4:mpi=True"}},
 "2.pbs": {"job_state": "R", "queue": "workq", "Resource_List": {"ncpus": 1, "nodect": 1,
   "mpi": "True", "select": "1:ncpus=1"}},
 "3.pbs": {"job_state": "H", "queue": "workq", "Hold_Types": "u", "Resource_List": {"nodect": 1,
   "select": "1:mpi=True"}},
 "4[].pbs": {"job_state": "B", "queue": "long", "array": "True",
   "array_state_count": "Queued:5 Running:2 Exiting:0 Expired:1 ",
   "Resource_List": {"nodect": 1, "select": "1:ncpus=1:mpi=False"}}}}
"""
PBSNODES = """\
{"timestamp": 1699630815, "pbs_version": "20.0.1", "pbs_server": "pbs", "nodes": {
 "n1": {"Mom": "n1.example.org", "ntype": "PBS", "state": "free", "pcpus": 4,
   "resources_available": {"arch": "linux", "host": "n1", "mpi": "True", "ncpus": 4, "vnode": "n1"},
   "resources_assigned": {"ncpus": 0}},
 "n2": {"Mom": "n2.example.org", "state": "free", "jobs": ["2.pbs"],
   "resources_available": {"mpi": "True", "vnode": "n2"}},
 "n3": {"Mom": "n3.example.org", "state": "job-busy", "jobs": ["9.pbs"], "queue": "long",
   "resources_available": {"mpi": "False", "vnode": "n3"}},
 "n4": {"Mom": "n4.example.org", "state": "state-unknown,down", "resources_available":
   {"mpi": "True", "vnode": "n4"}}}}
"""
CONDOR_Q = r"""
[
{"ClusterId": 7, "ProcId": 0, "JobStatus": 1, "JobUniverse": 5,
 "Requirements": "\/Expr((TARGET.HasMpi) && (TARGET.Arch == \"X86_64\"))\/"}
,
{"JobStatus": 2, "JobUniverse": 11, "MinHosts": 3, "Requirements": "\/Expr(HasMPI)\/"}
,
{"JobStatus": 5, "JobUniverse": 5, "Requirements": "\/Expr(HasMpi)\/"}
,
{"JobStatus": 2, "JobUniverse": 7, "Requirements": true}
,
{"JobStatus": 1, "JobUniverse": 5, "Requirements": true}
]
"""
CONDOR_STATUS = """
[
{"Name": "slot1@oak", "Machine": "oak", "State": "Unclaimed", "Activity": "Idle", "HasMpi": true,
 "PartitionableSlot": true}
,
{"Name": "slot1_1@oak", "Machine": "oak", "State": "Claimed", "Activity": "Busy", "HasMpi": true}
,
{"Name": "slot1@elm", "Machine": "elm", "State": "Unclaimed", "Activity": "Idle", "HasMpi": true}
,
{"Name": "slot1@ash", "Machine": "ash", "State": "Owner", "Activity": "Idle", "HasMpi": true}
,
{"Name": "slot1@fir", "Machine": "fir", "State": "Drained", "Activity": "Idle", "HasMpi": true}
,
{"Name": "slot1@yew", "Machine": "yew", "State": "Unclaimed", "Activity": "Idle", "HasMpi": false}
]
"""
PRINTED = {
    "squeue": SQUEUE,
    "sinfo": SINFO,
    "qstat -f -F -r -g": QSTAT_XML,
    "qstat -s ha -u *": QSTAT_WITH_DATE,
    "qstat -f -F json": QSTAT_JSON,
    "pbsnodes": PBSNODES,
    "condor_q": CONDOR_Q,
    "condor_status": CONDOR_STATUS,
}


def printed_by(command: tuple[str, ...]) -> str:
    """What a program of a batch system prints."""
    [found] = [text for begin, text in PRINTED.items() if " ".join(command).startswith(begin)]
    return found


def answered(words: str) -> int:
    question = BatchQuestion(words.split())
    return question.answer(*map(printed_by, question.commands))


@pytest.mark.parametrize(
    ("words", "count"),
    [
        ("slurm pending", 4),
        ("slurm pending feature=mpi", 2),
        ("slurm pending feature=MPI partition=debug", 2),
        ("slurm pending feature=big", 1),
        ("slurm pending feature=2xgpu", 1),
        ("slurm pending feature=xgpu", 0),
        ("slurm pending partition=long", 1),
        ("slurm running", 2),
        ("slurm running feature=mpi", 1),
        ("slurm wanted feature=mpi", 6),
        ("slurm idle", 2),
        ("slurm idle feature=mpi", 1),
        ("slurm idle partition=long", 2),
        ("slurm allocated", 2),
        ("slurm allocated feature=mpi", 1),
        ("gridengine pending", 3),
        ("gridengine pending feature=mpi", 1),
        ("gridengine pending partition=long.q", 2),
        ("gridengine pending partition=all.q", 2),
        ("gridengine running feature=mpi partition=all.q", 1),
        ("gridengine running partition=long.q", 0),
        ("gridengine wanted feature=mpi", 2),
        ("gridengine idle feature=mpi", 1),
        ("gridengine allocated", 1),
        ("pbs pending", 6),
        ("pbs pending feature=mpi", 1),
        ("pbs running", 3),
        ("pbs running partition=long", 2),
        ("pbs wanted feature=mpi", 3),
        ("pbs idle feature=mpi", 1),
        ("pbs allocated", 2),
        ("pbs allocated feature=mpi partition=workq", 1),
        ("htcondor pending", 2),
        ("htcondor pending feature=HasMpi", 1),
        ("htcondor running", 1),
        ("htcondor wanted feature=hasmpi", 4),
        ("htcondor idle", 2),
        ("htcondor idle feature=HasMpi", 1),
        ("htcondor allocated", 1),
    ],
)
def test_jobs_and_nodes_are_counted_as_asked(words: str, count: int) -> None:
    assert answered(words) == count


@pytest.mark.parametrize(
    ("asked", "queues"),
    [
        ("all*", {"all.q"}),
        ("*", {"all.q", "long.q"}),
        ("!all.q", {"long.q"}),
        ("*@oak", {"all.q", "long.q"}),
        ("*@elm", {"all.q"}),
        ("all.q@elm|long.q@oak", {"all.q", "long.q"}),
        ("long.q@elm.example.org|all.q@oak*", {"all.q"}),
        ("!*@elm", {"all.q", "long.q"}),
        ("!long.q@oak&!all.q@oak", {"all.q"}),
        ("all.q|long.q", {"all.q", "long.q"}),
        ("*.q&!long*", {"all.q"}),
        ("?ong.q", {"long.q"}),
        ("none.q", {"none.q"}),
        ("(all*|long*)&!x", {"all.q", "long.q"}),
    ],
)
def test_a_job_of_grid_engine_may_run_in_all_queues_that_its_pattern_fits(
    asked: str, queues: set[str]
) -> None:
    printed = QSTAT_XML.replace("lon*", escape(asked))
    for queue in ("all.q", "long.q", "none.q"):
        plain = QSTAT_XML.replace("lon*", "somewhere.else")
        question = BatchQuestion(["gridengine", "pending", f"partition={queue}"])
        more = question.answer(printed, QSTAT_WITH_DATE) - question.answer(plain, QSTAT_WITH_DATE)
        assert more == (queue in queues or "(" in asked), queue


@pytest.mark.parametrize(
    ("state", "allocated"),
    [
        ("mixed-", 1),
        ("allocated+", 1),
        ("allocated$", 1),
        ("draining@", 1),
        ("mixed!", 1),
        ("planned", 1),
        ("allocated*", 0),
        ("mixed#", 0),
        ("draining~", 0),
        ("allocated%", 0),
        ("mixed^", 0),
        ("idle!", 0),
        ("drained@", 0),
    ],
)
def test_a_node_of_slurm_that_keeps_its_jobs_is_allocated(state: str, allocated: int) -> None:
    """The signs are those of `node_state_string` in Slurm's sources."""
    printed = f"node1;{state};debug;mpi\n"
    assert BatchQuestion(["slurm", "allocated"]).answer(printed) == allocated
    assert BatchQuestion(["slurm", "idle"]).answer(printed) == 0


@pytest.mark.parametrize(
    ("state", "running"), [("r", 1), ("hr", 1), ("Rr", 1), ("hRr", 1), ("t", 1), ("dr", 0)]
)
def test_a_job_of_grid_engine_that_runs_and_is_held_runs(state: str, running: int) -> None:
    """A hold keeps it from being started again, and ends nothing."""
    printed = QSTAT_XML.replace("<state>r</state>", f"<state>{state}</state>")
    found = BatchQuestion(["gridengine", "running"]).answer(printed, QSTAT_WITH_DATE)
    assert found == running


@pytest.mark.parametrize(
    ("state", "pending"), [("qw", 1), ("Rq", 1), ("hqw", 0), ("hRq", 0), ("Eqw", 0), ("dqw", 0)]
)
def test_a_job_of_grid_engine_that_is_held_does_not_wait_for_nodes(
    state: str, pending: int
) -> None:
    printed = QSTAT_XML.replace("<state>hqw</state>", f"<state>{state}</state>")
    waiting = BatchQuestion(["gridengine", "pending"])
    assert waiting.answer(printed, QSTAT_WITH_DATE) == answered("gridengine pending") + pending


def test_a_job_of_grid_engine_that_waits_for_its_date_does_not_wait_for_nodes() -> None:
    nothing = "<job_info/>"
    pending = BatchQuestion(["gridengine", "pending"])
    assert pending.answer(QSTAT_XML, nothing) - pending.answer(QSTAT_XML, QSTAT_WITH_DATE) == 1
    damaged = QSTAT_XML.replace("0.00000</JAT_prio><JB_name>tomorrow", "x</JAT_prio><JB_name>")
    with pytest.raises(UnreadableOutput, match="priority"):
        pending.answer(damaged, QSTAT_WITH_DATE)


def test_an_empty_queue_is_no_mistake() -> None:
    assert BatchQuestion(["slurm", "pending"]).answer("") == 0
    assert BatchQuestion(["htcondor", "pending"]).answer("\n") == 0
    no_jobs = '{"timestamp": 1, "pbs_version": "20.0.1", "pbs_server": "pbs"}'
    assert BatchQuestion(["pbs", "pending"]).answer(no_jobs) == 0


@pytest.mark.parametrize("system", sorted(SYSTEMS))
@pytest.mark.parametrize("what", ["wanted", "allocated"])
@pytest.mark.parametrize(
    "rubbish", ["slurm_load_jobs error", "{}", "<a/>", "[1]", "<!DOCTYPE", "[" * 9_000]
)
def test_what_a_program_does_not_print_is_not_taken_for_an_empty_queue(
    system: str, what: str, rubbish: str
) -> None:
    question = BatchQuestion([system, what])
    with pytest.raises(UnreadableOutput):
        question.answer(*[rubbish] * len(question.commands))


@given(
    st.sampled_from(sorted(SYSTEMS)),
    st.sampled_from(["pending", "wanted", "idle"]),
    st.text(max_size=40) | st.integers(0, 900),
    st.text(alphabet='{}[]<>;:,"/ \n0eu', max_size=20),
)
def test_damaged_output_is_read_or_refused(
    system: str, what: str, cut: str | int, rubbish: str
) -> None:
    question = BatchQuestion([system, what])
    first, *others = map(printed_by, question.commands)
    text = cut if isinstance(cut, str) else first[:cut] + rubbish + first[cut + 3 :]
    with suppress(UnreadableOutput):
        assert question.answer(text, *others) >= 0
    for other in others:
        damaged = cut if isinstance(cut, str) else other[:cut] + rubbish + other[cut + 3 :]
        with suppress(UnreadableOutput):
            assert question.answer(first, damaged) >= 0


@pytest.mark.parametrize(
    ("words", "mistake"),
    [
        ("", "'' is not one of gridengine, htcondor, pbs, slurm"),
        ("lsf pending", "'lsf' is not one of"),
        ("slurm", "'' is not one of pending, running, wanted, idle, allocated"),
        ("slurm pending feature", "'feature' has no value"),
        ("slurm pending user=ada", "'user' is not one of feature, partition"),
        ("htcondor pending partition=all", "HTCondor has no partitions"),
    ],
)
def test_a_question_that_nobody_answers_is_refused(words: str, mistake: str) -> None:
    with pytest.raises(UsageError, match=mistake):
        BatchQuestion(words.split())
