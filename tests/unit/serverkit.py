"""Servers on the other side of a stream: one that does as it should, and some that say anything."""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from html import escape

from hypothesis import strategies as st
from streamkit import BINDS, BOUND, JSON, PLAIN, SASL, TLS_OFFER, TLS_PROCEED, features, header

from kestrelctl.protocol import codec
from kestrelctl.protocol.request import Changed, Reply
from kestrelctl.xmpp.scram import LEAST_ITERATIONS

SCRAM = f"<mechanisms xmlns='{SASL}'><mechanism>SCRAM-SHA-256</mechanism></mechanisms>"
SALT = b"salt of the server"


class Server:
    """One that does all as it should.

    Args:
        encrypted: whether it offers encryption, and then SCRAM; otherwise PLAIN.

    Attributes:
        closes: whether it closes the connection after what it has said last.
    """

    closes = False

    def __init__(self, *, encrypted: bool = False) -> None:
        self._offers = [TLS_OFFER, SCRAM, BINDS] if encrypted else [PLAIN, BINDS]
        self._own = self._challenge = ""
        self.iterations = LEAST_ITERATIONS

    def answer(self, said: str) -> bytes | None:
        """What it says to a text; None if it closes the connection."""
        kind = re.match(r"</?(\S+?)[\s>]", said)
        assert kind is not None, said
        answer: str | None = getattr(self, f"on_{kind[1].replace(':', '_')}")(said)
        return None if answer is None else answer.encode()

    def on_stream_stream(self, said: str) -> str | None:
        return None if said.startswith("</") else header() + features(self._offers.pop(0))

    def on_starttls(self, _said: str) -> str:
        return TLS_PROCEED

    def on_auth(self, said: str) -> str:
        if "PLAIN" in said:
            return f"<success xmlns='{SASL}'/>"
        self._own = words_in(said).removeprefix("n,,")
        self._challenge = (
            f"{self._own.partition(',')[2]}+,s={b64encode(SALT).decode()},i={self.iterations}"
        )
        return f"<challenge xmlns='{SASL}'>{in_base64(self._challenge)}</challenge>"

    def on_response(self, said: str) -> str:
        return f"<success xmlns='{SASL}'>{in_base64(f'v={self.signature(said)}')}</success>"

    def signature(self, said: str) -> str:
        """The proof that it knows the password (RFC 5802, 3)."""
        exchange = f"{self._own},{self._challenge},{words_in(said).rpartition(',p=')[0]}"
        salted = hashlib.pbkdf2_hmac("sha256", b"secret", SALT, self.iterations)
        key = hmac.digest(salted, b"Server Key", "sha256")
        return b64encode(hmac.digest(key, exchange.encode(), "sha256")).decode()

    def on_iq(self, _said: str) -> str:
        return BOUND

    def on_message(self, said: str) -> str:
        asked = re.search(r'"id":"(\d+)"', said)
        assert asked is not None
        answer = codec.encode(self.reply(asked[1]))
        return f"<message from='jobs@x' to='ada@x/desk'>{JSON}{escape(answer)}</json></message>"

    def reply(self, request_id: str) -> Reply:
        return Changed(id=request_id, what=["job 7"])


def in_base64(text: str) -> str:
    return b64encode(text.encode()).decode()


def words_in(said: str) -> str:
    """What the client has said in base64."""
    found = re.search(">(.*?)<", said)
    assert found is not None
    return b64decode(found[1]).decode()


class Recorded(Server):
    """One that does as it should, but of all its words together says only so many bytes."""

    def __init__(self, most_bytes: int, *, encrypted: bool, silent: bool) -> None:
        super().__init__(encrypted=encrypted)
        self.said_bytes = 0
        self._most_bytes = most_bytes
        self._silent = silent

    def answer(self, said: str) -> bytes | None:
        left = self._most_bytes - self.said_bytes
        if left <= 0:
            return b"" if self._silent else None
        answer = super().answer(said)
        self.said_bytes += len(answer or b"")
        self.closes = len(answer or b"") > left and not self._silent
        return answer and answer[:left]


PIECES = [
    header(),
    header("jabber:component:accept"),
    header("urn:x"),
    f"{header()}<iq",
    features(PLAIN),
    features(SCRAM),
    features(TLS_OFFER),
    features(BINDS),
    features("<mechanisms/>"),
    features(PLAIN.replace(SASL, "urn:x")),
    f"<success xmlns='{SASL}'/>",
    f"<success xmlns='{SASL}'>dj0=</success>",
    f"<success xmlns='{SASL}'>é</success>",
    "<success/>",
    f"<challenge xmlns='{SASL}'>cj0=</challenge>",
    f"<challenge xmlns='{SASL}'>=</challenge>",
    f"<failure xmlns='{SASL}'/>",
    f"<failure xmlns='{SASL}'><not-authorized/><text>{'no' * 1000}</text></failure>",
    TLS_PROCEED,
    BOUND,
    BOUND.replace("result", "error"),
    "<iq id='bind' type='result'/>",
    f"<iq id='{'x' * 1000}' from='x' type='get'><ping xmlns='urn:xmpp:ping'/></iq>",
    f"<message from='jobs@x'>{JSON}{{}}</json></message>",
    f'<message from="jobs@x">{JSON}{{"type":"changed","id":"1"}}</json></message>',
    f"<message from='jobs@x'>{JSON}{'[' * 10_000}</json></message>",
    "<message from='jobs@x' type='error'/>",
    "<message from='jobs@x' type='error'><error><item-not-found/></error></message>",
    f"<presence from='{'x' * 100_000}' {'a' * 1000}='1'/>",
    "<iq>" + "<a>" * 2000,
    "<!DOCTYPE x [<!ENTITY a 'a'><!ENTITY b '&a;&a;&a;'>]>",
    "<?xml version='1.0' encoding='utf-16'?>",
    "<?xml version='1.0' encoding='klingon'?>",
    "<?xml-stylesheet href='x'?>",
    "<!-- -->",
    "<![CDATA[<message/>]]>",
    "&amp;&lt;&#0;",
    " ",
    "<stream:error/>",
    "<stream:error><see-other-host xmlns='urn:ietf:params:xml:ns:xmpp-streams'>y</see-other-host>"
    "</stream:error>",
    "</stream:stream>",
    "HTTP/1.1 400 Bad Request\r\n\r\n",
]
WORDS = st.sampled_from([piece.encode() for piece in PIECES])
RUBBISH = st.lists(st.one_of(WORDS, WORDS, st.binary(max_size=40)), max_size=4).map(b"".join)


class Babbling(Server):
    """One that answers the first words as it should, and then with what it is given."""

    def __init__(self, sane: int, rubbish: list[bytes], *, encrypted: bool, silent: bool) -> None:
        super().__init__(encrypted=encrypted)
        self._sane = sane
        self._rubbish = list(rubbish)
        self._end = b"" if silent else None

    def answer(self, said: str) -> bytes | None:
        self._sane -= 1
        if self._sane >= 0:
            return super().answer(said)
        return self._rubbish.pop(0) if self._rubbish else self._end
