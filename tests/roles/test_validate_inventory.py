"""What an inventory may be, and what is said when it is not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SPECIFICATIONS: dict[str, dict[str, Any]] = {
    "kestrel_domain": {"type": "str"},
    "kestrel_users": {"type": "list", "elements": "dict"},
    "kestrel_monitoring_addresses": {"type": "list", "elements": "str"},
    "kestrel_postgresql": {"type": "str"},
    "kestrel_server_address": {"type": "str"},
    "xmpp_server_node_address": {"type": "str"},
    "xmpp_server_flavor": {"type": "str", "choices": ["prosody", "ejabberd"]},
    "worker_cpus": {"type": "int"},
    "worker_password": {"type": "str", "no_log": True},
    "manager_log_format": {"type": "str", "choices": ["text", "json"]},
}
ROLES = ["manager", "worker"]


@pytest.fixture(scope="module")
def validation(load: Callable[[str], ModuleType]) -> ModuleType:
    return load("validate_inventory/action_plugins/validate_inventory")


def problems(
    validation: ModuleType,
    groups: dict[str, list[str]] | None = None,
    everywhere: dict[str, Any] | None = None,
    **on_hosts: dict[str, Any],
) -> list[str]:
    """Return the problems of a pool that is right except for what is given."""
    groups = {"xmpp_servers": ["srv"], "managers": ["srv"], "workers": ["w1"]} | (groups or {})
    names = {name for members in groups.values() for name in members}
    common = {
        "kestrel_domain": "pool.internal",
        "kestrel_users": [{"name": "ada", "admin": True}],
    } | (everywhere or {})
    hosts = {name: common | on_hosts.get(name, {}) for name in sorted(names)}
    found: list[str] = validation.find_problems(groups, hosts, SPECIFICATIONS, ROLES)
    return found


def test_a_sound_pool_has_no_problem(validation: ModuleType) -> None:
    assert problems(validation, w1={"worker_cpus": 4, "ansible_host": "192.0.2.1"}) == []


@pytest.mark.parametrize(
    ("groups", "said"),
    [
        ({"xmpp_servers": []}, "xmpp_servers must have exactly one host; it has none"),
        ({"xmpp_servers": ["a", "b"]}, "xmpp_servers must have exactly one host; it has a, b"),
        ({"managers": []}, "managers must have exactly one host; it has none"),
        ({"managers": ["a", "b"]}, "managers must have exactly one host; it has a, b"),
        ({"managers": ["a", "b"]}, "a PostgreSQL that kestrel_postgresql names"),
        ({"workers": []}, "workers must have at least one host"),
        ({"workers": [], "worker": ["a"]}, "there is a group worker: did you mean workers?"),
        ({"managers": [], "manager": ["a"]}, "there is a group manager: did you mean managers?"),
        ({"xmpp_servers": [], "xmpp_server": ["a"]}, "did you mean xmpp_servers?"),
        ({"monitor": ["a"]}, "there is a group monitor: did you mean monitoring?"),
        ({"workers": ["Node1"]}, "'Node1' cannot have an account of that name"),
        ({"workers": ["a@b"]}, "'a@b' cannot have an account of that name"),
    ],
)
def test_groups(validation: ModuleType, groups: dict[str, list[str]], said: str) -> None:
    (problem,) = problems(validation, groups)
    assert said in problem


STORE = "postgresql://kestrel@db.example.org/kestrel"


def test_managers_that_share_a_store_may_be_several(validation: ModuleType) -> None:
    for managers in (["srv"], ["a", "b"], ["a", "b", "c"]):
        groups = {"managers": managers}
        assert problems(validation, groups, {"kestrel_postgresql": STORE}) == []


@pytest.mark.parametrize("other", ["", "service=other"])
def test_managers_must_share_one_store(validation: ModuleType, other: str) -> None:
    on_one = {"kestrel_postgresql": other}
    (problem,) = problems(
        validation, {"managers": ["a", "b"]}, {"kestrel_postgresql": STORE}, b=on_one
    )
    assert "kestrel_postgresql is not the same on a, b" in problem


@pytest.mark.parametrize(
    "store",
    [
        "postgresql://kestrel:s3cret@db.example.org/kestrel",
        "postgresql://db.example.org/kestrel?user=kestrel&password=s3cret",
        "host=db.example.org user=kestrel password = 's3cret'",
    ],
)
@pytest.mark.parametrize("managers", [["srv"], ["a", "b"]])
def test_no_password_of_the_store_gets_into_a_unit(
    validation: ModuleType, store: str, managers: list[str]
) -> None:
    (problem,) = problems(validation, {"managers": managers}, {"kestrel_postgresql": store})
    assert "kestrel_postgresql has a password in it" in problem
    assert "s3cret" not in problem


@pytest.mark.parametrize(
    "store",
    [
        STORE,
        "postgresql://kestrel@[2001:db8::1]:5433/kestrel?connect_timeout=3",
        "postgresql://db.example.org:5433/kestrel?passfile=/etc/pgpass",
        "service=kestrel",
    ],
)
def test_a_store_without_one_is_sound(validation: ModuleType, store: str) -> None:
    assert problems(validation, everywhere={"kestrel_postgresql": store}) == []


def test_a_certificate_of_ones_own_has_a_key(validation: ModuleType) -> None:
    pair = {
        "xmpp_server_certificate_file": "/etc/ssl/chain.pem",
        "xmpp_server_certificate_key_file": "/etc/ssl/key.pem",
    }
    assert problems(validation, everywhere=pair) == []
    for missing in pair:
        (problem,) = problems(validation, everywhere=pair | {missing: ""})
        assert problem.startswith(f"{missing} is not set (of srv)")


EJABBERD = {"xmpp_server_flavor": "ejabberd"}


def test_a_pool_may_have_an_ejabberd(validation: ModuleType) -> None:
    assert problems(validation, everywhere=EJABBERD) == []


TWO = {"xmpp_servers": ["192.0.2.1", "elm"], "managers": ["192.0.2.1"]}
AT_TWO = {**EJABBERD, "kestrel_server_address": "xmpp.example.org"}


def test_several_servers_are_nodes_of_one_ejabberd(validation: ModuleType) -> None:
    assert problems(validation, TWO, AT_TWO, elm={"ansible_host": "192.0.2.2"}) == []
    elsewhere = {"ansible_host": "elm.example.org", "xmpp_server_node_address": "192.0.2.2"}
    assert problems(validation, TWO, AT_TWO, elm=elsewhere) == []


def test_nodes_are_of_one_flavor(validation: ModuleType) -> None:
    prosody = {"ansible_host": "192.0.2.2", "xmpp_server_flavor": "prosody"}
    (problem,) = problems(validation, TWO, AT_TWO, elm=prosody)
    assert "several are nodes of one ejabberd" in problem


def test_nodes_have_a_name_together(validation: ModuleType) -> None:
    (problem,) = problems(validation, TWO, EJABBERD, elm={"ansible_host": "192.0.2.2"})
    assert "kestrel_server_address is not set" in problem


def test_each_node_has_an_address_for_the_others(validation: ModuleType) -> None:
    for bad in ({}, {"ansible_host": "elm.example.org"}, {"ansible_host": "2001:db8::1"}):
        (problem,) = problems(validation, TWO, AT_TWO, elm=bad)
        assert "elm has no address at which other nodes reach it" in problem


def test_an_ejabberd_carries_one_manager(validation: ModuleType) -> None:
    stored = {**EJABBERD, "kestrel_postgresql": STORE}
    (problem,) = problems(validation, {"managers": ["a", "b"]}, stored)
    assert "managers must have exactly one host; it has a, b: an ejabberd gives each" in problem


@pytest.mark.parametrize(
    ("variable", "value", "what"),
    [
        ("xmpp_server_account_admins", ["pool@pool.internal"], "accounts that the pool makes"),
        ("manager_environments", "[environment.science]", "accounts that the pool makes for"),
        ("kestrel_flock_join", "pool.internal", "a flock"),
        ("xmpp_server_flock", True, "a flock"),
        ("xmpp_server_federated_domains", ["a.internal"], "other servers"),
        ("xmpp_server_websocket_port", 5281, "chat clients in browsers"),
        ("xmpp_server_client_kilobytes_per_second", 100, "a bounded rate"),
        ("xmpp_server_share_account_percent", 50, "a share for each account"),
        ("xmpp_server_metrics_port", 5280, "metrics of the server"),
    ],
)
def test_what_an_ejabberd_does_not_carry_is_refused(
    validation: ModuleType, variable: str, value: object, what: str
) -> None:
    groups = {"xmpp_servers": ["srv"], "managers": ["srv"], "workers": ["w1"]}
    asked = {"kestrel_domain": "pool.internal", variable: value}
    hosts = {"srv": {**asked, **EJABBERD}, "w1": asked}
    (problem,) = validation.flavor_problems(groups, hosts)
    assert f"{variable} asks for {what}" in problem
    assert list(validation.flavor_problems(groups, dict.fromkeys(hosts, asked))) == []


def test_what_is_switched_off_is_not_asked_for(validation: ModuleType) -> None:
    groups = {"xmpp_servers": ["srv"], "managers": ["srv"], "workers": ["w1"]}
    off = {"kestrel_flock_join": "", "xmpp_server_websocket_port": 0, **EJABBERD}
    assert list(validation.flavor_problems(groups, {"srv": off, "w1": off})) == []


def test_every_variable_that_an_ejabberd_does_without_is_one_of_a_role(
    validation: ModuleType, roles: Path
) -> None:
    known = validation.read_specifications(roles)
    starts = tuple(validation._NOT_WITH_EJABBERD)
    assert [each for each in starts if not any(name.startswith(each) for name in known)] == []


def test_other_groups_are_other_peoples_affair(validation: ModuleType) -> None:
    groups = {"gpu_workers": ["w1"], "monitor": ["w1"], "monitoring": ["w1"]}
    assert problems(validation, groups, w1={"ansible_host": "192.0.2.1"}) == []


@pytest.mark.parametrize(
    "domain", ["pool", "Pool.internal", "pool..internal", "pool_a.internal", "-a.internal", 7, ""]
)
def test_a_bad_domain_is_told_with_an_example(validation: ModuleType, domain: object) -> None:
    said = [text for text in problems(validation, everywhere={"kestrel_domain": domain})
            if "no domain name" in text]  # fmt: skip
    assert len(said) == 1
    assert "pool.internal" in said[0]


def test_a_missing_domain_is_told(validation: ModuleType) -> None:
    assert problems(validation, everywhere={"kestrel_domain": None})[0].startswith(
        "kestrel_domain is not set"
    )


def test_a_domain_must_be_that_of_the_whole_pool(validation: ModuleType) -> None:
    (problem,) = problems(validation, w1={"kestrel_domain": "other.internal"})
    assert "kestrel_domain has 2 values" in problem


@pytest.mark.parametrize(
    ("users", "said"),
    [
        ([], "must be a list with at least one user"),
        (["ada"], "'ada' is no user"),
        ([{"name": "Ada", "admin": True}], "'Ada' cannot be a user's name"),
        ([{"name": "ada"}], "nobody is admin"),
        ([{"name": "ada", "admin": "yes"}], "admin of ada must be true or false"),
        ([{"name": "ada", "admin": True}, {"name": "ada"}], "ada is there twice"),
        ([{"name": "ada", "admin": True, "admn": True}], "'admn'; did you mean admin?"),
    ],
)
def test_users(validation: ModuleType, users: list[Any], said: str) -> None:
    found = problems(validation, everywhere={"kestrel_users": users})
    assert any(said in text for text in found)


def test_a_misspelt_variable_is_told_with_the_nearest_known_one(validation: ModuleType) -> None:
    (problem,) = problems(validation, w1={"worker_cpu": 4})
    assert "worker_cpu (of w1); did you mean worker_cpus?" in problem


def test_a_misspelt_variable_of_all_hosts_is_told_once(validation: ModuleType) -> None:
    (problem,) = problems(validation, everywhere={"kestrel_domian": "pool.internal"})
    assert "kestrel_domian (of all hosts); did you mean kestrel_domain?" in problem


def test_other_peoples_variables_are_their_own_affair(validation: ModuleType) -> None:
    assert problems(validation, everywhere={"workerbee": 1, "nginx_port": 80}) == []


@pytest.mark.parametrize(
    ("variable", "value"), [("worker_cpus", "many"), ("manager_log_format", "xml")]
)
def test_a_value_of_the_wrong_kind_is_told(
    validation: ModuleType, variable: str, value: str
) -> None:
    (problem,) = problems(validation, w1={variable: value})
    assert problem.startswith(f"{variable} (of w1): ")
    assert value in problem


def test_a_secret_is_never_shown(validation: ModuleType) -> None:
    assert problems(validation, w1={"worker_password": ["not", "a", "string"]}) == []


def test_all_problems_are_told_at_once(validation: ModuleType) -> None:
    found = problems(
        validation, {"managers": ["a", "b"]}, {"kestrel_domain": "pool"}, w1={"worker_cpu": 1}
    )
    assert len(found) == 3


def test_the_real_roles_know_the_variables_of_a_pool(validation: ModuleType, roles: Path) -> None:
    known = validation.read_specifications(roles)
    assert {"kestrel_domain", "kestrel_users", "xmpp_server_client_port"} <= set(known)


def watched(
    validation: ModuleType, *, mon: dict[str, Any], everywhere: dict[str, Any] | None = None
) -> list[str]:
    return problems(validation, {"monitoring": ["mon"]}, everywhere, mon=mon)


def test_who_watches_is_known_by_an_address(validation: ModuleType) -> None:
    assert watched(validation, mon={"ansible_host": "192.0.2.31"}) == []
    assert watched(validation, mon={"ansible_host": "2001:db8::31"}) == []
    for unknown in ({}, {"ansible_host": "mon.example.org"}):
        (problem,) = watched(validation, mon=unknown)
        assert "mon of monitoring reads metrics from an address that nobody knows" in problem


def test_the_addresses_of_who_watches_can_be_named(validation: ModuleType) -> None:
    assert watched(validation, mon={}, everywhere=named("192.0.2.31")) == []
    (problem,) = watched(validation, mon={}, everywhere=named("mon.example.org"))
    assert problem == "kestrel_monitoring_addresses: 'mon.example.org' is no address"


def named(*addresses: str) -> dict[str, Any]:
    return {"kestrel_monitoring_addresses": list(addresses)}


PIN = ":".join(["aB"] * 32)


@pytest.mark.parametrize(
    ("flock", "said"),
    [
        ({"kestrel_flock_join": "nowhere"}, "'nowhere' is no domain of a pool"),
        ({"kestrel_flock_join": "birch.internal"}, "no server of birch.internal would be believed"),
        ({"kestrel_flock_pins": {"birch.internal": "ab"}}, "no SHA-256 in hex"),
        ({"kestrel_flock_pins": {"birch": PIN}}, "kestrel_flock_pins: 'birch' is no domain"),
        ({"kestrel_flock_addresses": {"birch.internal": "srv:5269"}}, "is not ADDRESS:PORT"),
        ({"kestrel_flock_addresses": {"birch.internal": "192.0.2.1"}}, "is not ADDRESS:PORT"),
    ],
)
def test_a_flock_that_could_not_be_joined_is_told_of(
    validation: ModuleType, flock: dict[str, Any], said: str
) -> None:
    found = validation.flock_problems({"kestrel_domain": "pool.internal"} | flock)
    assert any(said in text for text in found)


@pytest.mark.parametrize(
    "flock",
    [
        {},
        {"kestrel_flock_join": "pool.internal"},
        {"kestrel_flock_join": "birch.internal", "kestrel_flock_ca_certificate": "PEM"},
        {
            "kestrel_flock_join": "birch.internal",
            "kestrel_flock_pins": {"birch.internal": PIN, "cedar.internal": PIN.replace(":", "")},
            "kestrel_flock_addresses": {"birch.internal": "[2001:db8::1]:5269"},
        },
    ],
)
def test_a_flock_that_can_be_joined_is_no_problem(
    validation: ModuleType, flock: dict[str, Any]
) -> None:
    assert list(validation.flock_problems({"kestrel_domain": "pool.internal"} | flock)) == []
