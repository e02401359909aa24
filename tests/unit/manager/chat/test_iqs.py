"""What clients ask the pool by IQ: whose questions, which answers, in what bounds."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import pytest
from managerkit import FarStore, PlayedManager, settled
from storekit import QuickStore

from kestrel_worlds.memory_store import MemoryStore
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec, Notify
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.errors import UsageError
from kestrelctl.manager.chat import disco
from kestrelctl.manager.chat.commands import MOST_JOBS
from kestrelctl.manager.chat.job_form import FIELDS, job_of_form
from kestrelctl.protocol import requests, workers
from kestrelctl.protocol.forms import (
    COMMANDS,
    DISCO_INFO,
    DISCO_ITEMS,
    MOST_ELEMENTS,
    VCARD,
    Iq,
    IqError,
    as_text,
    element,
)

ADA, BOB = "ada@users.pool/x", "bob@users.pool/x"
ITEMS = f"<query xmlns='{DISCO_ITEMS}'/>"


class Asked:
    """A played manager, asked by IQ."""

    def __init__(self, directory: Path, store: QuickStore | FarStore | None = None) -> None:
        self.manager = PlayedManager(directory, store=store)
        self.answers: list[str | IqError] = []
        self.iqs = self.manager.iqs(self)

    def answer(self, iq: Iq, payload: str | IqError) -> None:
        self.answers.append(payload)

    async def ask(
        self, to: str, payload: str, sender: str = ADA, kind: str = "get"
    ) -> Element | IqError | None:
        """What is answered; None if nobody answers."""
        xml = ElementTree.fromstring(payload)
        if not self.iqs.on_iq(Iq(sender, to, kind, "1", xml)):
            return None
        await settled()
        found = self.answers.pop()
        return found if isinstance(found, IqError) else ElementTree.fromstring(found or "<none/>")


@pytest.fixture
async def asked(tmp_path: Path) -> Asked:
    return Asked(tmp_path)


@pytest.mark.parametrize("sender", ["w1@workers.pool/x", "eve@elsewhere/x", "pool"])
async def test_only_users_are_answered(asked: Asked, sender: str) -> None:
    assert await asked.ask("pool", ITEMS, sender) is None
    assert await asked.ask("pool", ITEMS) is not None


async def test_a_question_that_is_too_large_is_refused_unread(asked: Asked) -> None:
    many = "<a/>" * (MOST_ELEMENTS + 1)
    found = await asked.ask("pool", f"<query xmlns='{DISCO_INFO}'>{many}</query>")
    assert isinstance(found, IqError)
    assert found.condition == "not-acceptable"


async def test_workers_come_in_pages(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disco, "MOST_ITEMS", 2)
    for number in range(5):
        ad = WorkerAd(assets={"cpus": 1.0})
        hello = workers.Hello(version=workers.VERSION, incarnation="i", greeting=1, at=0.0, ad=ad)
        await asked.manager.work(f"w{number}@workers.pool/x", hello)
    after, found = "", []
    for _ in range(3):
        page = f"<set xmlns='http://jabber.org/protocol/rsm'><after>{after}</after></set>"
        answer = await asked.ask(
            "pool@pool", f"<query xmlns='{DISCO_ITEMS}' node='online'>{page}</query>"
        )
        assert isinstance(answer, Element)
        found.append([item.get("jid", "") for item in answer.iterfind(f"{{{DISCO_ITEMS}}}item")])
        after = found[-1][-1]
        assert "<count>5" in as_text(answer) or ":count>5" in as_text(answer)
    assert [len(page) for page in found] == [2, 2, 1]
    assert len({jid for page in found for jid in page}) == 5


async def test_a_job_is_there_for_its_owner_alone(asked: Asked) -> None:
    await asked.manager.ask(ADA, requests.SubmitJob(spec=JobSpec(program=Program(argv=("true",)))))
    assert isinstance(await asked.ask("job-1@pool", ITEMS), Element)
    refused = await asked.ask("job-1@pool", ITEMS, BOB)
    assert isinstance(refused, IqError)
    assert refused.condition == "item-not-found"
    assert isinstance(await asked.ask("job-1@pool", ITEMS, "root@users.pool/x"), Element)
    mine = await asked.ask("jobs@pool", ITEMS)
    theirs = await asked.ask("jobs@pool", ITEMS, BOB)
    assert isinstance(mine, Element)
    assert isinstance(theirs, Element)
    assert (len(mine), len(theirs)) == (1, 0)


async def test_a_card_holds_nothing_that_changes(asked: Asked) -> None:
    await asked.manager.ask(ADA, requests.SubmitJob(spec=JobSpec(program=Program(argv=("true",)))))
    card = await asked.ask("job-1@pool", f"<vCard xmlns='{VCARD}'/>")
    assert isinstance(card, Element)
    assert card.findtext(f"{{{VCARD}}}FN") == "Kestrel job 1"


async def test_a_command_of_somebody_else_s_job_is_refused(asked: Asked) -> None:
    await asked.manager.ask(ADA, requests.SubmitJob(spec=JobSpec(program=Program(argv=("true",)))))
    form = "<field var='job_ids'><value>1</value></field>"
    command = (
        f"<command xmlns='{COMMANDS}' node='cancel'>"
        f"<x xmlns='jabber:x:data' type='submit'>{form}</x></command>"
    )
    refused = await asked.ask("jobs@pool", command, BOB, "set")
    assert isinstance(refused, IqError)
    assert refused.condition == "forbidden"
    assert isinstance(await asked.ask("jobs@pool", command, ADA, "set"), Element)


async def test_more_jobs_than_a_form_cancels_are_refused_and_none_is_cancelled(
    asked: Asked,
) -> None:
    await asked.manager.ask(ADA, requests.SubmitJob(spec=JobSpec(program=Program(argv=("true",)))))
    jobs = "".join(f"<value>{number}</value>" for number in range(1, MOST_JOBS + 2))
    command = (
        f"<command xmlns='{COMMANDS}' node='cancel'><x xmlns='jabber:x:data' type='submit'>"
        f"<field var='job_ids'>{jobs}</field></x></command>"
    )
    refused = await asked.ask("jobs@pool", command, ADA, "set")
    assert isinstance(refused, IqError)
    assert "at most 100 jobs" in refused.text


@pytest.mark.parametrize("field", ["<field var='cpus'><value>0</value></field>", ""])
async def test_what_a_form_asks_for_is_checked_as_every_job_is(asked: Asked, field: str) -> None:
    name = "x" * (1 if field else 201)
    filled = f"<field var='command'><value>true</value></field>{field}"
    command = (
        f"<command xmlns='{COMMANDS}' node='submit'><x xmlns='jabber:x:data' type='submit'>"
        f"{filled}<field var='name'><value>{name}</value></field></x></command>"
    )
    refused = await asked.ask("jobs@pool", command, ADA, "set")
    assert isinstance(refused, IqError)
    assert refused.condition == "bad-request"


async def test_answers_of_commands_have_labels_that_clients_show(
    tmp_path: Path, quick_store: QuickStore
) -> None:
    """Clients show of a `fixed` field, which is text between others, the value alone."""
    asked = Asked(tmp_path, quick_store)
    for address, node in (("pool@pool", "pool_status"), ("jobs@pool", "submit")):
        filled = "<field var='command'><value>true</value></field>"
        form = f"<x xmlns='jabber:x:data' type='submit'>{filled}</x>" if node == "submit" else ""
        command = f"<command xmlns='{COMMANDS}' node='{node}'>{form}</command>"
        found = await asked.ask(address, command, ADA, "set")
        assert isinstance(found, Element)
        fields = list(found.iter("{jabber:x:data}field"))
        assert fields
        assert {field.get("type") for field in fields} == {"text-single"}


async def test_who_has_nothing_to_cancel_gets_no_empty_form(asked: Asked) -> None:
    command = f"<command xmlns='{COMMANDS}' node='cancel'/>"
    found = await asked.ask("jobs@pool", command, ADA, "set")
    assert isinstance(found, Element)
    assert found.get("status") == "completed"
    note = found.find(f"{{{COMMANDS}}}note")
    assert note is not None
    assert (note.get("type"), note.text) == ("info", "You have no active jobs.")
    assert len(found) == 1


async def test_presence_of_a_job_is_for_its_owner(asked: Asked) -> None:
    await asked.manager.ask(
        ADA, requests.SubmitJob(spec=JobSpec(program=Program(argv=("true",)), count=3))
    )
    manager = asked.manager
    for sender in (ADA, BOB, "root@users.pool/x"):
        manager.listener.on_presence(sender, "job-1@pool", "probe")
    await settled()
    assert manager.presences == [
        (ADA, "", "job-1@pool", "away", "0 of 3 done"),
        ("bob@users.pool", "unsubscribed", "job-1@pool", "", ""),
        ("root@users.pool/x", "", "job-1@pool", "away", "0 of 3 done"),
    ]
    manager.listener.desk.forget_all()


def test_a_form_becomes_a_job() -> None:
    spec = job_of_form(
        {
            "command": ["./run 'a b' {}"],
            "array": ["1-3, 7-9"],
            "memory": ["1.5G"],
            "cpus": ["2"],
            "requirements": ["PYTHON", "", " GPU "],
            "notify": ["failures"],
        }
    )
    assert spec.notify is Notify.FAILURES
    assert spec.program.argv == ("./run", "a b", "{}")
    assert spec.ids() == "1-3,7-9"
    assert spec.request == {"cpus": 2.0, "memory": 1.5 * 1024**3}
    assert spec.requires == ("PYTHON", "GPU")
    assert job_of_form({"command": ["true"], "queue": ["5"]}).ids() == "0-4"
    assert job_of_form({"command": ["true"], "array": ["0-9:3, 20"]}).ids() == "0-9:3,20"


def test_a_form_is_understood_as_words_are() -> None:
    spec = job_of_form({"command": ["./run “a b” —fast"], "cleanup": ["rm ‘a b’"]})  # noqa: RUF001
    assert (spec.program.argv, spec.program.cleanup) == (("./run", "a b", "--fast"), ("rm", "a b"))
    typed = {"command": ["true"], "array": ["1–3"], "memory": ["\u200b2G"], "name": ["1–3"]}  # noqa: RUF001
    spec = job_of_form(typed)
    assert (spec.ids(), spec.request["memory"], spec.name) == ("1-3", 2 << 30, "1–3")  # noqa: RUF001
    with pytest.raises(UsageError, match="is for a shell"):
        job_of_form({"command": ["ls | wc"]})
    with pytest.raises(UsageError, match="cleanup: a quote is left open"):
        job_of_form({"command": ["true"], "cleanup": ["“a"]})


def test_a_form_as_it_is_shown_is_a_job_whose_end_is_told() -> None:
    filled = {field.name: list(field.values) for field in FIELDS} | {"command": ["true"]}
    assert job_of_form(filled) == JobSpec(program=Program(argv=("true",)), notify=Notify.ALWAYS)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"command": ["'"]},
        {"command": ["true"], "queue": ["0"]},
        {"command": ["true"], "queue": ["-3"]},
        {"command": ["true"], "array": ["3-1"]},
        {"command": ["true"], "array": ["1-5,3"]},
        {"command": ["true"], "cpus": ["nan"]},
        {"command": ["true"], "memory": ["all"]},
        {"command": ["true"], "memory": ["9" * 400]},
        {"command": ["true"], "array": ["9" * 5000]},
        {"command": ["true"], "queue": ["9" * 5000]},
        {"command": ["true"], "notify": ["maybe"]},
    ],
)
def test_a_form_that_makes_no_job_is_refused(values: dict[str, list[str]]) -> None:
    with pytest.raises(UsageError):
        job_of_form(values)


def test_no_text_breaks_a_stream() -> None:
    text = as_text(element("a", "\x00\x1b[0m<&\ufffe\ud800", name="\x07'\""))
    found = ElementTree.fromstring(text)
    assert found.text == "[0m<&"
    assert found.get("name") == "'\""


async def test_an_ended_job_says_what_it_is_when_a_store_behind_a_network_answers(
    tmp_path: Path,
) -> None:
    store = FarStore(MemoryStore())
    asked = Asked(tmp_path, store)
    spec = JobSpec(program=Program(argv=("true",)))
    await asked.manager.ask(ADA, requests.SubmitJob(spec=spec))
    await asked.manager.ask(ADA, requests.CancelJobs(jobs="1"))
    store.is_far = True
    found = await asked.ask("job-1@pool", f"<query xmlns='{DISCO_INFO}'/>")
    assert isinstance(found, Element)
    assert "cancelled" in (found[0].get("name") or "")
    hidden = await asked.ask("job-1@pool", f"<query xmlns='{DISCO_INFO}'/>", BOB)
    assert isinstance(hidden, IqError)
