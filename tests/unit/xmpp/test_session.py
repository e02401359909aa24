"""What goes over a connection, and what must not."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from xml.etree import ElementTree

import pytest

from kestrelctl.core.pacing.backoff import FIRST_OF_MANY_SECONDS, LONGEST_OF_MANAGER_SECONDS
from kestrelctl.errors import Untrusted, UsageError
from kestrelctl.xmpp import stanza, tls, xmpp_session
from kestrelctl.xmpp.login import LoginRefused
from kestrelctl.xmpp.loop_stream import XmppStream
from kestrelctl.xmpp.user import UserConnection


async def test_a_password_never_crosses_a_network_in_the_clear() -> None:
    with pytest.raises(UsageError, match="in the clear"):
        xmpp_session.client("ada@x", "secret", "example.org", 5222, UserConnection("x"), tls=False)


async def test_a_secret_never_crosses_a_network_in_the_clear() -> None:
    with pytest.raises(UsageError, match="in the clear") as caught:
        xmpp_session.component("x", "secret", "192.0.2.1", 5347, UserConnection("x"), tls=False)
    assert "--tls" in str(caught.value.hint)


def test_a_ca_file_without_a_certificate_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    with pytest.raises(UsageError, match=r"ca\.pem cannot be used") as caught:
        tls.context(file)
    assert caught.value.cause == "No such file or directory"
    file.write_text("not a certificate")
    with pytest.raises(UsageError, match=r"ca\.pem cannot be used") as caught:
        tls.context(file)
    assert caught.value.cause == "it holds no certificate"


def test_there_is_one_context_for_an_authority_and_it_speaks_no_old_tls() -> None:
    assert tls.context(None) is tls.context(None)
    assert tls.context(None).minimum_version == ssl.TLSVersion.TLSv1_2
    assert tls.context(None).verify_mode == ssl.CERT_REQUIRED
    assert tls.context(None).check_hostname


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("TLSV1_UNRECOGNIZED_NAME", "the server has no certificate for pool.internal"),
        ("WRONG_VERSION_NUMBER", "the server does not speak TLS there"),
    ],
)
def test_a_handshake_that_fails_is_explained(reason: str, message: str) -> None:
    error = ssl.SSLError(1, "words of OpenSSL")
    error.reason = reason
    found = tls.explain(error, "pool.internal", None)
    assert isinstance(found, Untrusted)
    assert found.message == message


@pytest.mark.parametrize("error", [OSError(111, "refused"), ssl.SSLError(1, "eof"), "closed", None])
def test_what_has_nothing_to_do_with_trust_is_not_explained(error: object) -> None:
    assert tls.explain(error, "pool.internal", None) is None


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1"])
async def test_without_tls_only_this_machine_is_trusted(host: str) -> None:
    made = xmpp_session.client("ada@x", "secret", host, 5222, UserConnection("x"), tls=False)
    assert not made.online
    await asyncio.sleep(0)


def test_what_xml_cannot_carry_travels_as_json_escapes() -> None:
    text = stanza.message('{"out":"<&>\uffff\ufffe"}', "a@b/it's")
    assert "\uffff" not in text
    assert "\\uffff\\ufffe" in text
    assert "&lt;&amp;&gt;" in text
    assert "it&apos;s" in text


class Told:
    """A listener that keeps what it hears of the connection."""

    def __init__(self) -> None:
        self.words: list[str] = []

    def on_online(self) -> None:
        self.words.append("online")

    def on_offline(self, why: str) -> None:
        self.words.append(why)


async def test_credentials_that_are_refused_after_an_outage_are_told_of() -> None:
    told = Told()
    made = xmpp_session.client("ada@x", "secret", "127.0.0.1", 1, told, tls=False)  # type: ignore[arg-type]
    made.on_closed("nobody is there")
    await made.stop()
    made._stopping = False
    made.on_closed(made._refusal(LoginRefused("not-authorized")))
    await made.stop()
    assert told.words == ["nobody is there", "the server refused the credentials"]


async def test_a_refusal_is_over_when_the_server_lets_the_account_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(xmpp_session, "detect_dead_peers", lambda transport: None)
    made = xmpp_session.client("ada@x", "secret", "127.0.0.1", 1, Told(), tls=False)  # type: ignore[arg-type]
    made.on_closed(made._refusal(LoginRefused("not-authorized")))
    assert made.refused
    made._on_start(XmppStream(made))
    assert (made.refused, made.problem) == (None, None)
    await made.stop()


def pause_after_a_failure(made: xmpp_session.XmppSession) -> float:
    made.on_closed("nobody is there")
    moment = made._timer.moment
    assert moment is not None
    made._timer.stop()
    return moment - asyncio.get_running_loop().time()


async def test_after_a_session_the_first_pause_is_short_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(xmpp_session, "detect_dead_peers", lambda transport: None)
    monkeypatch.setattr(xmpp_session.random, "random", lambda: 1.0)
    made = xmpp_session.client("ada@x", "secret", "127.0.0.1", 1, Told(), tls=False)  # type: ignore[arg-type]
    pauses = [pause_after_a_failure(made) for _ in range(8)]
    assert pauses[-1] > FIRST_OF_MANY_SECONDS
    made._on_start(XmppStream(made))
    assert pause_after_a_failure(made) <= FIRST_OF_MANY_SECONDS
    await made.stop()


async def test_the_manager_is_back_before_its_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xmpp_session.random, "random", lambda: 1.0)
    made = xmpp_session.component("x", "secret", "127.0.0.1", 1, Told(), tls=False)  # type: ignore[arg-type]
    pauses = [pause_after_a_failure(made) for _ in range(8)]
    assert max(pauses) <= LONGEST_OF_MANAGER_SECONDS
    await made.stop()


@pytest.mark.parametrize(
    ("condition", "refused", "words"),
    [
        ("temporary-auth-failure", False, "the server cannot check credentials now"),
        ("invalid-mechanism", False, "no login that is known here"),
        ("not-authorized", True, "refused the credentials"),
    ],
    ids=["temporary-auth-failure", "invalid-mechanism", "not-authorized"],
)
async def test_a_server_that_cannot_look_at_credentials_now_has_not_refused_them(
    condition: str, refused: bool, words: str
) -> None:
    """A worker that is refused ends for good."""
    told = Told()
    made = xmpp_session.client("ada@x", "secret", "127.0.0.1", 1, told, tls=False)  # type: ignore[arg-type]
    made.on_closed(made._refusal(LoginRefused(condition)))
    await made.stop()
    assert bool(made.refused) == refused
    [told_words] = told.words
    assert words in str(told_words)


@pytest.mark.parametrize("kind", ["get", "set", "result", "error"])
async def test_an_iq_of_anybody_is_refused_once(kind: str) -> None:
    session = xmpp_session.component(
        "pool.internal",
        "secret",
        "127.0.0.1",
        1,
        Told(),
        tls=False,  # type: ignore[arg-type]
    )
    session.online = True
    session.on_stanza(
        ElementTree.fromstring(
            f"<iq xmlns='jabber:client' type='{kind}' id='k1' from='eve@x' to='pool@y'/>"
        )
    )
    assert bool(session._outbox) is (kind in ("get", "set"))


@pytest.mark.parametrize(("sender", "kind"), [("x", "result"), ("eve@x/1", "error")])
async def test_the_server_hears_that_a_session_lives_and_nobody_else(
    sender: str, kind: str
) -> None:
    """ejabberd pings a session that answers with an error no more."""
    session = xmpp_session.client("ada@x", "secret", "127.0.0.1", 1, Told(), tls=False)  # type: ignore[arg-type]
    session.online = True
    ping = f"<iq xmlns='jabber:client' type='get' id='rr-1' from='{sender}' to='ada@x/desk'>"
    session.on_stanza(ElementTree.fromstring(f"{ping}<ping xmlns='urn:xmpp:ping'/></iq>"))
    assert [ElementTree.fromstring(text).get("type") for text in session._outbox] == [kind]


class Written:
    """A stream that keeps what is written."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.is_aborted = False
        self.transport = None

    def write(self, text: str) -> None:
        self.texts.append(text)

    def abort(self) -> None:
        self.is_aborted = True


async def test_what_cannot_be_written_keeps_nothing_back_that_follows() -> None:
    """Only the first of what waits plans to be written: it would never be again."""
    stream = Written()
    made = xmpp_session.client("ada@x", "secret", "127.0.0.1", 1, Told(), tls=False)  # type: ignore[arg-type]
    made._stream = stream  # type: ignore[assignment]
    made._on_start(stream)  # type: ignore[arg-type]

    def write(text: str) -> None:
        stream.texts.append(text.encode().decode())

    stream.write = write  # type: ignore[method-assign]
    made.send("{}", "w1\udcff@x")
    with pytest.raises(UnicodeEncodeError):
        made._flush()
    made.send("{}", "w2@x")
    made._flush()
    assert [text.count("w2@x") for text in stream.texts] == [1]


async def test_one_that_may_not_speak_says_nothing_and_does_not_connect(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a manager that was frozen: another one leads when it goes on."""
    told, stream = Told(), Written()
    made = xmpp_session.client("ada@x", "secret", "127.0.0.1", 1, told, tls=False)  # type: ignore[arg-type]
    made._stream = stream  # type: ignore[assignment]
    made._on_start(stream)  # type: ignore[arg-type]
    made.send("{}", "w1@x")
    made._flush()
    assert len(stream.texts) == 1
    made.send("{}", "w1@x")
    made.may_speak = lambda: False
    made._flush()
    assert len(stream.texts) == 1
    assert stream.is_aborted
    assert told.words == ["online", "this manager does not lead now"]
    monkeypatch.setattr(xmpp_session, "XmppStream", None)
    await made._open()
    assert not made.online
    assert made._timer.is_set, "it looks again"
    made._timer.stop()


async def test_one_that_falls_silent_while_it_has_nothing_to_say_is_offline() -> None:
    told, stream = Told(), Written()
    made = xmpp_session.client("ada@x", "secret", "127.0.0.1", 1, told, tls=False)  # type: ignore[arg-type]
    made._stream = stream  # type: ignore[assignment]
    made.fall_silent()
    assert not stream.is_aborted, "it was not connected"
    made._on_start(stream)  # type: ignore[arg-type]
    made.fall_silent()
    assert stream.is_aborted
    assert not made.online
    made._timer.stop()
