"""Consumption policies: HTCondor's documented examples, and what is refused where."""

from __future__ import annotations

import pytest

from kestrelctl.core.model.worker.assets import Amounts, amounts
from kestrelctl.core.policies.bad_policy import BadPolicy
from kestrelctl.core.policies.consumption import Consumption
from kestrelctl.core.policies.loading import load
from kestrelctl.core.policies.policy_text import HTCONDOR_DEFAULTS, read
from kestrelctl.core.policies.spoiled import Spoiled

MIB = 1 << 20
KIB = 1 << 10


def machine(cpus: float = 8, memory_mib: float = 0, **others: float) -> Amounts:
    return amounts({"cpus": cpus, "memory": memory_mib * MIB, **others})


def charged(text: str, asked: Amounts, capacity: Amounts) -> dict[str, float] | Spoiled:
    """What the policy charges, memory in MiB and disk in KiB as HTCondor counts them."""
    found = load(text).amounts(asked, capacity)
    if isinstance(found, Spoiled):
        return found
    units = {"memory": MIB * 1000, "disk": KIB * 1000}
    return {name: n / units.get(name, 1000) for name, n in found.items()}


def cost(text: str, asked: Amounts, capacity: Amounts) -> float:
    policy = load(text)
    found = policy.amounts(asked, capacity)
    assert not isinstance(found, Spoiled)
    paid = policy.cost(found, capacity)
    assert not isinstance(paid, Spoiled)
    return paid


# -- HTCondor's documented examples ----------------------------------------------------------------


def test_the_manuals_defaults() -> None:
    """HTCondor manual, Policy Configuration, "condor_negotiator-Side Resource Consumption
    Policies": the defaults of the three resources that are always there.
    """
    assert HTCONDOR_DEFAULTS == {
        "cpus": "quantize(TARGET.RequestCpus, {1})",
        "memory": "quantize(TARGET.RequestMemory, {128})",
        "disk": "quantize(TARGET.RequestDisk, {1024})",
    }
    there = machine(8, 16384, disk=1 << 30)
    asked = machine(1.5, 200, disk=1500 * KIB)
    found = charged("CONSUMPTION_POLICY = True", asked, there)
    assert found == {"cpus": 2, "memory": 256, "disk": 2048}


def test_a_default_does_not_charge_what_a_machine_has_not() -> None:
    """consumption_policy.cpp, `cp_compute_consumption`: the assets in `MachineResources`."""
    assert charged("CONSUMPTION_POLICY = True", machine(1), machine(8)) == {"cpus": 1}


def test_a_default_does_not_waive_what_is_asked_for_and_a_machine_has_not() -> None:
    """HTCondor's own requirements of a job ask for it: `TARGET.Disk >= RequestDisk`."""
    asked = machine(1, disk=10 * KIB)
    assert charged("CONSUMPTION_POLICY = True", asked, machine(8)) == {"cpus": 1, "disk": 10}


def test_the_manuals_machine_with_eight_cores() -> None:
    """HTCondor manual, "condor_negotiator-Side Resource Consumption Policies": of a machine with 8
    cores, the cores are what the policy cares about.
    """
    text = (
        "SLOT_TYPE_1_CONSUMPTION_POLICY = True\n"
        "SLOT_TYPE_1_CONSUMPTION_CPUS = TARGET.RequestCpus\n"
        "SLOT_WEIGHT = Cpus"
    )
    there = machine(8, 16384)
    assert charged(text, machine(3, 100), there) == {"cpus": 3, "memory": 128}
    assert cost(text, machine(3, 100), there) == 3


def test_the_manuals_machine_with_four_gpus() -> None:
    """HTCondor manual, "condor_negotiator-Side Resource Consumption Policies": on a machine with 4
    GPUs a custom resource takes part.
    """
    text = "CONSUMPTION_POLICY = True\nCONSUMPTION_gpus = TARGET.RequestGpus\nSLOT_WEIGHT = Cpus"
    there = machine(8, gpus=4)
    assert charged(text, machine(1, gpus=2), there) == {"cpus": 1, "gpus": 2}
    assert charged(text, machine(1), there) == {"cpus": 1}


def test_a_slip_in_the_name_of_a_request_is_found() -> None:
    """HTCondor manual, "condor_negotiator-Side Resource Consumption Policies", as it is printed:
    `TARGET.RequestGpu`, which no job of four `gpus` has.
    """
    with pytest.raises(BadPolicy, match="gpu is no asset") as caught:
        load("SLOT_TYPE_2_CONSUMPTION_gpus = TARGET.RequestGpu")
    assert (caught.value.line, caught.value.column) == (1, 32)


def test_the_wikis_simple_policy() -> None:
    """HTCondor wiki, ConsumptionPolicies, "Introduction to Consumption Policies": what is asked for
    is consumed.
    """
    text = """
        CONSUMPTION_POLICY = True
        # (note, "target" refers to the scope of the candidate job)
        CONSUMPTION_CPUS = target.RequestCpus
        CONSUMPTION_MEMORY = target.RequestMemory
        CONSUMPTION_DISK = target.RequestDisk
    """
    asked = machine(0.5, 100, disk=10 * KIB)
    found = charged(text, asked, machine(8, 4096, disk=1 << 30))
    assert found == {"cpus": 0.5, "memory": 100, "disk": 10}


@pytest.mark.parametrize(("asked_mib", "chunks"), [(0, 1), (1, 1), (1024, 1), (2000, 2)])
def test_the_wikis_weight_counts_the_jobs_that_a_slot_can_serve(
    asked_mib: int, chunks: int
) -> None:
    """HTCondor wiki, ConsumptionPolicies, "Consumption Policies and Accounting", "slot weights and
    accounting groups": a job takes at least one of the four chunks, and pays for each.
    """
    text = (
        "CONSUMPTION_MEMORY = quantize(target.RequestMemory, {1024})\n"
        "SLOT_WEIGHT = floor(Memory / 1024)"
    )
    there = machine(8, 4096)
    assert charged(text, machine(1, asked_mib), there) == {"cpus": 1, "memory": 1024 * chunks}
    assert cost(text, machine(1, asked_mib), there) == chunks


#: From "examples of consumption policy use cases", gist erikerlandson/4731965, slot types 1 to 3.
CPU_CENTRIC = (
    "CONSUMPTION_POLICY = True\nSLOT_WEIGHT = Cpus\n"
    "CONSUMPTION_MEMORY = quantize(target.RequestMemory, {1})"
)
MEMORY_CENTRIC = (
    "CONSUMPTION_POLICY = True\n"
    "CONSUMPTION_MEMORY = quantize(target.RequestMemory, {25})\n"
    "SLOT_WEIGHT = floor(Memory / 25)"
)
TOKEN = "CONSUMPTION_TOKENS = 1\nCONSUMPTION_CPUS = 0\nCONSUMPTION_MEMORY = 0\nSLOT_WEIGHT = Tokens"


def test_three_policies_of_one_pool() -> None:
    """The author's gist erikerlandson/4731965, slot types 1 to 3: the same job is charged by cores,
    by blocks of memory, and by tokens.
    """
    asked, there = machine(1, 30), machine(5, 100, tokens=3)
    assert charged(CPU_CENTRIC, asked, there) == {"cpus": 1, "memory": 30}
    assert charged(MEMORY_CENTRIC, asked, there) == {"cpus": 1, "memory": 50}
    assert charged(TOKEN, asked, there) == {"tokens": 1}
    assert [cost(text, asked, there) for text in (CPU_CENTRIC, MEMORY_CENTRIC, TOKEN)] == [1, 2, 1]


def test_a_line_may_say_which_slots_it_is_for() -> None:
    """The author's gist erikerlandson/4731965: lines of slot type 2 as they are written there."""
    text = (
        "CONSUMPTION_POLICY = True\n"
        "SLOT_TYPE_2_CONSUMPTION_MEMORY = quantize(target.RequestMemory, {25})\n"
        "SLOT_TYPE_2_SLOT_WEIGHT = floor(Memory / 25)"
    )
    asked, there = machine(1, 30), machine(5, 100)
    assert charged(text, asked, there) == charged(MEMORY_CENTRIC, asked, there)
    assert cost(text, asked, there) == cost(MEMORY_CENTRIC, asked, there) == 2


def test_a_custom_resource_may_be_left_out_of_a_request() -> None:
    """The author's gist erikerlandson/4731965: tokens are consumed as far as they are asked for."""
    text = (
        "CONSUMPTION_POLICY = True\nSLOT_WEIGHT = Cpus\n"
        "CONSUMPTION_TOKENS = "
        "ifthenelse(target.RequestTokens =?= undefined, 0, target.RequestTokens)"
    )
    there = machine(5, 0, tokens=3)
    assert charged(text, machine(1), there) == {"cpus": 1}
    assert charged(text, machine(1, tokens=2), there) == {"cpus": 1, "tokens": 2}


def test_a_request_that_was_not_made_counts_as_none() -> None:
    """consumption_policy.cpp: "a RequestXxx attribute not present - default to zero"."""
    text = "ConsumptionTokens = ifThenElse(TARGET.RequestTokens > 0, TARGET.RequestTokens, 2)"
    assert charged(text, machine(1), machine(8, tokens=5)) == {"cpus": 1, "tokens": 2}


@pytest.mark.parametrize(
    ("text", "asked", "said"),
    [
        ("ConsumptionCpus = 100 - TARGET.RequestCpus", 101, "ConsumptionCpus comes to -1, which"),
        ("ConsumptionCpus = 10 / (7 - TARGET.RequestCpus)", 7, "ConsumptionCpus comes to error"),
        ('ConsumptionCpus = TARGET.RequestCpus > 7 ? "all" : 1', 8, 'comes to "all", which is no'),
        ("ConsumptionCpus = TARGET.RequestCpus > 7 ? undefined : 1", 8, "comes to undefined"),
        ("ConsumptionCpus = TARGET.RequestCpus > 7 ? 0 : 1", 8, "nothing at all is charged"),
        ("ConsumptionCpus = TARGET.RequestCpus > 7 ? 1.0E300 : 1", 8, "which is too much to count"),
        ("ConsumptionCpus = pow(10.0, TARGET.RequestCpus)", 308, "1e+308, which is too much"),
    ],
)
def test_what_cannot_be_known_when_it_is_loaded(text: str, asked: float, said: str) -> None:
    """consumption_policy.cpp, `cp_sufficient_assets`: negative, no number, or zero of all."""
    found = charged(text, machine(asked), machine(200))
    assert isinstance(found, Spoiled)
    assert said in str(found)


@pytest.mark.parametrize("after", ["-1.0E308", "0"])
def test_a_cost_beyond_all_numbers_is_none(after: str) -> None:
    """Otherwise a match, or a few of them together, would cost infinity, which nothing can be added
    to or taken from: the share of their user would be no number.
    """
    policy = load(f"SlotWeight = Cpus > 7 ? 1.0E308 : Cpus > 3 ? {after} : 0", [machine(1)])
    found = policy.cost(machine(4), machine(8))
    assert isinstance(found, Spoiled)
    assert f"{float(after):g} after it, which is too much to count" in str(found)


def test_true_counts_as_one() -> None:
    """As `EvalFloat` of HTCondor has it."""
    assert charged("ConsumptionCpus = TARGET.RequestCpus > 0", machine(4), machine()) == {"cpus": 1}


# -- what is Kestrel's own -------------------------------------------------------------------------


def test_what_a_policy_does_not_speak_of_is_charged_as_asked() -> None:
    there = machine(8, 4096, fpga=2)
    found = charged("ConsumptionMemory = 512", machine(0.5, 100, fpga=1), there)
    assert found == {"cpus": 0.5, "memory": 512, "fpga": 1}


def test_oversubscription_is_a_policy() -> None:
    found = charged("ConsumptionCpus = 0.25 * TARGET.RequestCpus", machine(1), machine(1))
    assert found == {"cpus": 0.25}


def test_a_small_charge_is_never_rounded_to_nothing() -> None:
    found = charged("ConsumptionCpus = TARGET.RequestCpus / 3000.0", machine(1), machine(1))
    assert found == {"cpus": 0.001}


def test_one_charge_may_depend_on_another() -> None:
    text = "ConsumptionMemory = 512 * ConsumptionCpus\nConsumptionCpus = 2 * TARGET.RequestCpus"
    assert charged(text, machine(1), machine(8, 8192)) == {"cpus": 2, "memory": 1024}


def test_a_charge_may_be_a_share_of_the_machine() -> None:
    text = "ConsumptionCpus = MAX({TARGET.RequestCpus, Cpus / 4})"
    assert charged(text, machine(1), machine(16)) == {"cpus": 4}


def test_a_line_may_be_continued_and_mistakes_stay_where_they_are() -> None:
    text = "ConsumptionCpus = \\\n  TARGET.RequestCpus\nConsumptionMemory = \\\n  5 +"
    with pytest.raises(BadPolicy) as caught:
        read(text)
    assert caught.value.place == ("line 4, column 6\n  5 +\n     ^")


@pytest.mark.parametrize(
    ("text", "said", "place"),
    [
        ("ConsumptionCpus = quantize(1, {1}", "')' for the '(' before is expected", (1, 34)),
        ("Cpus = 1", "a policy says Consumption<Asset> and SlotWeight, not Cpus", (1, 1)),
        ("# nothing\n\n", "it says nothing", (1, 1)),
        ("ConsumptionCpus 1", "a line is 'Name = expression'", (1, 1)),
        ("ConsumptionCpus = 1\nCONSUMPTION_CPUS = 2", "CONSUMPTION_CPUS is said twice", (2, 1)),
        ("SlotWeight = Cpus\nSLOT_WEIGHT = 2", "SLOT_WEIGHT is said twice", (2, 1)),
        ("CONSUMPTION_POLICY = False", "it can only be True", (1, 22)),
        ("ConsumptionCpus = 1 + ConsumptionCpus", "ConsumptionCpus refers to itself", (1, 23)),
        (
            "ConsumptionCpus = ConsumptionMemory\nConsumptionMemory = MY.ConsumptionCpus",
            "ConsumptionMemory refers to itself",
            (2, 21),
        ),
        ("SlotWeight = 2 * SlotWeight", "SlotWeight refers to itself", (1, 18)),
        ("ConsumptionCpus = SlotWeight", "a charge cannot depend on the weight", (1, 19)),
        ("ConsumptionCpus = ConsumptionDisk", "the policy says nothing about disk", (1, 19)),
        ("ConsumptionCpus = nearly(1)", "there is no function nearly()", (1, 19)),
        ("ConsumptionCpus = 1 + time() % 2", "time() is not the same each time", (1, 23)),
        ("ConsumptionCpus = random(3)", "random() is not the same each time", (1, 19)),
        ("ConsumptionCpus = TARGET.Owner", "of a task a policy knows what it asks for", (1, 19)),
        ("ConsumptionCpus = Colour", "colour is no asset; there are cpus, disk", (1, 19)),
        ("SlotWeight = TARGET.RequestCpus", "a weight is of the worker alone", (1, 14)),
        ("ConsumptionCpus = 1/0", "ConsumptionCpus comes to error for a task that asks", (1, 19)),
        ("ConsumptionCpus = 0.0/0", "ConsumptionCpus comes to no finite number", (1, 19)),
        ("ConsumptionCpus = 4 / TARGET.RequestMemory", "comes to error for a task that", (1, 19)),
        ('ConsumptionCpus = "many"', 'comes to "many", which is no number', (1, 19)),
        ("ConsumptionCpus = undefined", "comes to undefined", (1, 19)),
        ("ConsumptionCpus = -1", "ConsumptionCpus comes to -1, which is negative", (1, 19)),
        (
            "ConsumptionMemory = TARGET.RequestMemory - 100",
            "comes to -100, which is negative for a task that asks for 1 cpu",
            (1, 21),
        ),
        (
            "ConsumptionCpus = 0\nConsumptionMemory = 0\nConsumptionDisk = 0\nConsumptionGpus = 0",
            "it charges nothing at all",
            (1, 19),
        ),
        (
            "ConsumptionCpus = TARGET.RequestCpus / 2",
            "ConsumptionCpus comes to 0 for a task that asks for 1 cpu: whole numbers divide to "
            "whole numbers; write TARGET.RequestCpus / 2.0",
            (1, 19),
        ),
        (
            "ConsumptionCpus = 1\nConsumptionGpus = floor(TARGET.RequestGpus / Gpus)",
            "ConsumptionGpus comes to 0 for a task that asks for 1 cpu, 1 gpu: whole numbers "
            "divide to whole numbers; multiply by 1.0 before",
            (2, 25),
        ),
        (
            "ConsumptionCpus = floor(TARGET.RequestCpus)",
            "nothing at all for a task that asks for 0.5 cpus, which would wait for ever",
            (1, 19),
        ),
        (
            "ConsumptionCpus = 0\nConsumptionMemory = TARGET.RequestMemory",
            "it charges nothing at all for a task that asks for 1 cpu, which would wait for ever",
            (1, 19),
        ),
        ('SlotWeight = "heavy"', 'SlotWeight comes to "heavy"', (1, 14)),
        ("SlotWeight = -Cpus", "SlotWeight comes to -1000, which is negative", (1, 14)),
        ("SlotWeight = -1", "SlotWeight comes to -1, which is negative", (1, 14)),
        ("SlotWeight = 1 / Cpus", "SlotWeight comes to 0 before a match and", (1, 14)),
        ("SlotWeight = 1 / (Cpus - 999)", "SlotWeight comes to error", (1, 14)),
    ],
)
def test_a_policy_is_refused_with_the_place_of_its_mistake(
    text: str, said: str, place: tuple[int, int]
) -> None:
    with pytest.raises(BadPolicy) as caught:
        load(text)
    assert said in caught.value.what
    assert (caught.value.line, caught.value.column) == place
    pointed_at, caret = caught.value.pointer.split("\n")
    assert pointed_at == text.split("\n")[place[0] - 1]
    assert caret == " " * (place[1] - 1) + "^"


def test_of_a_long_line_only_what_is_around_the_mistake_is_shown() -> None:
    text = f"ConsumptionCpus = {'1 + ' * 250}Nope"
    with pytest.raises(BadPolicy) as caught:
        load(text)
    line, caret = caught.value.pointer.split("\n")
    assert len(line) <= 100
    assert line.index("Nope") == caret.index("^")


def test_a_policy_for_an_asset_that_no_worker_has_is_refused() -> None:
    text = "ConsumptionTokens = 1"
    load(text)
    load(text, [machine(8), machine(8, tokens=3)])
    with pytest.raises(BadPolicy, match="no worker that it is for has tokens"):
        load(text, [machine(8)])


def test_a_policy_is_tried_on_the_workers_that_it_is_for() -> None:
    text = "ConsumptionCpus = 1.0 * TARGET.RequestCpus / (Cpus - 4)"
    load(text, [machine(8)])
    with pytest.raises(BadPolicy, match="comes to error"):
        load(text, [machine(8), machine(4)])


def test_a_policy_has_a_length() -> None:
    with pytest.raises(BadPolicy, match="more than 20,000 characters"):
        load("#" * 20_001)


def test_an_evaluation_changes_nothing() -> None:
    policy = Consumption(read(MEMORY_CENTRIC))
    asked, there = machine(1, 30), machine(5, 100)
    first = policy.amounts(asked, there)
    assert policy.amounts(asked, there) == first
    assert (asked, there) == (machine(1, 30), machine(5, 100))
