"""The output of guests: their home asks for it, and a worker of the lender has it."""

from __future__ import annotations

import asyncio

from kestrelctl.errors import KestrelError
from kestrelctl.flock.service.loan_addresses import loan_of
from kestrelctl.manager.outputs import Outputs
from kestrelctl.manager.service import Service
from kestrelctl.protocol import codec, directions, workers

#: The time that a worker may take to send a piece.
OUTPUT_SECONDS = 10.0
#: The most ended guests of which it is known which worker ran them.
MOST_ENDED = 10_000
#: The beginning of such a question.
_FETCH = '{"type":"fetch_output"'


class GuestOutputs:
    """Answers borrowers with the output of guests, from the workers that have it.

    Args:
        outputs: the manager's, through which workers are asked.
    """

    def __init__(self, service: Service, outputs: Outputs) -> None:
        self._service = service
        self._outputs = outputs
        #: (borrower, attempt there) -> (worker here, attempt here)
        self._places: dict[tuple[str, int], tuple[str, int]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def note(self, borrower: str, number: int, worker: str, own_number: int) -> None:
        """Notes that a guest's attempt has run on a worker."""
        self._places[borrower, number] = (worker, own_number)
        while len(self._places) > MOST_ENDED:
            del self._places[next(iter(self._places))]

    @staticmethod
    def question(payload: str) -> workers.FetchOutput | None:
        """The question in a message of a borrower's pool; None if it is another message."""
        if not payload.startswith(_FETCH):
            return None
        try:
            message = directions.to_loan.decode(payload)
        except codec.BadMessage:
            return None
        return message if isinstance(message, workers.FetchOutput) else None

    def answer(
        self, borrower: str, loan: str, asked: workers.FetchOutput, place: tuple[str, int] | None
    ) -> None:
        """Answers such a question, as the worker that the loan is.

        Args:
            place: where the guest runs now; None if it does not.
        """
        place = place or self._places.get((borrower, asked.number))
        task = asyncio.get_running_loop().create_task(self._answer(borrower, loan, asked, place))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(
        self, borrower: str, loan: str, asked: workers.FetchOutput, place: tuple[str, int] | None
    ) -> None:
        found = workers.Output(request=asked.request, offset=asked.offset)
        if place is not None:
            worker, number = place
            message, future = self._outputs.fetch(worker, number, asked.stream, asked.offset)
            self._service.send_to_worker(worker, message)
            try:
                async with asyncio.timeout(OUTPUT_SECONDS):
                    piece = await future
                found = workers.Output(
                    request=asked.request,
                    offset=asked.offset,
                    data=piece.data[: asked.limit],
                    size_bytes=piece.size_bytes,
                )
            except (TimeoutError, KestrelError):
                pass
        sender = loan_of(self._service.domain, loan)
        self._service.session.send(codec.encode(found), f"pool@{borrower}", sender)
