"""The inventories of the checkout, read by `kestrelctl fleet` with its ansible.cfg."""

from __future__ import annotations

from pathlib import Path

import pytest

from kestrelctl.fleet.inventory import read_inventory

CHECKOUT = Path(__file__).parents[2]


def test_the_templates_of_the_lab_are_filled_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CHECKOUT)
    hosts = read_inventory(CHECKOUT / "inventory/lab", None)
    assert [host.name for host in hosts] == ["mgr", "mon", "srv", "w1", "w2"]
    for host in hosts:
        assert host.ignored == ()
        assert [Path(file).name for file in host.key_files] == ["id"]
        assert "{{" not in f"{host.key_files} {host.ssh_config}"


def test_the_machine_alone_needs_no_ssh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CHECKOUT)
    assert [host.local for host in read_inventory(None, None)] == [True]


def test_hosts_of_which_nothing_but_the_name_is_said_are_there(tmp_path: Path) -> None:
    inventory = tmp_path / "hosts"
    inventory.write_text("m1\nw2 ansible_port=2222\n[workers]\nw1\n")
    assert [host.name for host in read_inventory(inventory, None)] == ["m1", "w1", "w2"]
    assert [host.name for host in read_inventory(inventory, "workers")] == ["w1"]
