"""What the manager does with a message, and in which order, as people's chat programs send it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from managerkit import PlayedManager

from kestrelctl.protocol.chat.body import JUST_TEXT, ChatKind, ChatMarks

ADA = "ada@users.pool/phone"
WORKER = "w1@workers.pool/home"
ENCRYPTED = ChatMarks(ChatKind.ENCRYPTED)


class Chat:
    """Somebody with a chat program."""

    def __init__(self, manager: PlayedManager) -> None:
        self.manager = manager

    async def hears(
        self, body: str, marks: ChatMarks = JUST_TEXT, to: str = "jobs@pool", sender: str = ADA
    ) -> list[str]:
        """All that is answered to a message, in order."""
        before = len(self.manager.chats)
        self.manager.listener.on_body(sender, to, body, marks)
        await self.manager.settled()
        return [text for whom, text in self.manager.chats[before:] if whom == sender]


@pytest.fixture
async def chat(tmp_path: Path) -> Chat:
    return Chat(PlayedManager(tmp_path))


async def test_the_commands_of_a_message_are_answered_in_order(chat: Chat) -> None:
    heard = await chat.hears("submit -- sleep 1\nsubmit -- sleep 2\nhelp job\ncancel last\njob 1")
    assert [text.partition("\n")[0] for text in heard] == [
        "Job 1: 1 task of sleep 1",
        "Job 2: 1 task of sleep 2",
        "job 12",
        "Cancelled job 2: 1 task stopped.",
        "Job 1: 0 of 1 done, 1 waiting",
    ]


async def test_of_a_message_that_is_not_understood_whole_nothing_is_done(chat: Chat) -> None:
    [heard] = await chat.hears("submit -- true\n--fast")
    assert heard.endswith("That is command 2 of 2 in this message; none of them was done.")
    assert (await chat.hears("jobs"))[0].startswith("You have no jobs.")


async def test_after_a_command_that_is_refused_the_others_are_left_alone(chat: Chat) -> None:
    await chat.hears("submit -- true")
    heard = await chat.hears("submit --after 99 -- ./next\ncancel last\nstatus")
    assert len(heard) == 1
    assert heard[0].endswith("\nSo the 2 other commands of this message were not done.")
    assert (await chat.hears("job 1"))[0].startswith("Job 1: 0 of 1 done, 1 waiting")


async def test_commands_for_which_there_is_no_room_are_told_of(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = chat.manager.dispatcher.turns
    take, taken = turns.take, []

    def take_one(*words: object) -> bool:
        taken.append(words)
        return len(taken) == 1 and take(*words)  # type: ignore[arg-type]

    monkeypatch.setattr(turns, "take", take_one)
    heard = await chat.hears("jobs\njobs\njobs")
    assert len(heard) == 2
    assert heard[1].endswith("\nSo the 2 other commands of this message were not done.")


@pytest.mark.parametrize("to", ["jobs@pool", "pool", "job-1@pool"])
async def test_an_encrypted_message_is_told_that_it_cannot_be_read(chat: Chat, to: str) -> None:
    [heard] = await chat.hears("I sent you an OMEMO encrypted message\ncancel 1", ENCRYPTED, to)
    assert heard.startswith("I cannot read encrypted messages.\nTurn encryption ")


async def test_a_message_that_is_taken_back_does_not_take_back_what_it_did(chat: Chat) -> None:
    await chat.hears("submit -- true", ChatMarks(id="m1"))
    [heard] = await chat.hears("/me retracted a message", ChatMarks(ChatKind.RETRACTION))
    assert heard.startswith("What a message has started goes on")
    assert (await chat.hears("job 1"))[0].startswith("Job 1: 0 of 1 done")


async def test_a_substitute_for_something_else_is_no_words(chat: Chat) -> None:
    [heard] = await chat.hears("", ChatMarks(ChatKind.SUBSTITUTE))
    assert heard.startswith("There are no words of yours in this message")


# -- corrections -----------------------------------------------------------------------------------


async def test_a_message_that_did_nothing_can_be_corrected_again_and_again(chat: Chat) -> None:
    assert "--array" in (await chat.hears("submit --arry 1-3 -- true", ChatMarks(id="m1")))[0]
    heard = await chat.hears("submit --array 1-x -- true", ChatMarks(id="m2", corrects="m1"))
    assert "array" in heard[0]
    heard = await chat.hears("submit --array 1-3 -- true", ChatMarks(id="m3", corrects="m1"))
    assert heard[0].startswith("Job 1: 3 tasks of true")
    heard = await chat.hears("submit --array 1-4 -- true", ChatMarks(id="m4", corrects="m1"))
    assert heard[0].startswith("This corrects a message that may have been acted upon")


@pytest.mark.parametrize(
    "first", ["submit -- true", "cancel all", "jobs\nsubmit -- true", "submit --after last -- x"]
)
async def test_a_message_that_did_something_is_not_done_again_when_it_is_corrected(
    chat: Chat, first: str
) -> None:
    await chat.hears("submit -- true")
    await chat.hears(first, ChatMarks(id="m1"))
    before = len(list(chat.manager.service.pool.jobs))
    [heard] = await chat.hears("submit -- echo corrected", ChatMarks(id="m2", corrects="m1"))
    assert heard.startswith("This corrects a message that may have been acted upon")
    assert len(list(chat.manager.service.pool.jobs)) == before


async def test_only_the_latest_message_can_be_corrected(chat: Chat) -> None:
    await chat.hears("job 1", ChatMarks(id="m1"))
    await chat.hears("job 2", ChatMarks(id="m2"))
    [heard] = await chat.hears("jobs", ChatMarks(id="m3", corrects="m1"))
    assert heard.startswith("This corrects a message")
    [heard] = await chat.hears("jobs", ChatMarks(id="m3", corrects="m2"), sender="bob@users.pool/1")
    assert heard.startswith("This corrects a message")


async def test_json_that_corrects_a_message_is_refused(chat: Chat) -> None:
    [heard] = await chat.hears('{"type": "pool_status", "id": "7"}', ChatMarks(corrects="m1"))
    told = json.loads(heard)
    assert (told["type"], told["id"], told["code"]) == ("error", "7", "usage")
    assert "corrects a message" in told["message"]


async def test_what_can_be_corrected_is_remembered_of_so_many_accounts(chat: Chat) -> None:
    for n in range(2_000):
        sender = f"u{n}@users.pool/1"
        chat.manager.listener.on_body(sender, "jobs@pool", "help", ChatMarks(id="m1"))
    assert len(chat.manager.listener._conversations._harmless) <= 1_000


# -- JSON ------------------------------------------------------------------------------------------


async def test_json_in_curly_quotes_makes_a_job(chat: Chat) -> None:
    heard = await chat.hears("{“type”: “job”, “command”: “sh -c ‘echo “a  b”’”, “queue”: 3}")  # noqa: RUF001
    assert json.loads(heard[0])["type"] == "submitted"
    [job] = chat.manager.service.pool.jobs
    assert "sh -c 'echo \"a  b\"'" in " ".join(job.spec.program.argv)
    assert job.spec.count == 3


async def test_json_in_quotes_that_are_left_open_is_refused_with_the_right_ones(chat: Chat) -> None:
    told = json.loads((await chat.hears("{“type”: “job}"))[0])
    assert (told["code"], told["cause"]) == ("usage", "a curly quote is left open")
    assert "straight quotes" in told["hint"]


async def test_a_worker_may_write_in_curly_quotes(chat: Chat) -> None:
    body = "> who\n{“type”: “profile”, “os”: “Linux”, “ram”: 4096, “cores”: 2}"
    [heard] = await chat.hears(body, to="pool@pool", sender=WORKER)
    assert json.loads(heard) == {"type": "welcome"}


async def test_a_worker_hears_that_it_is_not_to_encrypt(chat: Chat) -> None:
    [heard] = await chat.hears("?OTR", ENCRYPTED, to="pool@pool", sender=WORKER)
    told = json.loads(heard)
    assert told["type"] == "refused"
    assert "I cannot read encrypted messages" in told["reason"]
