"""Turns messages into bytes and back, with a reason for whatever is refused."""

from __future__ import annotations

from functools import cached_property
from typing import Generic, TypeVar

import msgspec

from kestrelctl.protocol.message import Message
from kestrelctl.protocol.request import Reply, RequestId

#: The XEP-0335 container that carries a message in a stanza.
JSON_NAMESPACE = "urn:xmpp:json:0"

#: A larger payload, as `text_bytes` counts, is refused unread and never sent. Stanza limits of the
#: server are set above it: it ends the whole connection at a stanza that is larger.
MAX_PAYLOAD_BYTES = 512 * 1024
#: The most that one item of a job may take in a message.
MAX_ITEM_BYTES = 200_000
#: A character becomes so many bytes in a stanza at the most: `\uffff`.
_MOST_BYTES = 6
#: The most that a refusal tells of its reason: some of it may be quoted from the payload.
_REASON_CHARACTERS = 300

T = TypeVar("T", covariant=True)


class BadMessage(ValueError):
    """A payload is no message of the protocol; the text says why, in one or two lines."""


def text_bytes(text: str) -> int:
    """The size of a text inside an XML stanza: UTF-8, with what XML cannot carry escaped."""
    escaped = text.count("<") + text.count(">") + text.count("\ufffe") + text.count("\uffff")
    return len(text.encode()) + 4 * text.count("&") + 3 * escaped


def item_bytes(item: str) -> int:
    """The size of an item in a message: between quotes, with escapes, and a comma."""
    return text_bytes(msgspec.json.encode(item).decode()) + 1


def fits(text: str) -> bool:
    """Whether a payload is small enough to be sent."""
    return (
        len(text) * _MOST_BYTES <= MAX_PAYLOAD_BYTES  # most are: no need to look at them
        or text_bytes(text) <= MAX_PAYLOAD_BYTES
    )


class Codec(Generic[T]):
    """Decodes the messages of one direction."""

    def __init__(self, union: object) -> None:
        self._union = union

    @cached_property
    def _decoder(self) -> msgspec.json.Decoder[T]:
        """The decoder, made when needed: a command needs one only, and each takes milliseconds."""
        return msgspec.json.Decoder(self._union)

    def _decoder_of(self, payload: str | bytes) -> msgspec.json.Decoder[T]:
        """The decoder for a payload.

        Raises:
            BadMessage: there is none.
        """
        return self._decoder

    def decode(self, payload: str | bytes) -> T:
        """The message in a payload.

        Raises:
            BadMessage: it is too large, no JSON, of an unknown type, or has a field of a wrong
            type.
        """
        try:
            text = payload if isinstance(payload, str) else payload.decode()
            if not fits(text):
                size = text_bytes(text)
                raise BadMessage(f"payload of {size} bytes; the limit is {MAX_PAYLOAD_BYTES}")
            return self._decoder_of(payload).decode(payload)
        except (msgspec.DecodeError, UnicodeError) as error:
            raise BadMessage(str(error)[:_REASON_CHARACTERS]) from None
        except RecursionError:
            raise BadMessage("it nests too deeply") from None


class _Type(msgspec.Struct):
    type: str = ""


class CodecOfExpected(Codec[Reply]):
    """Decodes the types of answers that somebody has come to expect, and refuses all others.

    Who asks for little need not load the rest; and to make the decoder of one type takes a fifth of
    the time that it takes for all types of answers together.
    """

    def __init__(self, *types: type[Reply]) -> None:
        super().__init__(Reply)
        self._types: dict[str, type[Reply]] = {}
        self._decoders: dict[str, msgspec.json.Decoder[Reply]] = {}
        self.expect(*types)

    def expect(self, *types: type[Reply]) -> None:
        """Takes these types of answers, too, from now on."""
        self._types.update((str(each.__struct_config__.tag), each) for each in types)

    def _decoder_of(self, payload: str | bytes) -> msgspec.json.Decoder[Reply]:
        name = msgspec.json.decode(payload, type=_Type).type
        found = self._decoders.get(name)
        if found is None:
            if name not in self._types:
                raise BadMessage(f"nobody asked for an answer of type {name[:80]!r}")
            found = self._decoders[name] = msgspec.json.Decoder(self._types[name])
        return found


class _Id(msgspec.Struct):
    id: RequestId = ""


def id_in(payload: str | bytes) -> str:
    """The `id` of a payload that is otherwise no message, so that its refusal can name it."""
    try:
        return msgspec.json.decode(payload, type=_Id).id
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return ""


_encoder = msgspec.json.Encoder()


def encode(message: Message) -> str:
    """The JSON text of a message."""
    text = _encoder.encode(message)
    if message.silent_end:
        text = text.replace(message.silent_end, b"]")
    return text.decode()


#: Characters that a chat message cannot carry, as escapes of JSON.
_NOT_IN_CHAT = {0x7F: "\\u007f", 0xFFFE: "\\ufffe", 0xFFFF: "\\uffff"}


def encode_for_chat(message: Message) -> str:
    """The JSON text of a message that travels as the body of a chat message."""
    return encode(message).translate(_NOT_IN_CHAT)
