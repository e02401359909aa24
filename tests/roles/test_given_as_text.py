"""What is given by `-e name=value` is text, also where a role wants a number or true and false."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from role_files import NAMES, PLAYBOOKS, ROLES, load, specified
from templating import render, values_of

CHECKOUT = ROLES.parent
KINDS = ("int", "float", "bool")
OPTIONS = {
    name: (role, option["type"])
    for role in NAMES
    for name, option in specified(role).items()
    if option["type"] in KINDS
}
#: What a role is given besides, so that all parts of its templates are made.
SWITCHED_ON: dict[str, dict[str, object]] = {
    "xmpp_server": {"xmpp_server_federated_domains": ["b.example.org"]}
}
_CAST = re.compile(r"\s*(\|\s*default\(\d+\)\s*)?\|\s*(int|float|bool|string)\b")
_ALONE = re.compile(r"\{\{-?\s*$"), re.compile(r"\s*-?\}\}")
_FILES = [
    file
    for directory in (ROLES, PLAYBOOKS)
    for file in sorted(directory.rglob("*"))
    if file.suffix in (".yml", ".j2") and "meta" not in file.parts
]


def uncast(name: str, kind: str, text: str) -> Iterator[str]:
    """Yield the lines where a variable is neither cast nor, as a number, all of what is written."""
    for line in text.splitlines():
        code = re.sub(r"(^| )# .*", "", line)
        for use in re.finditer(rf"(?<![\w.]){name}\b", code):
            before, after = code[: use.start()], code[use.end() :]
            alone = bool(_ALONE[0].search(before) and _ALONE[1].match(after))
            named = after.startswith(":") or re.match(r"=\w", after)  # as in -e name=value
            if not (named or _CAST.match(after) or (alone and kind != "bool")):
                yield line.strip()


@pytest.mark.parametrize("name", OPTIONS)
def test_each_use_of_a_number_or_a_truth_says_what_it_is(name: str) -> None:
    kind = OPTIONS[name][1]
    found = [
        f"{file.relative_to(CHECKOUT)}: {line}"
        for file in _FILES
        for line in uncast(name, kind, file.read_text())
    ]
    assert found == []


def test_a_use_without_a_cast_would_be_noticed() -> None:
    assert list(uncast("a_b", "int", 'retries: "{{ a_b // 3 }}"\ndelay: "{{ a_b }}"')) == [
        'retries: "{{ a_b // 3 }}"'
    ]
    assert list(uncast("a_b", "bool", "when: a_b\nx: '{{ a_b }}'")) == [
        "when: a_b",
        "x: '{{ a_b }}'",
    ]
    assert list(uncast("a_b", "bool", "a_b: true\nwhen: a_b | bool # not a_b")) == []


def rendered(role: str, **given: Any) -> dict[str, str]:
    """Return what every template of a role makes of what is given."""
    deployed = {f"__{role}_deployed": "0123456789abcdef"}
    values = {**values_of(role), **deployed, **SWITCHED_ON.get(role, {}), **given}
    return {
        file.name: str(render(file.read_text(), values))
        for file in sorted((ROLES / role / "templates").glob("*.j2"))
    }


def tried(name: str) -> tuple[object, object]:
    """Two values of an option."""
    return (True, False) if OPTIONS[name][1] == "bool" else (7, 0)


def files_of(name: str, value: object) -> dict[str, str]:
    """What an option's role makes of its templates if the option has a value."""
    return rendered(OPTIONS[name][0], **{name: value})


#: The options that change a template of their role. Others are for tasks, which no template shows.
IN_TEMPLATES = [
    name for name in OPTIONS if files_of(name, tried(name)[0]) != files_of(name, tried(name)[1])
]


@pytest.mark.parametrize("name", IN_TEMPLATES)
def test_text_makes_the_same_files_as_what_it_says(name: str) -> None:
    one, other = tried(name)
    assert files_of(name, str(one)) == files_of(name, one)
    assert files_of(name, str(other)) == files_of(name, other)


def test_an_option_that_a_template_names_changes_what_is_made_of_it() -> None:
    """So that none is left out above because two values happen to make the same."""
    named = {
        name
        for name, (role, _) in OPTIONS.items()
        for file in (ROLES / role / "templates").glob("*.j2")
        if re.search(rf"(?<![\w.]){name}\b", re.sub(r"{#.*?#}", "", file.read_text(), flags=re.S))
    }
    assert named - set(IN_TEMPLATES) == set()


def test_an_option_that_no_template_has_is_used_by_tasks() -> None:
    text = "\n".join(file.read_text() for file in _FILES if file.suffix == ".yml")
    unused = [
        name
        for name in OPTIONS
        if name not in IN_TEMPLATES and not re.search(rf"(?<![\w.]){name}\b", text)
    ]
    assert unused == []


def entries_used() -> set[tuple[str, str]]:
    """Return (role, entry point) of all that playbooks and roles run."""
    used = {(role, "main") for role in NAMES if (ROLES / role / "tasks/main.yml").exists()}
    for file in [*PLAYBOOKS.glob("*.yml"), *ROLES.glob("*/tasks/*.yml")]:
        for role, entry in re.findall(r"name: (\w+)\n\s+tasks_from: (\w+)", file.read_text()):
            used.add((role, entry))
    return used


#: But those of `validate_inventory`, which tells all problems at once, by itself.
ENTRIES = sorted(each for each in entries_used() if each[0] != "validate_inventory")


@pytest.mark.parametrize(("role", "entry"), ENTRIES)
def test_each_entry_point_says_what_it_takes(role: str, entry: str) -> None:
    declared = load(ROLES / role / "meta/argument_specs.yml")["argument_specs"]
    assert entry in declared
    text = (ROLES / role / "tasks" / f"{entry}.yml").read_text()
    text = re.sub(r"# .*", "", text)
    values = load(ROLES / role / "vars/main.yml")
    for name in re.findall(r"\b__\w+", text):
        text += str(values.get(name, ""))
    used = {name for name in specified(role) if re.search(rf"(?<![\w.]){name}\b", text)}
    assert used - set(declared[entry].get("options") or {}) == set()


@pytest.fixture
def pool(tmp_path: Path) -> tuple[list[str], Path]:
    """An inventory whose hosts are this machine, and a kestrelctl that notes what it is asked."""
    asked, program = tmp_path / "asked", tmp_path / "kestrelctl"
    listed = json.dumps([{"worker": "w1@workers.pool.internal", "state": "idle", "running": 0}])
    program.write_text(f"#!/bin/sh\necho \"$@\" >>{asked}\necho '{listed}'\n")
    program.chmod(0o755)
    inventory = tmp_path / "hosts.json"
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    variables = {
        **local,
        "kestrel_domain": "pool.internal",
        "kestrel_users": [{"name": "ada", "admin": True}],
        "__worker_kestrelctl": [str(program)],
    }
    groups = {"xmpp_servers": "srv", "managers": "srv", "workers": "w1"}
    children = {group: {"hosts": {host: {}}} for group, host in groups.items()}
    inventory.write_text(json.dumps({"all": {"vars": variables, "children": children}}))
    extra = json.dumps({"ansible_become": False, "__worker_kestrelctl": [str(program)]})
    return ["-i", str(inventory), "--limit", "w1", "-e", extra], asked


def play(playbook: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            str(Path(sys.executable).parent / "ansible-playbook"),
            f"playbooks/{playbook}.yml",
            *words,
        ],
        cwd=CHECKOUT,
        env={**os.environ, "ANSIBLE_NOCOLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_drain_waits_as_long_as_the_text_says(pool: tuple[list[str], Path]) -> None:
    words, asked = pool
    played = play("drain", *words, "-e", "worker_drain_seconds=30")
    assert played.returncode == 0, played.stdout + played.stderr
    assert "worker drain w1@workers.pool.internal" in asked.read_text()


def test_what_is_no_number_is_refused_before_anybody_is_asked(pool: tuple[list[str], Path]) -> None:
    words, asked = pool
    played = play("drain", *words, "-e", "worker_drain_seconds=soon")
    assert played.returncode != 0
    assert "worker_drain_seconds" in played.stdout
    assert not asked.exists()
