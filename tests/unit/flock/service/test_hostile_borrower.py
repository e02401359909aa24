"""What a borrower may send that means no good, and what comes of it in the lender's pool."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from neighbourskit import Neighbourhood, PoolOfFlock, on_its_own_clock, pass_by

from kestrelctl.core.jobs.job import Job
from kestrelctl.core.model.files.inputs import Input
from kestrelctl.core.model.files.stored_file import Piece, StoredFile
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.stage import Stage
from kestrelctl.core.model.result import Outcome, Result
from kestrelctl.core.model.worker.ad import AssetChange
from kestrelctl.flock.service.loan_addresses import loan_of
from kestrelctl.protocol import codec, directions, workers
from kestrelctl.protocol.commands import ReadProperties, RunCommand
from kestrelctl.protocol.workers import StopEnvironment

#: No attempt of the borrower's own has such a number.
FIRST = 1_000
ADA = "ada@users.a.test"
STORED = StoredFile(
    sha256="a" * 64,
    size_bytes=1,
    pieces=(Piece(sha256="a" * 64, size_bytes=1, url="https://a.test/1"),),
)


class Borrower:
    """A pool that has a loan of one processor, and says there what it likes.

    Attributes:
        lender: the pool that lends.
        address: of the loan.
    """

    def __init__(self, lender: PoolOfFlock, home: PoolOfFlock, address: str) -> None:
        self.lender = lender
        self.address = address
        self._home = home
        self._next = FIRST

    @classmethod
    async def in_(cls, directory: Path) -> Borrower:
        """One whose loan is open, and idle."""
        around = Neighbourhood(directory)
        lender = around.open("b.test", cpus=4)
        home = around.open("a.test", through="b.test", cpus=0)
        await pass_by(5)
        home.submit()
        await pass_by(1)
        [(_, loan)] = lender.flock.keeper.loans
        lender.hands.end()
        await pass_by(1)
        return cls(lender, home, loan_of("b.test", loan))

    def says(self, message: workers.Message) -> None:
        """Sends the loan something."""
        self.says_text(codec.encode(message))

    def says_text(self, text: str) -> None:
        self._home._send(text, self.address, "pool@a.test")

    def hands_over(
        self, template: dict[str, Any], claim: dict[str, int] | None = None, **run: Any
    ) -> int:
        """Hands the loan an attempt of this template; returns its number."""
        number = self._next
        self._next += 1
        fields = {"job_id": number, "argv": ["task"], "owner": ADA} | template
        names = Program.__struct_fields__
        program = {name: fields.pop(name) for name in names if name in fields}
        message = {
            "type": "run",
            "spans": [[number, fields["job_id"], 0, 1, 0, 7]],
            "claims": [claim or {"cpus": 1000}],
            "jobs": [msgspec.to_builtins(fields | {"program": program})],
        }
        self.says_text(json.dumps(message | run, separators=(",", ":")))
        return number

    def results(self) -> dict[int, Result]:
        """What the loan has reported, by the number of the attempt."""
        found: dict[int, Result] = {}
        for sender, to, text in self.lender.around.said:
            if (sender, to) == (self.address, "pool@a.test") and text.startswith(
                '{"type":"report"'
            ):
                report = directions.from_worker.decode(text)
                assert isinstance(report, workers.Report)
                found.update((result.number, result) for result in report.results)
        return found

    async def end_of(self, number: int) -> Result:
        """How an attempt ended that the lender has refused."""
        await pass_by(1)
        return self.results()[number]

    async def goes_on(self) -> None:
        """Passes if the lender runs what is right."""
        number = self.hands_over({"argv": ["fine"]})
        await pass_by(1)
        [guest] = self.lender.guests()
        assert guest.spec.program.argv == ("fine",)
        self.lender.hands.end()
        assert (await self.end_of(number)).outcome == Outcome.DONE


def input_(name: str) -> dict[str, Any]:
    return {"inputs": [Input(name=name, stored=STORED)]}


LEADS_OUT = ["../../x", "/etc/cron.d/x", "..", ".", "", "a/b", "x\0", "x" * 300]


@pytest.mark.parametrize("name", LEADS_OUT, ids=repr)
@on_its_own_clock
async def test_an_input_whose_name_leads_out_is_refused(tmp_path: Path, name: str) -> None:
    borrower = await Borrower.in_(tmp_path)
    end = await borrower.end_of(borrower.hands_over(input_(name)))
    assert end.outcome == Outcome.FAILED
    assert end.reason.startswith("cannot-start: ")
    assert "input" in end.reason
    assert borrower.lender.guests() == []
    await borrower.goes_on()


REFUSED: dict[str, dict[str, Any]] = {
    "standard input": {"stdin": Input(name="../x", stored=STORED)},
    "files of a parent": {"parent_files": [{"name": "../x", "job_id": 3}]},
    "an output": {"outputs": ["../../*"]},
    "an absolute output": {"outputs": ["/etc/*"]},
    "a checkpoint": {"checkpoints": ["../*"]},
    "a directory": {"workdir": "relative"},
    "a stage": {"stages": [Stage(name="../x", argv=("true",))]},
    "an empty stage": {"stages": [Stage(name="in", argv=())]},
    "an unknown stop signal": {"stop_signal": "NOPE"},
    "a stop signal that stops": {"stop_signal": "STOP"},
    "an empty command": {"argv": []},
    "an empty word": {"argv": [""]},
    "files of jobs of the lender's": {"parent_files": [{"name": "x", "job_id": 0, "placed": True}]},
    "checkpoints in the lender's share": {"checkpoints": ["state"]},
    "a place in the lender's file system": {"outputs": ["*"], "output_to": "file:///shared/x"},
    "a recipe of its own": {"environment": {"of": "science", "kind": "venv", "recipe": "evil\n"}},
    "a channel to its owner": {"channel": True},
    "an endless grace": {"stop_grace_seconds": 1e300},
    "a long name": {"name": "n" * 300_000},
    "a variable without a name": {"env": {"": "x"}},
    "no owner": {"owner": ""},
    "an owner that is no account": {"owner": "b.test"},
    "an owner that leads out": {"owner": "../x@a.test"},
    "a long owner": {"owner": "a" * 300_000 + "@a.test"},
    "a long group": {"group": "g" * 300_000},
    "tasks that are not there": {"further": [[5, 1, 0]]},
}


@pytest.mark.parametrize("template", REFUSED.values(), ids=REFUSED)
@on_its_own_clock
async def test_what_no_user_could_submit_no_neighbour_hands_over(
    tmp_path: Path, template: dict[str, Any]
) -> None:
    borrower = await Borrower.in_(tmp_path)
    end = await borrower.end_of(borrower.hands_over(template))
    assert end.outcome == Outcome.FAILED
    assert end.reason.startswith("cannot-start: ")
    assert borrower.lender.guests() == []
    await borrower.goes_on()


@pytest.mark.parametrize("claim", [{"cpus": 0}, {"memory": 1000}, {"CPUS!": 1, "cpus": 1}], ids=str)
@on_its_own_clock
async def test_a_claim_that_no_user_could_ask_for_is_not_run(
    tmp_path: Path, claim: dict[str, int]
) -> None:
    borrower = await Borrower.in_(tmp_path)
    borrower.hands_over({}, claim)
    await pass_by(1)
    assert borrower.lender.guests() == []
    await borrower.goes_on()


@on_its_own_clock
async def test_a_task_index_that_its_job_has_not_is_refused(tmp_path: Path) -> None:
    borrower = await Borrower.in_(tmp_path)
    further = {"count": 2, "further": [[5, 1, 1]]}
    number = borrower.hands_over(further, spans=[[FIRST, FIRST, 9, 1, 0, 7]])
    assert (await borrower.end_of(number)).outcome == Outcome.FAILED
    await borrower.goes_on()


UNREADABLE: dict[str, dict[str, Any]] = {
    "a claim of nothing": {"claims": [{"gold": 0}]},
    "a claim below nothing": {"claims": [{"cpus": -4000}]},
    "an index below nothing": {"spans": [[FIRST, FIRST, -1, 1, 0, 7]]},
    "attempts without end": {"spans": [[FIRST, FIRST, 0, 10**12, 0, 7]]},
    "no attempt": {"spans": [[FIRST, FIRST, 0, 0, 0, 7]]},
    "a number that no store holds": {"spans": [[2**70, FIRST, 0, 1, 0, 7]]},
    "a job that no store holds": {
        "jobs": [{"job_id": 2**70, "program": {"argv": ["x"]}, "owner": ADA}]
    },
}


@pytest.mark.parametrize("run", UNREADABLE.values(), ids=UNREADABLE)
@on_its_own_clock
async def test_numbers_that_cannot_be_are_not_taken_in(tmp_path: Path, run: dict[str, Any]) -> None:
    borrower = await Borrower.in_(tmp_path)
    borrower.hands_over({}, **run)
    await pass_by(1)
    assert borrower.lender.guests() == []
    await borrower.goes_on()


@on_its_own_clock
async def test_a_loan_holds_so_many_attempts_and_no_more(tmp_path: Path) -> None:
    borrower = await Borrower.in_(tmp_path)
    many = 600_000
    borrower.hands_over({"count": many}, spans=[[FIRST, FIRST, 0, many, 0, 7]])
    await pass_by(1)
    assert borrower.lender.guests() == []
    await borrower.goes_on()


# -- whose a guest is ------------------------------------------------------------------------------


async def owner_of(borrower: Borrower, owner: str) -> Job:
    """The guest that a borrower says is of this user."""
    borrower.hands_over({"owner": owner, **input_("data")})
    await pass_by(1)
    [guest] = borrower.lender.guests()
    return guest


@pytest.mark.parametrize("owner", [ADA, "ada@a.test"])
@on_its_own_clock
async def test_a_guest_of_a_user_of_its_home_is_that_users(tmp_path: Path, owner: str) -> None:
    guest = await owner_of(await Borrower.in_(tmp_path), owner)
    assert guest.owner == owner
    assert guest.template(keep_logs=False).owner == owner


@pytest.mark.parametrize(
    ("owner", "here"),
    [
        ("carol@users.b.test", r"carol\40users.b.test@a.test"),
        ("dan@elsewhere.test", r"dan\40elsewhere.test@a.test"),
        ("eve@evil.a.test", r"eve\40evil.a.test@a.test"),
    ],
)
@on_its_own_clock
async def test_a_guest_is_never_one_of_the_lenders_users_nor_of_another_pool(
    tmp_path: Path, owner: str, here: str
) -> None:
    """Inputs are kept by this name, and jobs are listed by it."""
    guest = await owner_of(await Borrower.in_(tmp_path), owner)
    assert guest.owner == here
    assert guest.template(keep_logs=False).owner == here
    assert guest.spec.guest is not None
    assert guest.spec.guest.user == owner, "as its home says"


# -- what a loan takes -----------------------------------------------------------------------------


@on_its_own_clock
async def test_no_borrower_makes_its_loan_larger(tmp_path: Path) -> None:
    borrower = await Borrower.in_(tmp_path)
    borrower.says(workers.Resize(request="1", change=AssetChange(amounts={"cpus": 400.0})))
    for _ in range(4):
        borrower.hands_over({})
    await pass_by(1)
    assert len(borrower.lender.guests()) == 1


@pytest.mark.parametrize(
    "message",
    [
        workers.Resize(request="1", change=AssetChange(amounts={"cpus": 400.0})),
        workers.TakeCheckpoints(numbers=[1], stop=[1]),
        workers.FilesFound(number=1, parent=1),
        StopEnvironment(number=1),
        RunCommand(request="1", name="x"),
        ReadProperties(),
    ],
    ids=lambda message: type(message).__name__,
)
@on_its_own_clock
async def test_a_loan_takes_only_the_kinds_of_messages_that_it_needs(
    tmp_path: Path, message: workers.Message
) -> None:
    borrower = await Borrower.in_(tmp_path)
    said = len(borrower.lender.around.said)
    borrower.says(message)
    await pass_by(0.01)
    assert [
        each for each in borrower.lender.around.said[said:] if each[0] == borrower.address
    ] == []
    await borrower.goes_on()


@pytest.mark.parametrize(
    "asked",
    [
        {"request": "r" * 500_000},
        {"offset": 2**70},
        {"offset": -1},
        {"limit": -1},
        {"number": -1},
        {"stream": "s" * 500_000},
    ],
    ids=lambda asked: f"{asked}"[:30],
)
@on_its_own_clock
async def test_a_question_for_output_that_cannot_be_meant_gets_no_further(
    tmp_path: Path, asked: dict[str, Any]
) -> None:
    """An answer that repeats a long question would be a stanza that ends the manager's link."""
    borrower = await Borrower.in_(tmp_path)
    said = len(borrower.lender.around.said)
    question = {"type": "fetch_output", "request": "1", "number": 1, "stream": "stdout"} | asked
    borrower.says_text(json.dumps(question, separators=(",", ":")))
    await pass_by(11)
    answers = [
        text
        for sender, _, text in borrower.lender.around.said[said:]
        if sender == borrower.address and '"output"' in text
    ]
    assert answers == []
    await borrower.goes_on()


@on_its_own_clock
async def test_a_command_that_grows_too_large_when_it_is_filled_in_is_refused(
    tmp_path: Path,
) -> None:
    borrower = await Borrower.in_(tmp_path)
    grows = {"argv": ["x", "{}" * 500], "with_items": True}
    end = await borrower.end_of(borrower.hands_over(grows, items=["i" * 100_000]))
    assert end.outcome == Outcome.FAILED
    assert "the command" in end.reason
    await borrower.goes_on()


@on_its_own_clock
async def test_a_guest_that_does_not_fit_into_a_message_goes_back(tmp_path: Path) -> None:
    borrower = await Borrower.in_(tmp_path)
    large = {"argv": ["x", "{}{}{}"], "with_items": True}
    end = await borrower.end_of(borrower.hands_over(large, items=["i" * 190_000]))
    assert end.outcome == Outcome.UNABLE
    assert end.reason.startswith("no-resources: ")
    assert "bytes" in end.reason
    await borrower.goes_on()


@on_its_own_clock
async def test_a_task_that_fits_into_no_message_ends_with_that_reason(tmp_path: Path) -> None:
    """As if a store had kept it from before there was a bound: a place is not taken for ever."""
    pool = Neighbourhood(tmp_path).open("b.test")
    await pass_by(1)
    large = pool.submit(2, name="n" * 600_000)
    await pass_by(1)
    records = pool.ended(large)
    assert [record.state for record in records] == ["failed", "failed"]
    assert "fits into no message" in records[0].result.reason
    pool.submit(2)
    await pass_by(1)
    assert len(pool.hands.running) == 2


@on_its_own_clock
async def test_an_attempt_that_is_handed_over_twice_runs_once_and_its_place_is_free_again(
    tmp_path: Path,
) -> None:
    borrower = await Borrower.in_(tmp_path)
    twice = {"count": 2, "argv": ["twice"]}
    borrower.hands_over(twice, {"cpus": 250}, spans=[[FIRST, FIRST, 0, 1, 0, 7]] * 3)
    await pass_by(1)
    assert [command.program.argv for command in borrower.lender.hands.started[1:]] == [("twice",)]
    borrower.lender.hands.end()
    await pass_by(1)
    [loan] = borrower.lender.flock.keeper.loans.values()
    assert loan.used == {}
    await borrower.goes_on()


@on_its_own_clock
async def test_a_claim_below_nothing_makes_no_room_for_others(tmp_path: Path) -> None:
    borrower = await Borrower.in_(tmp_path)
    spans = [[FIRST + n, FIRST, n, 1, int(n > 0), 7] for n in range(5)]
    claims = [{"cpus": -4000}, {"cpus": 1000}]
    borrower.hands_over({"count": 5}, spans=spans, claims=claims)
    await pass_by(0.01)
    assert len(borrower.lender.guests()) <= 1
