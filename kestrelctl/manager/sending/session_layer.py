"""What the layers on the manager's connection leave as it is."""

from __future__ import annotations

from kestrelctl.clock_and_session import Session


class SessionLayer:
    """The part of a `ports.Session` that a layer on another one hands through.

    Args:
        session: the one below.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def online(self) -> bool:
        return self._session.online

    @property
    def refused(self) -> str | None:
        return self._session.refused

    @property
    def link(self) -> str:
        return self._session.link

    def start(self) -> None:
        self._session.start()

    def send_presence(
        self,
        to: str,
        kind: str | None = None,
        sender: str | None = None,
        show: str = "",
        status: str = "",
    ) -> None:
        self._session.send_presence(to, kind, sender, show, status)

    def certificate(self) -> tuple[str, float] | None:
        return self._session.certificate()
