#!/bin/sh
# slixmpp 1.17.0 (PyPI), with a server of a few lines on loopback.
#
# One would guess: when the server answers the request to bind a resource with an error (RFC 6120,
# 7.6.2), the client tells of a failure, as it does when the server refuses a password.
# Seen: it announces `session_bind` and `session_start`, with an empty address, and marks itself as
# bound. No event tells of a failure, and the connection stays open.
# So: look at stanzas of type `error` that come before `session_start`, and close the stream.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install slixmpp==1.17.0
timeout 60 "$folder/venv/bin/python" - 2>"$folder/said" <<'PYTHON' | tee "$folder/seen"
import asyncio
import re

import slixmpp

STREAM = (
    "<stream:stream xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams'"
    " version='1.0' from='localhost' id='1'><stream:features>%s</stream:features>"
)
SASL = "urn:ietf:params:xml:ns:xmpp-sasl"
OFFERS = (
    f"<mechanisms xmlns='{SASL}'><mechanism>PLAIN</mechanism></mechanisms>",
    "<bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/>",
)
REFUSAL = (
    "<iq type='error' id='%s'><error type='cancel'>"
    "<not-allowed xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error></iq>"
)


async def serve(reader, writer):
    async def say(text):
        writer.write(text.encode())
        await writer.drain()

    for offer in OFFERS:
        await reader.readuntil(b"<stream:stream ")
        await reader.readuntil(b">")
        await say(STREAM % offer)
        if "mechanisms" in offer:
            await reader.readuntil(b"</auth>")
            await say(f"<success xmlns='{SASL}'/>")
    asked = await reader.readuntil(b"</iq>")
    await say(REFUSAL % re.search(rb'id="([^"]+)"', asked)[1].decode())


async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 15223)
    client = slixmpp.ClientXMPP("ada@localhost", "secret")
    client.enable_starttls = client.enable_direct_tls = False
    client.enable_plaintext = True
    client.plugin["feature_mechanisms"].unencrypted_plain = True
    events = ("session_bind", "session_start", "failed_auth", "stream_error", "disconnected")
    for name in events:
        client.add_event_handler(name, lambda told, name=name: print(f"{name} {told!s:.40}"))
    client.connect("127.0.0.1", 15223)
    await asyncio.sleep(5)
    print("connected", client.is_connected(), "bound", client.bound)
    server.close()


asyncio.run(main())
PYTHON
diff - "$folder/seen" <<'SEEN' || { cat "$folder/said"; exit 1; }
session_bind 
session_start {}
connected True bound True
SEEN
