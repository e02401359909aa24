"""When a server gets a certificate, and what is said of one that somebody brought."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

NOW = datetime.now(UTC).replace(microsecond=0)
NAMES = ["pool.internal", "workers.pool.internal", "192.0.2.1"]


@pytest.fixture(scope="module")
def plugin(load: Callable[[str], ModuleType]) -> ModuleType:
    return load("xmpp_server/action_plugins/server_certificate")


@pytest.fixture(scope="module")
def make_authority(load: Callable[[str], ModuleType]) -> Callable[[], tuple[Any, Any]]:
    """Return a function that makes a certificate authority: its certificate and its key."""

    def make() -> tuple[Any, Any]:
        secrets = load("pool_secrets/action_plugins/pool_secrets")
        key, pem = secrets.make_authority("pool.internal", 3650)
        return (
            x509.load_pem_x509_certificate(pem.encode()),
            serialization.load_pem_private_key(key.encode(), None),
        )

    return make


def a_request() -> x509.CertificateSigningRequest:
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    return builder.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())


@pytest.fixture
def signed(plugin: ModuleType, make_authority: Callable[[], tuple[Any, Any]]) -> dict[str, Any]:
    """A server with a certificate of 100 days."""
    authority, key = make_authority()
    request = a_request()
    return {
        "present": plugin.sign(request, NAMES, authority, key, NOW, 100),
        "request": request,
        "names": NAMES,
        "authority": authority,
        "now": NOW,
        "renew_days": 30,
    }


def test_a_sound_certificate_stays(plugin: ModuleType, signed: dict[str, Any]) -> None:
    assert plugin.reason_to_renew(**signed) is None


def test_a_server_without_one_gets_one(plugin: ModuleType, signed: dict[str, Any]) -> None:
    assert plugin.reason_to_renew(**signed | {"present": None}) == "there is none"


@pytest.mark.parametrize(("days", "renewed"), [(69, False), (71, True), (200, True)])
def test_it_is_renewed_before_it_ends(
    plugin: ModuleType, signed: dict[str, Any], days: int, renewed: bool
) -> None:
    reason = plugin.reason_to_renew(**signed | {"now": NOW + timedelta(days=days)})
    assert (reason is not None) is renewed


def test_other_names_need_another_one(plugin: ModuleType, signed: dict[str, Any]) -> None:
    reason = plugin.reason_to_renew(**signed | {"names": [*NAMES, "more.internal"]})
    assert reason == "the server has other names"
    assert plugin.reason_to_renew(**signed | {"names": NAMES[::-1]}) is None


def test_another_key_needs_another_one(plugin: ModuleType, signed: dict[str, Any]) -> None:
    reason = plugin.reason_to_renew(**signed | {"request": a_request()})
    assert reason == "the server has another key"


def test_another_authority_needs_another_one(
    plugin: ModuleType, signed: dict[str, Any], make_authority: Callable[[], tuple[Any, Any]]
) -> None:
    reason = plugin.reason_to_renew(**signed | {"authority": make_authority()[0]})
    assert reason == "the pool has another certificate authority"


def test_a_certificate_is_for_servers_of_these_names(
    plugin: ModuleType, signed: dict[str, Any]
) -> None:
    certificate = signed["present"]
    assert {str(name.value) for name in plugin.names_of(certificate)} == set(NAMES)
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert certificate.not_valid_after_utc == NOW + timedelta(days=100)


def test_it_never_outlives_the_authority(
    plugin: ModuleType, make_authority: Callable[[], tuple[Any, Any]]
) -> None:
    authority, key = make_authority()
    certificate = plugin.sign(a_request(), NAMES, authority, key, NOW, 10_000)
    assert certificate.not_valid_after_utc == authority.not_valid_after_utc


def test_what_is_no_name_is_left_out(plugin: ModuleType) -> None:
    names = plugin.general_names(["a.internal", "not a name", "2001:db8::1"])
    assert [str(name.value) for name in names] == ["a.internal", "2001:db8::1"]


def judge(
    plugin: ModuleType, signed: dict[str, Any], **changed: Any
) -> tuple[list[str], list[str]]:
    given = {
        "chain": [signed["present"]],
        "key": signed["request"].public_key(),
        "names": NAMES,
        "trusted": [signed["authority"]],
        "now": NOW,
        "renew_days": 30,
    }
    verdict: tuple[list[str], list[str]] = plugin.judge_given(**given | changed)
    return verdict


def test_a_given_one_may_be_sound(plugin: ModuleType, signed: dict[str, Any]) -> None:
    assert judge(plugin, signed) == ([], [])


def test_a_given_one_that_ends_soon_is_warned_of(
    plugin: ModuleType, signed: dict[str, Any]
) -> None:
    faults, (warning,) = judge(plugin, signed, now=NOW + timedelta(days=90))
    assert faults == []
    assert "in 10 days" in warning


@pytest.mark.parametrize(("days", "said"), [(101, "it ended on"), (-1, "it begins only on")])
def test_a_given_one_out_of_its_time_is_refused(
    plugin: ModuleType, signed: dict[str, Any], days: int, said: str
) -> None:
    (fault,), _ = judge(plugin, signed, now=NOW + timedelta(days=days))
    assert said in fault


def test_a_given_one_for_other_names_is_refused(plugin: ModuleType, signed: dict[str, Any]) -> None:
    (fault,), _ = judge(plugin, signed, names=[*NAMES, "users.pool.internal"])
    assert "it is not for users.pool.internal" in fault


def test_a_given_one_with_another_key_is_refused(
    plugin: ModuleType, signed: dict[str, Any]
) -> None:
    assert judge(plugin, signed, key=a_request().public_key())[0] == [
        "it does not belong to the given key"
    ]


def test_a_given_one_of_an_unknown_authority_is_refused(
    plugin: ModuleType, signed: dict[str, Any], make_authority: Callable[[], tuple[Any, Any]]
) -> None:
    (fault,), _ = judge(plugin, signed, trusted=[make_authority()[0]])
    assert "no authority in kestrel_ca_certificate signed it" in fault
