"""Names: hosts, domains of XMPP servers, accounts, mail addresses, and what people call things."""

from __future__ import annotations

import ipaddress
import re
from fnmatch import fnmatchcase

#: RFC 1035, 2.3.4: a name has 255 octets, a label 63.
MOST_CHARACTERS = 255
#: RFC 7622, 3.2 takes letters of all scripts; servers take `_` as well, and so do Docker's names.
_LABEL = r"\w(?:[\w-]{0,61}\w)?"
_DOMAIN = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")


def problem_with_domain(domain: str) -> str | None:
    """Says what is wrong with a domain; None if all is well.

    Domains that differ only in case are the same, so a domain is written in small letters.
    """
    small = domain == domain.lower()
    if small and len(domain) <= MOST_CHARACTERS and _DOMAIN.fullmatch(domain):
        return None
    return f"{domain[:80]!r} is not a domain"


def is_called(account: str, name: str) -> bool:
    """Whether a name means that user: it is the account, or what is before its `@`."""
    return name in (account, account.partition("@")[0])


def fits(glob: str, worker: str) -> bool:
    """Whether a worker's address, with or without its session, or its name fits a glob."""
    account = worker.partition("/")[0]
    names = (worker, account, account.partition("@")[0])
    return any(fnmatchcase(name, glob) for name in names)


#: The rule for the names that people give things, in words.
NAME_RULE = "a name has up to 63 letters, digits, and inside also . _ -"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


def is_name(text: str) -> bool:
    """Whether a text may be such a name."""
    return _NAME.fullmatch(text) is not None


#: RFC 5321, 4.5.3.1.3: a path has 256 characters, its angle brackets among them.
MOST_MAIL_CHARACTERS = 254

_MAIL_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#: The addresses that HTML takes in forms: no quotes, comments, spaces, or letters beyond ASCII.
#: https://html.spec.whatwg.org/multipage/input.html#valid-e-mail-address
_ADDRESS = re.compile(
    rf"[A-Za-z0-9.!#$%&'*+/=?^_`{{|}}~-]{{1,64}}@{_MAIL_LABEL}(?:\.{_MAIL_LABEL})*"
)


def problem_with_mail(address: str) -> str | None:
    """Says what is wrong with an address for mail; None if all is well."""
    if len(address) <= MOST_MAIL_CHARACTERS and _ADDRESS.fullmatch(address):
        return None
    return f"{address[:80]!r} is no plain address for mail, such as ada@example.org"


def is_loopback(host: str) -> bool:
    """Whether what is sent to a host stays on this machine, by the host's name alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
