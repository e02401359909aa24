"""What the roles make of a pool's flock: whom its server believes, and what its machines trust."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from role_files import ROLES
from templating import render, values_of

FLOCK = {
    "kestrel_flock_join": "birch.internal",
    "kestrel_flock_ca_certificate": "a flock's certificate\n",
    "kestrel_flock_pins": {"cedar.internal": "ab:cd"},
    "kestrel_flock_addresses": {"birch.internal": "192.0.2.21:5269"},
}


def server(**given: Any) -> dict[str, Any]:
    return values_of("xmpp_server") | {"inventory_hostname": "srv"} | given


def template(name: str, values: dict[str, Any]) -> str:
    text = (ROLES / "xmpp_server/templates" / name).read_text(encoding="utf-8")
    return str(render(text, values))


def test_no_server_of_a_flock_is_talked_to_unless_there_is_one() -> None:
    text = template("prosody.cfg.lua.j2", server())
    assert "flock" not in text
    assert "s2s_ports" not in text
    assert "kestrel_streams" not in template("component.cfg.lua.j2", server())


def test_the_server_believes_what_the_inventory_says_of_the_flock() -> None:
    text = template("prosody.cfg.lua.j2", server(**FLOCK))
    for line in (
        'kestrel_streams_flock_authorities = "/etc/prosody/kestrel-flock/authorities.pem"',
        'kestrel_streams_flock_pins = { ["cedar.internal"] = "ab:cd"; }',
        'kestrel_streams_address_directories = { "/etc/prosody/kestrel-flock/addresses" }',
        "kestrel_streams_federated_domains = {  }",
        "s2s_secure_auth = true",
        "s2s_ports = { 5269 }",
    ):
        assert f"\n{line}\n" in text
    component = template("component.cfg.lua.j2", server(**FLOCK))
    assert '"s2s", "s2s_auth_certs", "kestrel_streams"' in component
    assert "dialback" not in text + component


def test_pins_do_without_an_authority() -> None:
    pins = {"kestrel_flock_join": "cedar.internal", "kestrel_flock_pins": {"cedar.internal": "ab"}}
    text = template("prosody.cfg.lua.j2", server(**pins))
    assert "flock_authorities" not in text
    assert '["cedar.internal"] = "ab"' in text


@pytest.mark.parametrize(
    ("given", "trusted", "key"),
    [
        ({}, "a certificate", "secret"),
        (FLOCK, "a certificate\na flock's certificate", "secret"),
        (
            FLOCK | {"vault_kestrel_flock_ca_key": "the flock's key"},
            "a flock's certificate\na certificate",
            "the flock's key",
        ),
    ],
)
def test_the_authority_of_the_flock_signs_where_its_key_is(
    given: dict[str, Any], trusted: str, key: str
) -> None:
    values = server(**given)
    assert render("{{ xmpp_server_ca_certificate }}", values) == trusted
    assert render("{{ xmpp_server_ca_key }}", values) == key


@pytest.mark.parametrize(("given", "trusted"), [({}, 1), (FLOCK, 2)])
def test_machines_of_the_pool_trust_the_authorities_of_the_flock(
    given: dict[str, Any], trusted: int
) -> None:
    """Or workers could not read inputs that lie in another pool's file share."""
    tasks = yaml.safe_load((ROLES / "kestrel_package/tasks/system.yml").read_text())
    content = next(
        task["ansible.builtin.copy"]["content"]
        for task in tasks
        if str(task.get("ansible.builtin.copy", {}).get("dest", "")).endswith("/ca.pem")
    )
    bundle = str(render(content, values_of("kestrel_package") | given))
    assert bundle.count("certificate\n") == trusted


@pytest.mark.parametrize(("given", "expected"), [({}, []), (FLOCK, ["--flock", "birch.internal"])])
def test_the_manager_is_told_through_whom_to_join(
    given: dict[str, Any], expected: list[str]
) -> None:
    words = list(render("{{ __manager_arguments }}", values_of("manager") | given))
    at = words.index("--flock") if "--flock" in words else len(words)
    assert words[at : at + 2] == expected


@pytest.mark.parametrize("tls", [False, True])
def test_the_manager_trusts_the_file_shares_of_the_flock(tls: bool) -> None:
    """It brings the files of guests to their own pool, also where its server needs no trust."""
    words = list(
        render("{{ __manager_arguments }}", values_of("manager") | FLOCK | {"manager_tls": tls})
    )
    assert words[words.index("--ca-file") + 1] == "/etc/kestrel/ca.pem"
