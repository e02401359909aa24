"""Log in at an XMPP server, with the standard library alone: login.py HOST CA_FILE JID.

The password comes from standard input. Prints what the server offered before encryption, and
whether the login succeeded. Nothing is said unencrypted but the wish to encrypt.
"""

from __future__ import annotations

import base64
import json
import socket
import ssl
import sys


def converse(connection: socket.socket, words: str, until: tuple[str, ...]) -> str:
    connection.sendall(words.encode())
    answer = ""
    while not any(end in answer for end in until):
        received = connection.recv(4096)
        if not received:
            raise ConnectionError(f"the server hung up after: {answer}")
        answer += received.decode()
    return answer


def main() -> None:
    host, ca_file, jid = sys.argv[1:]
    user, _, domain = jid.partition("@")
    password = sys.stdin.readline().rstrip("\n")
    stream = (
        "<stream:stream xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams'"
        f" version='1.0' to='{domain}'>"
    )
    with socket.create_connection((host, 5222), timeout=10) as plain:
        offered = converse(plain, stream, ("</stream:features>",))
        converse(plain, "<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>", ("<proceed",))
        context = ssl.create_default_context(cafile=ca_file)
        with context.wrap_socket(plain, server_hostname=domain) as encrypted:
            converse(encrypted, stream, ("</stream:features>",))
            plain_login = base64.b64encode(f"\0{user}\0{password}".encode()).decode()
            auth = "<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='PLAIN'>"
            answer = converse(encrypted, f"{auth}{plain_login}</auth>", ("<success", "<failure"))
            outcome = {
                "must_encrypt": "<required" in offered and "<mechanism>" not in offered,
                "protocol": encrypted.version(),
                "logged_in": "<success" in answer,
            }
    print(json.dumps(outcome))


if __name__ == "__main__":
    main()
