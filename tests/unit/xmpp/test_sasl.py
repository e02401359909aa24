"""How an account is let in: the exchanges of the standards, and servers that break them."""

from __future__ import annotations

import pytest

from kestrelctl.errors import Untrusted
from kestrelctl.xmpp.login import choose
from kestrelctl.xmpp.sasl import PlainMechanism, prepared
from kestrelctl.xmpp.scram import LEAST_ITERATIONS, MOST_ITERATIONS, Scram

#: The examples of RFC 5802, 5, and RFC 7677, 3.
EXAMPLES = {
    "SCRAM-SHA-1": (
        "fyko+d2lbbFgONRv9qkxdawL",
        "r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096",
        "c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
        "v=rmF9pqV8S7suAoZWja4dJRkFsKQ=",
    ),
    "SCRAM-SHA-256": (
        "rOprNGfwEbeRWgbNEkqO",
        "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        "p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
    ),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_exchange_is_that_of_the_standard(name: str) -> None:
    nonce, challenge, answer, signature = EXAMPLES[name]
    mechanism = Scram(name, "user", "pencil", nonce)
    assert mechanism.first() == f"n,,n=user,r={nonce}".encode()
    assert mechanism.answer(challenge.encode()) == answer.encode()
    mechanism.finish(signature.encode())


@pytest.mark.parametrize("signature", ["", "v=", "v=AAAA", "e=other-error"])
def test_a_server_that_does_not_know_the_account_is_not_trusted(signature: str) -> None:
    nonce, challenge, _, _ = EXAMPLES["SCRAM-SHA-1"]
    mechanism = Scram("SCRAM-SHA-1", "user", "pencil", nonce)
    mechanism.answer(challenge.encode())
    with pytest.raises(Untrusted):
        mechanism.finish(signature.encode())


def test_a_server_asks_once() -> None:
    """Each answer costs the one who gives it thousands of rounds of a hash."""
    nonce, challenge, _, _ = EXAMPLES["SCRAM-SHA-1"]
    mechanism = Scram("SCRAM-SHA-1", "user", "pencil", nonce)
    mechanism.answer(challenge.encode())
    with pytest.raises(Untrusted):
        mechanism.answer(challenge.encode())


def test_a_server_that_asks_nothing_does_not_know_the_account() -> None:
    with pytest.raises(Untrusted):
        Scram("SCRAM-SHA-1", "user", "pencil").finish(b"v=")


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        b"\xff",
        b"r=",
        b"r=nonce2,s=AAAA",
        b"r=nonce2,s=AAAA,i=x",
        b"r=nonce2,s=!,i=4096",
        b"r=other,s=AAAA,i=4096",
        b"r=nonce,s=AAAA,i=4096",
        b"r=nonce2,s=AAAA,i=0",
        f"r=nonce2,s=AAAA,i={LEAST_ITERATIONS - 1}".encode(),
        f"r=nonce2,s=AAAA,i={MOST_ITERATIONS + 1}".encode(),
    ],
)
def test_a_challenge_that_makes_no_sense_is_not_answered(challenge: bytes) -> None:
    with pytest.raises(Untrusted):
        Scram("SCRAM-SHA-256", "user", "pencil", "nonce").answer(challenge)


def test_no_two_exchanges_have_a_nonce() -> None:
    assert Scram("SCRAM-SHA-1", "u", "p").first() != Scram("SCRAM-SHA-1", "u", "p").first()


def test_a_name_with_signs_of_the_exchange_is_escaped() -> None:
    assert Scram("SCRAM-SHA-1", "a=b,c", "p", "x").first() == b"n,,n=a=3Db=2Cc,r=x"


def test_plain_says_name_and_password() -> None:
    assert PlainMechanism("ada", "pw").first() == b"\0ada\0pw"
    with pytest.raises(Untrusted):
        PlainMechanism("ada", "pw").answer(b"who are you?")


@pytest.mark.parametrize(
    ("offered", "encrypted", "chosen"),
    [
        (["PLAIN", "SCRAM-SHA-1", "SCRAM-SHA-256"], True, "SCRAM-SHA-256"),
        (["PLAIN", "SCRAM-SHA-1", "SCRAM-SHA-1-PLUS"], True, "SCRAM-SHA-1"),
        (["PLAIN"], True, "PLAIN"),
        (["SCRAM-SHA-1", "PLAIN"], False, "PLAIN"),
        (["EXTERNAL"], True, None),
        ([], False, None),
    ],
)
def test_the_best_mechanism_is_taken(
    offered: list[str], encrypted: bool, chosen: str | None
) -> None:
    found = choose(offered, "ada", "pw", encrypted=encrypted)
    assert (None if found is None else found.name) == chosen


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("pw", "pw"), ("I\u00adX", "IX"), ("a\u00a0b", "a b"), ("\u2168", "IX"), ("e\u0301", "é")],
)
def test_what_is_typed_in_other_ways_is_the_same_password(typed: str, meant: str) -> None:
    assert prepared(typed) == meant
