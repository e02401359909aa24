"""From message to bytes and back, with a reason for whatever is refused."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from kestrelctl.protocol.answers import AnyAnswer
from kestrelctl.protocol.joining import Join, ToJoiner
from kestrelctl.protocol.requests import AnyRequest
from kestrelctl.protocol.work import FromWorker, Message, ToWorker

#: The XEP-0335 container that carries a message in a stanza.
JSON_NAMESPACE = "urn:xmpp:json:0"

#: Above this a payload is refused unread. Stanza limits of the server are set above it.
MAX_PAYLOAD_BYTES = 512 * 1024

T = TypeVar("T")


class BadMessage(ValueError):
    """A payload is no message of the protocol; the text says why."""


class Codec(Generic[T]):
    """Decodes the messages of one direction."""

    def __init__(self, union: object) -> None:
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(union)

    def decode(self, payload: str | bytes) -> T:
        """The message in a payload.

        Raises:
            BadMessage: it is too large, no JSON, of an unknown type, or has a field of a wrong
            type.
        """
        if len(payload) > MAX_PAYLOAD_BYTES:
            raise BadMessage(f"payload of {len(payload)} bytes; the limit is {MAX_PAYLOAD_BYTES}")
        try:
            return self._decoder.decode(payload)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise BadMessage(str(error)) from None


class _Id(msgspec.Struct):
    id: str = ""


def id_in(payload: str | bytes) -> str:
    """The `id` of a payload that is otherwise no message, so that its refusal can name it."""
    try:
        return msgspec.json.decode(payload, type=_Id).id
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return ""


_encoder = msgspec.json.Encoder()


def encode(message: Message) -> str:
    """The JSON text of a message."""
    return _encoder.encode(message).decode()


from_worker: Codec[FromWorker] = Codec(FromWorker)
to_worker: Codec[ToWorker] = Codec(ToWorker)
from_joiner: Codec[Join] = Codec(Join)
to_joiner: Codec[ToJoiner] = Codec(ToJoiner)
requests: Codec[AnyRequest] = Codec(AnyRequest)
answers: Codec[AnyAnswer] = Codec(AnyAnswer)
