"""Which hosts an inventory has, and how SSH is to reach them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kestrelctl.errors import MissingTool, UsageError
from kestrelctl.fleet import inventory
from kestrelctl.fleet.inventory import host_of, read_inventory
from kestrelctl.fleet.sshoptions import parse_ssh_options

VAULTED = {"__ansible_vault": "$ANSIBLE_VAULT;1.1;AES256\n6162\n"}


class FakeAnsible:
    """The programs of Ansible, which note how they were called."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory = directory
        monkeypatch.setenv("PATH", f"{directory}:/usr/bin:/bin")
        self.answers("ansible-config", [])

    def answers(self, program: str, told: object, *, stderr: str = "", status: int = 0) -> None:
        answer = self.directory / f"{program}.answer"
        answer.write_text(told if isinstance(told, str) else json.dumps(told))
        script = self.directory / program
        script.write_text(
            f'#!/bin/sh\nprintf "%s\\n" "$@" >{answer}.args\n'
            f"echo '{stderr}' >&2\ncat {answer}\nexit {status}\n"
        )
        script.chmod(0o755)

    def has(self, **hostvars: object) -> None:
        self.answers("ansible-inventory", {"_meta": {"hostvars": hostvars}})

    def called(self, program: str) -> list[str]:
        return (self.directory / f"{program}.answer.args").read_text().splitlines()


@pytest.fixture
def ansible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeAnsible:
    return FakeAnsible(tmp_path, monkeypatch)


def test_hosts_come_by_name_with_what_the_inventory_says_of_them(ansible: FakeAnsible) -> None:
    ansible.has(
        w2={},
        w1={
            "ansible_host": "192.0.2.7",
            "ansible_port": 2222,
            "ansible_user": "ada",
            "ansible_ssh_private_key_file": "/keys/id",
            "ansible_ssh_common_args": "-o UserKnownHostsFile=/keys/hosts -J bastion",
            "ansible_become": True,
            "vault_secret": VAULTED,
        },
        here={"ansible_connection": "local"},
    )
    here, w1, w2 = read_inventory(None, None)
    assert here.local
    assert (w1.address, w1.port, w1.user, w1.key_files) == (
        "192.0.2.7", 2222, "ada", ("/keys/id",),
    )  # fmt: skip
    assert w1.ssh_config == ("UserKnownHostsFile /keys/hosts", "ProxyJump bastion")
    assert w1.become
    assert (w2.address, w2.port, w2.user, w2.local, w2.become) == ("w2", None, "", False, False)


@pytest.mark.parametrize("port", ["ssh", "22²", "0", "65536", "-22", "9" * 5_000])
def test_a_port_that_is_none_is_refused(ansible: FakeAnsible, port: str) -> None:
    """It was passed over, and the host reached at port 22, where another one may answer."""
    ansible.has(w1={"ansible_port": port})
    with pytest.raises(UsageError, match="the port of w1 is"):
        read_inventory(None, None)


def test_a_host_without_variables_is_one_of_the_hosts(ansible: FakeAnsible) -> None:
    """Ansible names it in its group alone."""
    ansible.answers(
        "ansible-inventory",
        {
            "_meta": {"hostvars": {"w2": {"ansible_port": 2222}}, "profile": "inventory_legacy"},
            "all": {"children": ["ungrouped", "workers"]},
            "ungrouped": {"hosts": ["m1"]},
            "workers": {"hosts": ["w1", "w2"]},
        },
    )
    found = read_inventory(None, None)
    assert [(host.name, host.address, host.port) for host in found] == [
        ("m1", "m1", None), ("w1", "w1", None), ("w2", "w2", 2222),
    ]  # fmt: skip


def test_ansible_decides_what_a_limit_means(ansible: FakeAnsible, tmp_path: Path) -> None:
    ansible.has(w1={})
    read_inventory(tmp_path, "workers,!w3")
    assert ansible.called("ansible-inventory") == [
        "-i", str(tmp_path), "--list", "--limit", "workers,!w3",
    ]  # fmt: skip


def test_variables_win_over_the_configuration_of_ansible() -> None:
    configuration = {"remote_user": "bob", "private_key_file": "/bob/id"}
    host = host_of("w1", {"ansible_user": "ada"}, configuration)
    assert (host.user, host.key_files) == ("ada", ("/bob/id",))


def test_the_configuration_of_ansible_counts(ansible: FakeAnsible) -> None:
    ansible.has(w1={})
    options = [{"name": "remote_user", "value": "bob"}, {"name": "ssh_args", "value": "-p 23"}]
    ansible.answers("ansible-config", [{"ssh": options}])
    (host,) = read_inventory(None, None)
    assert (host.user, host.ssh_config) == ("bob", ("Port 23",))


def test_an_encrypted_value_is_no_value() -> None:
    host = host_of("w1", {"ansible_user": VAULTED, "ansible_host": VAULTED}, {})
    assert (host.user, host.address) == ("", "w1")


def test_a_template_is_left_to_ansible(ansible: FakeAnsible) -> None:
    ansible.has(w1={"ansible_host": "{{ address }}"})
    answer = json.dumps({"changed": False, "msg": {"ansible_host": "192.0.2.9"}}, indent=4)
    ansible.answers("ansible", f"w1 | SUCCESS => {answer}\n")
    (host,) = read_inventory(None, None)
    assert host.address == "192.0.2.9"


def test_a_template_that_ansible_does_not_fill_in_is_an_error(ansible: FakeAnsible) -> None:
    ansible.has(w1={"ansible_host": "{{ address }}"})
    ansible.answers("ansible", "w1 said something else\n")
    with pytest.raises(UsageError, match="variables of w1 cannot be worked out") as raised:
        read_inventory(None, None)
    assert raised.value.cause == "w1 said something else"


def test_nothing_that_matches_is_an_error_with_what_ansible_says(ansible: FakeAnsible) -> None:
    ansible.answers(
        "ansible-inventory", {"_meta": {"hostvars": {}}}, stderr="[WARNING]: no pattern nosuch"
    )
    with pytest.raises(UsageError, match="no host of the inventory matches 'nosuch'") as raised:
        read_inventory(None, "nosuch")
    assert raised.value.cause == "no pattern nosuch"


def test_an_inventory_that_ansible_cannot_read_is_an_error(ansible: FakeAnsible) -> None:
    ansible.answers("ansible-inventory", "", stderr="ERROR! not YAML", status=4)
    with pytest.raises(UsageError, match="ansible-inventory cannot read the inventory") as raised:
        read_inventory(None, None)
    assert raised.value.cause == "ERROR! not YAML"


def test_without_ansible_there_is_a_hint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(inventory.sys, "executable", str(tmp_path / "python"))
    with pytest.raises(MissingTool) as raised:
        read_inventory(None, None)
    assert str(raised.value.hint).endswith(" install ansible-core fabric")


@pytest.mark.parametrize(
    ("written", "lines"),
    [
        ("-o UserKnownHostsFile=/a", ["UserKnownHostsFile /a"]),
        ("-oPort=23 -l ada", ["Port 23", "User ada"]),
        ("-o 'ProxyCommand=ssh -W %h:%p bastion'", ["ProxyCommand ssh -W %h:%p bastion"]),
        ("-i /k -Jone,two -p2", ["IdentityFile /k", "ProxyJump one,two", "Port 2"]),
        ("-C -o ControlMaster=auto -o StrictHostKeyChecking=no", []),
        ("-o proxyjump=bastion", ["ProxyJump bastion"]),
    ],
)
def test_options_of_ssh_become_lines_of_its_configuration(written: str, lines: list[str]) -> None:
    found = parse_ssh_options(written)
    assert list(found.lines) == lines
    assert not found.ignored


@pytest.mark.parametrize("written", ["-o CertificateFile=/a", "-F /config", "'"])
def test_options_that_are_not_followed_are_named(written: str) -> None:
    found = parse_ssh_options(written)
    assert not found.lines
    assert found.ignored[0] in written
