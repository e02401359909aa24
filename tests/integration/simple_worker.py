"""A worker in a page: it knows XMPP and the messages of the first Kestrel, and nothing of Kestrel.

python simple_worker.py JID PASSWORD_FILE POOL [HOST PORT]
"""

import asyncio
import json
import os
import platform
import signal
import sys
from pathlib import Path

import slixmpp


class SimpleWorker(slixmpp.ClientXMPP):
    def __init__(self, jid: str, password: str, pool: str) -> None:
        super().__init__(jid, password)
        self.pool = f"pool@{pool}"
        self.running: dict[str, asyncio.subprocess.Process | None] = {}
        self.cancelled: set[str] = set()
        self.tasks: list[asyncio.Future[None]] = []
        self.add_event_handler("session_start", self.join)
        self.add_event_handler("message", self.on_message)

    def say(self, **message: object) -> None:
        self.send_message(mto=self.pool, mbody=json.dumps(message), mtype="chat")

    def join(self, _event: object = None) -> None:
        self.send_presence(pto=self.pool)  # so that the server tells the pool when this one dies
        self.say(
            type="profile", os=platform.system(), ram=1024, cores=2, provides=["FOO", "BAR"],
            running=list(self.running),
        )  # fmt: skip

    def on_message(self, stanza: slixmpp.Message) -> None:
        if stanza["from"].bare != self.pool or stanza["type"] == "error":
            return
        message = json.loads(stanza["body"])
        if message["type"] == "who":
            self.join()
        elif message["type"] == "task":
            self.running[message["id"]] = None
            self.tasks.append(asyncio.ensure_future(self.run_task(message)))
        elif message["type"] == "cancel":
            self.cancelled.add(message["id"])
            self.end_if_cancelled(message["id"])
        elif message["type"] == "refused":
            print(message["reason"], file=sys.stderr)

    def end_if_cancelled(self, task_id: str) -> None:
        process = self.running.get(task_id)
        if process and process.returncode is None and task_id in self.cancelled:
            os.killpg(process.pid, signal.SIGKILL)

    async def run_task(self, task: dict) -> None:
        where = {"env": os.environ | task.get("env", {}), "start_new_session": True}
        process = self.running[task["id"]] = await asyncio.create_subprocess_shell(
            task["command"], stdout=asyncio.subprocess.PIPE, **where
        )
        self.end_if_cancelled(task["id"])  # it may have come while the process was being started
        output, _ = await process.communicate()
        if "cleanup" in task:
            await (await asyncio.create_subprocess_shell(task["cleanup"], **where)).wait()
        del self.running[task["id"]]
        text = output[-4096:].decode(errors="replace")
        self.say(type="finish", id=task["id"], status=process.returncode, output=text)


if __name__ == "__main__":
    jid, password_file, pool, *server = sys.argv[1:]
    worker = SimpleWorker(jid, Path(password_file).read_text().strip(), pool)
    if server:  # a pool on this machine, whose server takes no TLS
        worker.enable_starttls = worker.enable_direct_tls = False
        worker.enable_plaintext = worker.plugin["feature_mechanisms"].unencrypted_plain = True
        worker.connect(server[0], int(server[1]))
    else:
        worker.connect()
    asyncio.get_event_loop().run_forever()
