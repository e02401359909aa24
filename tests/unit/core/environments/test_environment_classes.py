"""Environment classes are read from TOML; what is wrong is said with its file and key."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kestrelctl.core.environments.class_files import read_classes
from kestrelctl.core.environments.environment_class import (
    KINDS,
    EnvironmentClass,
    EnvironmentResources,
    recipe_digest,
)
from kestrelctl.core.environments.names import EnvironmentOwner
from kestrelctl.core.environments.node_command import node_command
from kestrelctl.core.environments.worker_command import reading, worker_command
from kestrelctl.errors import UsageError
from kestrelctl.grammar.quantities import parse_size

WHOLE = """
[environment.science]
kind = "venv"
recipe = "science.txt"
tags = ["science", "numpy"]
resources = { cpus = 2, memory = "2G" }
minimum = 1
maximum = 4
start_seconds = 30
idle_seconds = 600
hosts = 'Arch == "x86_64"'

[environment.old-debian]
kind = "chroot"
image = "/srv/trees/bullseye"
"""


def classes(text: str) -> dict[str, EnvironmentClass]:
    return read_classes(text, "/etc/kestrel/environments.toml", parse_size)


def test_a_class_says_all_of_itself() -> None:
    assert classes(WHOLE)["science"] == EnvironmentClass(
        name="science",
        kind="venv",
        recipe="/etc/kestrel/science.txt",
        tags=("science", "numpy"),
        resources=EnvironmentResources(cpus=2, memory_bytes=2 << 30),
        minimum=1,
        maximum=4,
        start_seconds=30,
        idle_seconds=600,
        hosts='Arch == "x86_64"',
    )


def test_what_is_not_said_is_modest() -> None:
    assert classes(WHOLE)["old-debian"] == EnvironmentClass(
        name="old-debian", kind="chroot", image="/srv/trees/bullseye", minimum=0, maximum=1
    )


@pytest.mark.parametrize("kind", KINDS)
def test_there_is_a_way_to_write_each_kind(kind: str) -> None:
    made_of = 'recipe = "r.txt"' if kind == "venv" else 'image = "/srv/image"'
    found = classes(f'[environment.e]\nkind = "{kind}"\n{made_of}')
    assert found["e"].kind == kind


@pytest.mark.parametrize(
    ("lines", "key", "cause"),
    [
        ('kind = "vserver"', "kind", "'vserver' is not known"),
        ("image = 'x'", "kind", "'' is not known"),
        ('kind = "podman"', "image", "podman needs one"),
        ('kind = "podman"\nimage = "--rm"', "image", "taken for an option"),
        ('kind = "podman"\nimage = "a"\nrecipe = "b"', "recipe", "there is an image, too"),
        ('kind = "venv"\nimage = "a"', "image", "venv is made of no image"),
        ('kind = "libvirt"\nrecipe = "a"', "recipe", "libvirt is made of no recipe"),
        ('kind = "chroot"\nimage = "trees/a"', "image", "no whole path"),
        ('kind = "venv"\ntag = ["a"]', "tag", "there is no such key"),
        ('kind = "venv"\ntags = "a"', "tags", "no list of words"),
        ('kind = "venv"\ntags = ["a b"]', "tags", "no list of words"),
        ('kind = "venv"\ntags = ["a\\u0000b"]', "tags", "no list of words"),
        ('kind = "venv"\ntags = ["isolation:plain"]', "tags", "what workers say of themselves"),
        ('kind = "venv"\nresources = { disk = 1 }', "resources.disk", "no such key"),
        ('kind = "venv"\nresources = { cpus = 0 }', "resources.cpus", "no number of processors"),
        ('kind = "venv"\nresources = { cpus = true }', "resources.cpus", "no number of"),
        ('kind = "venv"\nresources = { memory = "2X" }', "resources.memory", "2X"),
        ('kind = "venv"\nminimum = 2', "maximum", "1 are too few"),
        ('kind = "venv"\nmaximum = 0', "maximum", "0 are too few"),
        ('kind = "venv"\nminimum = -1', "minimum", "-1 is no such number"),
        ('kind = "venv"\nmaximum = 1.5', "maximum", "1.5 is no such number"),
        ('kind = "venv"\nidle_seconds = 0', "idle_seconds", "0 is no such time"),
        ('kind = "venv"\nstart_seconds = nan', "start_seconds", "nan is no such time"),
        ('kind = "venv"\nhosts = "Arch =="', "hosts", "Arch =="),
        ('kind = "venv"\nruns = "a \\"b"', "runs", "No closing quotation"),
        ('kind = "venv"\nruns = ["slurmd"]', "runs", "is no text"),
        ('kind = "venv"\nruns = "slurmd"\ntags = ["a"]', "tags", "no worker of this pool"),
        ('kind = "venv"\nruns = "slurmd"\nidle_seconds = 9', "idle_seconds", "no worker"),
    ],
)
def test_a_mistake_is_named_with_file_class_and_key(lines: str, key: str, cause: str) -> None:
    with pytest.raises(UsageError) as failed:
        classes(f"[environment.e]\n{lines}\n")
    assert failed.value.message == f"/etc/kestrel/environments.toml: environment.e: {key}"
    assert cause in (failed.value.cause or "")
    assert failed.value.hint


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[environment", "/etc/kestrel/environments.toml is not TOML"),
        ("e = " + "[" * 5000, "/etc/kestrel/environments.toml cannot be read"),
        ("", "/etc/kestrel/environments.toml has no environment"),
        ("[environments.e]\n", "/etc/kestrel/environments.toml: environments is not known"),
        ("[environment.E]\n", "/etc/kestrel/environments.toml: environment.E cannot be a class"),
        ("environment.e = 1\n", "/etc/kestrel/environments.toml: environment.e cannot be a class"),
    ],
)
def test_a_file_of_another_form_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError) as failed:
        classes(text)
    assert failed.value.message == message


def test_one_recipe_is_prepared_once_and_another_anew() -> None:
    wanted = EnvironmentClass(name="a", kind="venv", recipe="r.txt")
    digest = recipe_digest(wanted, b"numpy\n")
    assert recipe_digest(replace(wanted, name="b", maximum=7), b"numpy\n") == digest
    others = {
        recipe_digest(wanted, b"scipy\n"),
        recipe_digest(wanted, b"numpy\n", "Python 3.14"),
        recipe_digest(replace(wanted, kind="podman"), b"numpy\n"),
        recipe_digest(replace(wanted, image="n"), b"umpy\n"),
    }
    assert digest not in others
    assert len(others) == 4


def test_an_environment_is_called_after_pool_worker_and_number() -> None:
    owner = EnvironmentOwner("pool.example", "w1@workers.pool.example")
    name = owner.name(12)
    assert name.startswith("kestrel-pool-example-w1-workers-poo-")
    assert name.endswith("-12")
    assert len(name) <= 63, "of a machine's name"
    assert owner.number(name) == 12


@pytest.mark.parametrize("name", ["x", "{}", "{}x", "{}-1", "{}01", "{}1 ", "{}²"])
def test_what_others_have_named_is_not_an_owners(name: str) -> None:
    owner = EnvironmentOwner("pool", "w1")
    assert owner.number(name.format(owner.prefix)) is None


def test_owners_with_similar_names_are_two() -> None:
    owner, other = EnvironmentOwner("pool", "w.1"), EnvironmentOwner("pool", "w-1")
    assert owner.number(other.name(1)) is None


def test_a_worker_joins_with_what_its_class_says() -> None:
    wanted = classes(WHOLE)["science"]
    program = ("python3", "-m", "kestrelctl")
    command = worker_command(wanted, "science-1", program=program, isolation="namespace")
    assert command == (
        *program,
        *("worker", "join", "-", "--name", "science-1", "--isolation", "namespace"),
        *("--tags", "science,numpy", "--cpus", "2", "--memory", "2147483648"),
    )


def test_a_token_is_on_no_command_line() -> None:
    assert reading("/run/kestrel/token", ("kestrelctl", "worker")) == (
        *("sh", "-c", 'exec "$@" <"$0"', "/run/kestrel/token", "kestrelctl", "worker"),
    )


def test_a_class_may_run_what_is_no_worker_under_the_name_of_each() -> None:
    text = '[environment.mpi]\nkind = "nspawn"\nimage = "/srv/mpi"\n'
    found = classes(f"{text}runs = \"slurmd -D -N {{name}} --conf 'Feature=mpi'\"\n")["mpi"]
    assert node_command(found.runs, "env-mpi-2k5") == (
        *("slurmd", "-D", "-N", "env-mpi-2k5", "--conf", "Feature=mpi"),
    )
    assert classes(text)["mpi"].runs == ()
