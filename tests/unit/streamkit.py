"""What a server says on a stream."""

from __future__ import annotations

from kestrelctl.protocol.codec import JSON_NAMESPACE
from kestrelctl.xmpp.stream import CLIENT

STREAMS = "http://etherx.jabber.org/streams"
SASL = "urn:ietf:params:xml:ns:xmpp-sasl"
BIND = "urn:ietf:params:xml:ns:xmpp-bind"
TLS = "urn:ietf:params:xml:ns:xmpp-tls"


def header(namespace: str = CLIENT) -> str:
    return (
        f"<?xml version='1.0'?><stream:stream xmlns='{namespace}' xmlns:stream='{STREAMS}' id='7'>"
    )


def features(offers: str) -> str:
    return f"<stream:features>{offers}</stream:features>"


PLAIN = f"<mechanisms xmlns='{SASL}'><mechanism>PLAIN</mechanism></mechanisms>"
BINDS = f"<bind xmlns='{BIND}'/>"
BOUND = f"<iq type='result' id='bind'><bind xmlns='{BIND}'><jid>ada@x/desk</jid></bind></iq>"
JSON = f"<json xmlns='{JSON_NAMESPACE}'>"
TLS_OFFER = f"<starttls xmlns='{TLS}'/>"
TLS_PROCEED = f"<proceed xmlns='{TLS}'/>"
