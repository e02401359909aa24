"""What goes over a connection, and what must not."""

from __future__ import annotations

import asyncio

import pytest

from kestrelctl.errors import UsageError
from kestrelctl.xmpp import session, stanza
from kestrelctl.xmpp.user import UserConnection


async def test_a_password_never_crosses_a_network_in_the_clear() -> None:
    with pytest.raises(UsageError, match="in the clear"):
        session.client("ada@x", "secret", "example.org", 5222, UserConnection("x"), tls=False)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1"])
async def test_without_tls_only_this_machine_is_trusted(host: str) -> None:
    made = session.client("ada@x", "secret", host, 5222, UserConnection("x"), tls=False)
    assert not made.online
    await asyncio.sleep(0)


def test_what_xml_cannot_carry_travels_as_json_escapes() -> None:
    text = stanza.message('{"out":"<&>\uffff\ufffe"}', "a@b/it's")
    assert "\uffff" not in text
    assert "\\uffff\\ufffe" in text
    assert "&lt;&amp;&gt;" in text
    assert "it&apos;s" in text
