"""Asks for places in the pool's file share, over an existing session (XEP-0363)."""

from __future__ import annotations

from kestrelctl.errors import KestrelError, NotAllowed, NotFound, OverQuota
from kestrelctl.protocol.upload_slots import (
    PieceTooLarge,
    Slot,
    largest_in,
    share_of,
    slot_in,
    slot_request,
)
from kestrelctl.xmpp.xmpp_session import IqRefused, XmppSession

#: Conditions of a share that cannot write; the second is Prosody's for a reason without one.
_CANNOT = ("internal-server-error", "undefined-condition")
#: Conditions of a server that has nothing at that address.
_NOBODY = ("item-not-found", "remote-server-not-found", "service-unavailable")


async def request_slot(
    session: XmppSession, pool: str, size_bytes: int, filename: str, sender: str | None = None
) -> Slot:
    """Asks the file share of a pool for a place.

    Args:
        sender: who asks, where the session has several addresses.

    Raises:
        NotAllowed: this account may not upload.
        OverQuota: it has uploaded as much as it may for now, or the share is full.
        PieceTooLarge: the share never takes so much.
        NotFound: the pool has no file share.
        Unreachable, TimedOut: the server is away.
    """
    share = share_of(pool)
    try:
        asked = slot_request(size_bytes, filename)
        answer = await session.ask_iq(asked, share, sender, kind="get")
    except IqRefused as error:
        raise _in_words(error, share) from None
    slot = slot_in(answer)
    if slot is None:
        raise KestrelError("the pool's file share answered what cannot be read")
    return slot


def _in_words(error: IqRefused, share: str) -> KestrelError:
    largest = largest_in(error.answer) if error.answer is not None else None
    if largest is not None:
        return PieceTooLarge(largest)
    if error.condition == "forbidden":
        return NotAllowed(
            "this account may not store files in the pool",
            cause=f"{share} refused it",
            hint="only accounts of the pool's own users and workers may",
        )
    if error.condition == "resource-constraint":
        return OverQuota(
            "the pool's file share takes no more now",
            cause=error.text or "a quota is reached",
            hint="what was sent counts for its owner until it is deleted; a place to which nothing"
            " was sent is given back within minutes",
        )
    if error.condition in _CANNOT:
        return KestrelError(
            "the pool's file share can store nothing now",
            cause=error.text or "its server cannot note what it takes",
            hint="its operator looks whether there is room on the server's disk",
        )
    if error.condition in _NOBODY:
        return NotFound(
            "the pool has no file share",
            cause=f"the server answered for {share}: {error.condition}",
            hint="an operator adds it: run site.yml anew, or restart the local pool",
        )
    return KestrelError(
        "the pool's file share gave no place to upload to",
        cause=f"{share} answered: {error.text or error.condition}",
    )
