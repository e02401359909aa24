"""Objects in buckets, as s3fs reads them: with what the task's environment says, and nothing else.

Without a key there, they are asked for anonymously. Files and roles of the worker's user and of its
machine, in which boto looks for keys, count for nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import s3fs
from aiobotocore.session import AioSession
from botocore.exceptions import BotoCoreError, ClientError, ConnectionError, HTTPClientError

from kestrelctl.core.model.names import is_loopback
from kestrelctl.errors import KestrelError, NotAllowed, NotFound, Unreachable
from kestrelctl.worker.addresses.addressed_files import (
    MOST_FILES,
    PIECE_BYTES,
    AddressedFile,
    too_many,
)

#: Keeps boto from reading elsewhere: (name in its files, variable, default, conversion).
_NOTHING_ELSE = {
    "profile": (None, None, None, None),
    "config_file": (None, None, os.devnull, None),
    "credentials_file": (None, None, os.devnull, None),
}
_LONGEST_NAME_BYTES = 255


class BucketFiles:
    """The objects at one `s3:` address: one, or all whose keys begin with it and a slash.

    Args:
        address: as `core.model.files.addresses` takes them.
        variables: the environment of the task.
        known: the job says the hash of what is there.
        silence_seconds: the longest time in which nothing may come.
    """

    def __init__(
        self, address: str, variables: Mapping[str, str], *, known: bool, silence_seconds: float
    ) -> None:
        self._shown = address
        self._tree = address.endswith("/")
        self._path = address.removeprefix("s3://").rstrip("/")
        self._variables = variables
        self._known = known
        self._silence_seconds = silence_seconds
        self._files: Any = None

    async def identity(self) -> str:
        """Version, tag, size and time of the object, or of all of them, and who keeps them."""
        found = hashlib.sha256(self._endpoint().encode())
        for _, info in await self._list():
            marks = [info.get(name) for name in ("VersionId", "ETag", "LastModified", "size")]
            found.update(f"{info['name']!r} {marks}\n".encode())
        return found.hexdigest()

    async def each(self) -> AsyncIterator[AddressedFile]:
        """The object, or all of them."""
        for names, info in await self._list():
            yield AddressedFile(names, False, self._pieces(info))

    async def close(self) -> None:
        """Ends the connections."""
        if self._files is not None and self._files._s3 is not None:
            await self._files._s3.close()

    async def _list(self) -> list[tuple[tuple[bytes, ...], Mapping[str, Any]]]:
        with self._telling():
            files = self._ready()
            if not self._tree:
                info = await files._info(self._path, refresh=True)
                if info["type"] != "file":
                    raise FileNotFoundError
                return [((), info)]
            infos = await files._find(self._path, detail=True, refresh=True)
            if not infos:
                raise FileNotFoundError
            if len(infos) > MOST_FILES:
                raise too_many()
            found = sorted(
                (self._names(name), info)
                for name, info in infos.items()
                if info["type"] == "file" and name != f"{self._path}/"
            )
            self._check_directories({names for names, _ in found})
            return found

    def _check_directories(self, files: set[tuple[bytes, ...]]) -> None:
        """Refuses keys of which one is a directory of another: no file system can hold both."""
        for names in files:
            for depth in range(1, len(names)):
                if names[:depth] in files:
                    key = b"/".join(names[:depth]).decode()
                    raise KestrelError(
                        f"a key at {self._shown} is both a file and a directory",
                        cause=repr(key[:200]),
                    )

    def _names(self, key: str) -> tuple[bytes, ...]:
        """Returns the path of an object below the directory."""
        names = tuple(key.removeprefix(f"{self._path}/").encode().split(b"/"))
        if any(
            name in (b"", b".", b"..") or b"\0" in name or len(name) > _LONGEST_NAME_BYTES
            for name in names
        ):
            raise KestrelError(f"a key at {self._shown} is no path", cause=repr(key[:200]))
        return names

    async def _pieces(self, info: Mapping[str, Any]) -> AsyncIterator[bytes]:
        came_bytes = 0
        with self._telling():
            file = await self._ready().open_async(info["name"])
            while piece := await file.read(PIECE_BYTES):
                came_bytes += len(piece)
                yield piece
        if came_bytes != info["size"]:
            raise Unreachable(f"{self._shown} was cut off")

    def _endpoint(self) -> str:
        names = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
        return next(filter(None, map(self._variables.get, names)), "")

    def _ready(self) -> Any:
        if self._files is not None:
            return self._files
        endpoint, said = self._endpoint(), self._variables.get
        if endpoint and not endpoint.startswith("https://"):
            local = endpoint.startswith("http://") and is_loopback(
                urlsplit(endpoint).hostname or ""
            )
            if not (local or (self._known and endpoint.startswith("http://"))):
                raise NotAllowed("AWS_ENDPOINT_URL is read by https, or on the machine itself")
        key, secret = said("AWS_ACCESS_KEY_ID"), said("AWS_SECRET_ACCESS_KEY")
        region = said("AWS_REGION") or said("AWS_DEFAULT_REGION")
        self._files = s3fs.S3FileSystem(
            asynchronous=True,
            skip_instance_cache=True,
            use_listings_cache=False,
            anon=not (key and secret),
            key=key,
            secret=secret,
            token=said("AWS_SESSION_TOKEN"),
            endpoint_url=endpoint or None,
            client_kwargs={"region_name": region} if region else {},
            config_kwargs={
                "ignore_configured_endpoint_urls": True,
                "connect_timeout": self._silence_seconds,
                "read_timeout": self._silence_seconds,
                "retries": {"total_max_attempts": 1},
            },
            session=AioSession(session_vars=_NOTHING_ELSE),
        )
        self._files.retries = 1  # here and in boto: whoever asks for files tries again himself
        return self._files

    @contextlib.contextmanager
    def _telling(self) -> Iterator[None]:
        """Turns errors into ours."""
        try:
            yield
        except FileNotFoundError:
            raise NotFound(f"{self._shown} is not there") from None
        except PermissionError as error:
            raise NotAllowed(
                f"{self._shown} is not for everybody",
                cause=str(error),
                hint="--env AWS_ACCESS_KEY_ID=…, AWS_SECRET_ACCESS_KEY=…",
            ) from None
        except (ConnectionError, HTTPClientError, TimeoutError) as error:
            raise Unreachable(f"{self._shown} cannot be reached", cause=str(error)) from None
        except (OSError, BotoCoreError, ClientError) as error:
            raise KestrelError(f"{self._shown} cannot be read", cause=str(error)) from None
