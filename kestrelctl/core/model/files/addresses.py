"""Addresses at which workers themselves read the inputs of tasks.

They are URLs of a few protocols. A worker advertises a tag of its own for each that it can read.
This module decides what an address may say; the worker checks where it leads.
"""

from __future__ import annotations

import re
from urllib.parse import SplitResult, unquote_to_bytes, urlsplit

from kestrelctl.core.model.names import is_loopback

#: The tags of workers that read addresses begin so; a protocol follows. Nobody else can give them.
TAG_PREFIX = "addresses-"
FILE, HTTPS, S3 = "file", "https", "s3"
#: Protocol -> its name in the tag: a worker that reads one of http and https reads the other.
_READ_AS = {"file": FILE, "http": HTTPS, "https": HTTPS, "s3": S3}
MOST_CHARACTERS = 2048

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?=[/:])|file:")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


def is_address(word: str) -> bool:
    """Whether a word is meant as an address, be it a good one or not."""
    return _SCHEME.match(word) is not None


def read_as(address: str) -> str:
    """The protocol by which workers read an address that is fine, as their tags name it."""
    return _READ_AS[address.partition(":")[0]]


def shown(address: str) -> str:
    """An address for people: without its query, which may hold a signature."""
    path, mark, query = address.partition("?")
    return f"{path}?…" if mark and query else address


def path_of(address: str) -> bytes:
    """The absolute path of a `file:` address, with its percent signs decoded."""
    return unquote_to_bytes(urlsplit(address).path)


def name_at(address: str) -> str:
    """The last name of an address, as a task may find it; bytes that are not UTF-8 as `\\udcXX`."""
    last = urlsplit(address).path.rstrip("/").rpartition("/")[2]
    if address.startswith("s3:"):
        return last
    return unquote_to_bytes(last).decode(errors="surrogateescape")


def problem_with_address(address: str, *, known: bool = False) -> str | None:
    """Says what is wrong with the address of an input, in words for its user; None if all is well.

    Args:
        known: whether the job says the hash of what is there.
    """
    mark = _SCHEME.match(address)
    protocol = mark.group(1) or "file" if mark else ""
    if len(address) > MOST_CHARACTERS:
        return f"an address has up to {MOST_CHARACTERS:,} characters"
    if any(each <= " " or each == "\x7f" for each in address):
        return "an address holds no spaces and no control characters: %20 stands for a space"
    if not address.isascii():
        return "an address is ASCII: percent signs stand for other characters, as in %C3%A9"
    if "::" in re.sub(r"^[a-z0-9]+://\[[0-9A-Fa-f:.]*\]", "", address):
        return "chained addresses (::) are not taken"
    if protocol not in _READ_AS:
        return f"{protocol or address[:40]!r} is none of the protocols file, https, http and s3"
    try:
        parts = urlsplit(address)
        user, _ = "@" in parts.netloc, parts.port
    except ValueError as error:
        return f"it is no address: {error}"
    if user:
        return "an address holds no user and no password: others see it"
    if "#" in address or "\\" in address:
        return "an address holds no \\ and ends before a #"
    names = [unquote_to_bytes(name) for name in parts.path.split("/")]
    if b".." in names or b"." in names or any(b"\0" in name for name in names):
        return "an address says no . and no .., and no NUL"
    if protocol == "file":
        return _problem_with_path(address, parts, names)
    if protocol == "s3":
        return _problem_with_key(parts)
    return _problem_with_web(parts, protocol, known)


def _problem_with_path(address: str, parts: SplitResult, names: list[bytes]) -> str | None:
    if not address.startswith("file:///"):
        return "an address of a file is absolute and of the worker's machine: file:///shared/data"
    if parts.query or address.endswith("?"):
        return "in an address of a file, %3F stands for a question mark"
    if any(b"/" in name for name in names) or not any(names):
        return "an address of a file names one"
    return None


def _problem_with_key(parts: SplitResult) -> str | None:
    if not _BUCKET.fullmatch(parts.netloc):
        return "an s3 address is s3://BUCKET/KEY"
    if parts.query or not parts.path.strip("/") or "//" in parts.path:
        return "an s3 address names a key, without a question mark and without empty parts"
    return None


def _problem_with_web(parts: SplitResult, protocol: str, known: bool) -> str | None:
    host = parts.hostname or ""
    if not host:
        return "an address has a host"
    if parts.path.endswith("/") or not parts.path:
        return "a directory cannot be read by https: nothing says what is in it"
    if protocol == "http" and not (known or is_loopback(host)):
        return "http: is taken with the hash of what comes (#sha256=…), or of the machine itself"
    return None
