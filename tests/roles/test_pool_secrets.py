"""The file of a pool's secrets: completed, never damaged."""

from __future__ import annotations

import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from cryptography import x509

COMPONENT = "vault_kestrel_component_secret"
WORKERS = "vault_kestrel_worker_passwords"
USERS = "vault_kestrel_user_passwords"
CERTIFICATE = "kestrel_ca_certificate"
CA_KEY = "vault_kestrel_ca_key"


@pytest.fixture(scope="module")
def plugin(load: Callable[[str], ModuleType]) -> ModuleType:
    return load("pool_secrets/action_plugins/pool_secrets")


@pytest.fixture
def wanted(plugin: ModuleType) -> Any:
    return plugin.Wanted(
        domain="pool.internal",
        workers=("w1", "w2"),
        users=("ada",),
        grafana=False,
        authority=True,
        rotate=frozenset(),
        authority_days=3650,
    )


def plain(text: str) -> str:
    """Stand in for the vault."""
    return text


def authorities(content: dict[str, Any]) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(content[CERTIFICATE].encode())


def test_everything_is_made_for_a_new_pool(plugin: ModuleType, wanted: Any) -> None:
    content, made = plugin.complete({}, wanted, plain)
    assert set(content) == {COMPONENT, WORKERS, USERS, CA_KEY, CERTIFICATE}
    assert set(content[WORKERS]) == {"w1", "w2"}
    assert len({content[COMPONENT], *content[WORKERS].values(), *content[USERS].values()}) == 4
    assert len(made) == 5


def test_nothing_is_made_twice(plugin: ModuleType, wanted: Any) -> None:
    content, _ = plugin.complete({}, wanted, plain)
    assert plugin.complete(content, wanted, plain) == (content, [])


def test_only_a_new_worker_gets_a_password(plugin: ModuleType, wanted: Any) -> None:
    before, _ = plugin.complete({}, wanted, plain)
    after, made = plugin.complete(before, replace(wanted, workers=("w1", "w3")), plain)
    assert made == ["the password of the worker w3"]
    assert after[WORKERS] == before[WORKERS] | {"w3": after[WORKERS]["w3"]}


def test_the_password_of_who_is_closed_is_forgotten(plugin: ModuleType, wanted: Any) -> None:
    before, _ = plugin.complete({}, replace(wanted, users=("ada", "bob")), plain)
    assert plugin.complete(before, wanted, plain) == (before, [])
    after, made = plugin.complete(before, replace(wanted, close_users=True), plain)
    assert after == before | {USERS: {"ada": before[USERS]["ada"]}}
    assert made == ["the vault without the password of bob"]
    again, _ = plugin.complete(after, replace(wanted, users=("ada", "bob")), plain)
    assert again[USERS]["bob"] != before[USERS]["bob"]


def test_what_others_keep_in_the_file_stays(plugin: ModuleType, wanted: Any) -> None:
    content, _ = plugin.complete({"mine": {"deep": [1, "two"]}}, wanted, plain)
    assert content["mine"] == {"deep": [1, "two"]}


def test_grafana_gets_a_password_when_it_is_used(plugin: ModuleType, wanted: Any) -> None:
    content, _ = plugin.complete({}, replace(wanted, grafana=True), plain)
    assert "vault_grafana_admin_password" in content


def test_nodes_of_one_server_get_what_they_know_each_other_by(
    plugin: ModuleType, wanted: Any
) -> None:
    content, _ = plugin.complete({}, replace(wanted, server_nodes=True), plain)
    cookie = content["vault_kestrel_server_cookie"]
    again, made = plugin.complete(content, wanted, plain)
    assert (again["vault_kestrel_server_cookie"], made) == (cookie, [])


@pytest.mark.parametrize(
    ("choice", "changed"),
    [("component", {COMPONENT}), ("workers", {WORKERS}), ("users", {USERS})],
)
def test_rotation_changes_what_was_chosen_and_nothing_else(
    plugin: ModuleType, wanted: Any, choice: str, changed: set[str]
) -> None:
    before, _ = plugin.complete({}, wanted, plain)
    after, _ = plugin.complete(before, replace(wanted, rotate=frozenset({choice})), plain)
    assert {key for key in after if after[key] != before[key]} == changed


def test_a_former_authority_stays_trusted_until_it_is_dropped(
    plugin: ModuleType, wanted: Any
) -> None:
    first, _ = plugin.complete({}, wanted, plain)
    both, _ = plugin.complete(first, replace(wanted, rotate=frozenset({"ca"})), plain)
    assert authorities(both)[1] == authorities(first)[0]
    assert both[CA_KEY] != first[CA_KEY]
    last, _ = plugin.complete(both, replace(wanted, rotate=frozenset({"old_ca"})), plain)
    assert authorities(last) == authorities(both)[:1]
    assert last[CA_KEY] == both[CA_KEY]


@pytest.mark.parametrize("of", ["pool", "flock"])
def test_each_former_authority_stays_trusted_until_it_is_dropped(
    plugin: ModuleType, wanted: Any, of: str
) -> None:
    """A roll-out that was cut short and is run again makes another; the server shows the first."""
    complete = plugin.complete if of == "pool" else plugin.complete_flock
    name = CERTIFICATE if of == "pool" else "kestrel_flock_ca_certificate"
    anew = replace(wanted, rotate=frozenset({"ca"}))
    first, _ = complete({}, wanted, plain)
    second, _ = complete(first, anew, plain)
    third, _ = complete(second, anew, plain)
    assert third[name].endswith(second[name])
    assert second[name].endswith(first[name])
    last, _ = complete(third, replace(wanted, rotate=frozenset({"old_ca"})), plain)
    assert third[name].startswith(last[name])
    assert last[name].count("BEGIN CERTIFICATE") == 1


def test_no_authority_beside_a_certificate_that_was_given(plugin: ModuleType, wanted: Any) -> None:
    content, _ = plugin.complete({}, replace(wanted, authority=False), plain)
    assert CA_KEY not in content
    assert CERTIFICATE not in content


def test_the_authority_may_sign_servers_and_nothing_more(plugin: ModuleType) -> None:
    key, pem = plugin.make_authority("pool.internal", 10)
    authority = x509.load_pem_x509_certificate(pem.encode())
    limits = authority.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert (limits.ca, limits.path_length) == (True, 0)
    assert "BEGIN PRIVATE KEY" in key
    authority.verify_directly_issued_by(authority)


def test_two_authorities_of_a_pool_have_two_names(plugin: ModuleType) -> None:
    first, second = (
        x509.load_pem_x509_certificate(plugin.make_authority("pool.internal", 10)[1].encode())
        for _ in range(2)
    )
    assert first.subject != second.subject


def test_a_file_is_read_as_it_was_written(plugin: ModuleType) -> None:
    vaulted = plugin.Ciphertext("$ANSIBLE_VAULT;1.1;AES256\n6162\n6364\n")
    content = {
        COMPONENT: vaulted,
        WORKERS: {"w1": vaulted, "10": vaulted},
        USERS: {},
        CERTIFICATE: "-----BEGIN\nabc\n-----END\n",
        "mine": {"list": ["a: b", {"c": None}], "text": "no: 'yes'\n"},
    }
    text = plugin.write(content)
    assert plugin.read(text) == content
    assert isinstance(plugin.read(text)[WORKERS]["w1"], plugin.Ciphertext)
    assert plugin.write(plugin.read(text)) == text


def test_a_written_file_is_private_and_whole(plugin: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "group_vars" / "all" / "vault.yml"
    plugin.write_privately(file, "---\na: 1\n")
    plugin.write_privately(file, "---\na: 2\n")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [entry.name for entry in file.parent.iterdir()] == ["vault.yml"]
    assert yaml.safe_load(file.read_text()) == {"a": 2}


def test_a_file_that_is_kept_elsewhere_is_written_there(plugin: ModuleType, tmp_path: Path) -> None:
    kept = tmp_path / "kept.yml"
    kept.write_text("---\n")
    link = tmp_path / "vault.yml"
    link.symlink_to(kept)
    plugin.write_privately(link, "---\na: 1\n")
    assert (link.is_symlink(), kept.read_text()) == (True, "---\na: 1\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("$ANSIBLE_VAULT;1.1;AES256\n00", "encrypted as a whole"),
        ("- a\n", "not a mapping"),
        ("a: [\n", "not YAML"),
        ("a: !!python/object:os.system x\n", "not YAML"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(plugin: ModuleType, text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        plugin.read(text)


def test_a_file_that_would_be_ignored_is_noticed(plugin: ModuleType, tmp_path: Path) -> None:
    group_vars = tmp_path / "group_vars"
    group_vars.mkdir()
    vault = group_vars / "all" / "vault.yml"
    assert plugin.shadowed_file(vault) is None
    (group_vars / "all.yml").touch()
    assert plugin.shadowed_file(vault) == group_vars / "all.yml"
    (group_vars / "all").mkdir()
    assert plugin.shadowed_file(vault) is None


def test_a_flock_has_an_authority_of_its_own_and_nothing_else(
    plugin: ModuleType, wanted: Any
) -> None:
    content, made = plugin.complete_flock({}, wanted, plain)
    assert set(content) == {"vault_kestrel_flock_ca_key", "kestrel_flock_ca_certificate"}
    assert made == ["the flock's certificate authority"]
    assert plugin.complete_flock(content, wanted, plain) == (content, [])
    assert "flock pool.internal" in str(
        x509.load_pem_x509_certificate(content["kestrel_flock_ca_certificate"].encode()).subject
    )


def test_a_new_authority_of_a_flock_stands_before_the_former_one(
    plugin: ModuleType, wanted: Any
) -> None:
    first, _ = plugin.complete_flock({}, wanted, plain)
    both, _ = plugin.complete_flock(first, replace(wanted, rotate=frozenset({"ca"})), plain)
    name = "kestrel_flock_ca_certificate"
    assert both[name].endswith(first[name])
    assert len(x509.load_pem_x509_certificates(both[name].encode())) == 2
    last, _ = plugin.complete_flock(both, replace(wanted, rotate=frozenset({"old_ca"})), plain)
    assert both[name].startswith(last[name])
