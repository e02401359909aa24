"""Whoever runs a pool on one machine, and has wrong habits: each of them, in odd order.

After each habit the pool is brought up again by the usual commands, and nothing that was
acknowledged may be lost. What an operator destroys on purpose is left out: the store, the accounts
of workers. So is the machine's clock: it belongs to others, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from random import Random

import click
import psutil
from attacked import NAME, Attacked
from nasty import Nasty

from kestrelctl.cli.main import COMMANDS, kestrelctl
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.local.pool_state import pool_directory, read_state
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq
from kestrelctl.protocol.views import Assets, Policies

#: Commands that are about a pool that runs, and come back by themselves.
NOUNS = ("submit", "job", "pool", "worker", "user", "group", "trigger", "environment", "flock")
#: Those of them that go on, write files where they are told, or become a service of this machine.
LEFT_OUT = {
    "job wait", "job fetch", "job export", "pool chat", "pool traffic", "pool metrics",
    "worker run", "worker join", "worker service", "worker environment",
}  # fmt: skip
#: Options that make a command wait, or tell all that it knows of an error.
LEFT_OUT_OPTIONS = {
    "--pool", "--help", "--verbose", "--wait", "--follow", "--watch", "--fetch", "--every",
    "--any-workdir", "--workdir",
}  # fmt: skip
#: Besides what nobody expects.
WORDS = (
    "1", "2", "0", "-1", "all", "last", "10", "1G", "0G", "-1G", "5s", "0s", "1e9", "1e999", "nan",
    "inf", "cpus=2", "cpus=0", "cpus=-1", "cpus=nan", "cpus=", "=", "lean", "gpu", "matlab", "none",
    "never", "forever", "mallory", "physics", "input", "rules", "\udcff", "1-3", "true", "x=1,y=2",
    "18446744073709551616", "0.0000000000000000001", "9" * 400, "9" * 5_000,
)  # fmt: skip
#: A word of a command line is no longer, and these lead to files of the machine.
MOST_CHARACTERS = 100_000
COMMANDS_AT_ONCE = 3
COMMANDS_OF_A_ROUND = 12

PROPERTIES = "[load]\ncommand = load\nreturn_type = float\nticks = 1\n"
TRIGGERS = "[busy]\nexpr = len(workers) > 99\ncmd = drain([w for w in workers])\nticks = 5\n"


class CarelessOperator:
    """One who tries what comes to mind, round after round."""

    def __init__(self, attacked: Attacked, dice: Random) -> None:
        self._attacked = attacked
        self._dice = dice
        self._nasty = Nasty(dice, {})
        self._left: list[Callable[[], Awaitable[None]]] = []
        self._copies = 0
        self._backups = 0
        attacked.same_manager = False
        self._properties = attacked.directory / "properties.ini"
        self._triggers = attacked.directory / "triggers.ini"
        self._properties.write_text(PROPERTIES)
        self._triggers.write_text(TRIGGERS)
        (attacked.directory / "input").write_text("input\n")
        (attacked.directory / "rules").write_text("ConsumptionCpus = 1\n")
        attacked.options = (
            "--properties", str(self._properties), "--triggers", str(self._triggers),
        )  # fmt: skip
        self._lines = list(_leaves())

    @property
    def _directory(self) -> Path:
        return pool_directory(NAME)

    async def attack(self) -> None:
        """Does one thing that is wrong, types what makes no sense, and has a pool in the end."""
        if not self._left:
            self._left = [
                self.kills_parts,
                self.starts_it_twice,
                self.stops_it_while_it_starts,
                self.ends_commands_halfway,
                self.changes_options,
                self.deletes_logs,
                self.deletes_spools,
                self.spoils_the_state,
                self.copies_the_pool,
                self.starts_a_worker_twice,
                self.starts_the_manager_twice,
                self.restores_an_old_backup,
                self.edits_what_is_in_use,
                self.removes_what_is_in_use,
                self.takes_rights_away,
                self.fills_the_disk,
            ]
            self._dice.shuffle(self._left)
        habit = self._left.pop()
        self._attacked.counts[habit.__name__] += 1
        print(habit.__name__, flush=True)
        await self._attacked.submit_innocent(3, 0.5)
        await habit()
        await self._attacked.up()
        await self.types_nonsense()
        await self._puts_right()

    # -- processes ---------------------------------------------------------------------------------

    async def kills_parts(self) -> None:
        for _ in range(self._dice.choice((1, 2, 4))):
            state = self._attacked.pool.state
            parts = [state.server_pid, state.manager_pid, *state.worker_pids]
            if self._dice.random() < 0.2:
                parts = [state.pid]
            for pid in self._dice.sample(parts, self._dice.randint(1, len(parts))):
                with contextlib.suppress(psutil.NoSuchProcess):
                    if pid:
                        psutil.Process(pid).kill()
            await asyncio.sleep(self._dice.choice((0.0, 0.3, 2.0)))

    async def starts_it_twice(self) -> None:
        await self._attacked.down()
        words = ("up", "--name", NAME, "--workers", "2", *self._attacked.options)
        started = []
        for _ in range(3):
            started.append(await self._attacked.start(*words))
            await asyncio.sleep(self._dice.choice((0.0, 0.0, 0.2, 1.0)))
        ends = [await self._attacked.end(each, *words) for each in started]
        if all(status for status, _ in ends):
            self._attacked.found(f"of three at the same time none came up: {ends}")
        if read_state(self._directory) is None:
            self._attacked.found(f"three at the same time, and no pool runs: {ends}")

    async def stops_it_while_it_starts(self) -> None:
        await self._attacked.down()
        words = ("up", "--name", NAME, "--workers", "2", *self._attacked.options)
        starting = await self._attacked.start(*words)
        await asyncio.sleep(self._dice.uniform(0.0, 3.0))
        down = ("down", "--name", NAME)
        stopping = await self._attacked.start(*down)
        await self._attacked.end(stopping, *down)
        await self._attacked.end(starting, *words)

    async def ends_commands_halfway(self) -> None:
        """Ctrl-C, or worse, in the middle of `up` and of `down`."""
        up = ("up", "--name", NAME, "--workers", "2", *self._attacked.options)
        for words in (("down", "--name", NAME), up):
            process = await self._attacked.start(*words)
            await asyncio.sleep(self._dice.uniform(0.0, 2.5))
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(self._dice.choice((signal.SIGINT, signal.SIGKILL)))
            await self._attacked.end(process, *words)

    async def changes_options(self) -> None:
        """Starts it otherwise than it was, and otherwise than anything can be started."""
        await self._attacked.down()
        file = str(self._attacked.directory / "input")
        for more in self._dice.sample(
            (
                ("--domain", "other.example.org"), ("--workers", "-1"), ("--workers", "9" * 12),
                ("--workers", "3"), ("--executor", "inline"), ("--environments", "/nowhere"),
                ("--triggers", file), ("--properties", file), ("--handlers", "/"),
                ("--flock", "nobody"), ("--flock", "../x"), ("--federated-domain", "*"),
                ("--mail-from", "@"), ("--smtp", "nowhere:99999"), ("--isolation", "auto"),
            ),
            4,
        ):  # fmt: skip
            up = ("up", "--name", NAME, *more)
            status, _ = await self._attacked.command(*up)
            if not status:
                self._attacked.counts["other options"] += 1
                await self._attacked.down()
        for name in ("x" * 300, "", "..", "a/b", "-", "é" * 60, self._attacked.directory.name):
            await self._attacked.command("down", "--name", name)
        await self._where_nothing_can_be_written()

    async def _where_nothing_can_be_written(self) -> None:
        environment = self._attacked.environment
        usual = environment["XDG_STATE_HOME"]
        for place in (
            "/proc/self",
            "/dev/null",
            str(self._attacked.directory / "input"),
            "x" * 300,
        ):
            environment["XDG_STATE_HOME"] = place
            for words in (("up", "--workers", "1"), ("down",), ("pool", "status")):
                await self._attacked.command(*words)
        environment["XDG_STATE_HOME"] = usual

    async def starts_a_worker_twice(self) -> None:
        """With the same directory: that must be refused, and the first one goes on."""
        for pid in self._attacked.pool.state.worker_pids:
            words = _without_metrics(_words_of(pid))
            if not words:
                continue
            await self._runs_beside(words, seconds=15.0)

    async def starts_the_manager_twice(self) -> None:
        words = _without_metrics(_words_of(self._attacked.pool.state.manager_pid))
        if words:
            await self._runs_beside(words, seconds=5.0)

    async def _runs_beside(self, words: list[str], seconds: float) -> None:
        process = await asyncio.create_subprocess_exec(
            *words, stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        asyncio.get_running_loop().call_later(seconds, _terminate, process)
        told, _ = await process.communicate()
        if b"Traceback" in told:
            self._attacked.found(f"{' '.join(words[:6])}: {told.decode(errors='replace')}")

    # -- files -------------------------------------------------------------------------------------

    async def deletes_logs(self) -> None:
        for log in self._directory.rglob("*.log*"):
            with contextlib.suppress(OSError):
                if self._dice.random() < 0.5:
                    log.unlink()
                else:
                    log.write_text("")

    async def deletes_spools(self) -> None:
        """What workers keep, while they run."""
        for spool in list(self._directory.glob("worker-?")):
            await asyncio.to_thread(shutil.rmtree, spool, ignore_errors=True)
        if self._dice.random() < 0.5:
            await self._attacked.submit_innocent(3, 0.2)
            await asyncio.sleep(1.0)
        if self._dice.random() < 0.5:
            for pid in self._attacked.pool.state.worker_pids:
                with contextlib.suppress(psutil.NoSuchProcess):
                    psutil.Process(pid).kill()

    async def spoils_the_state(self) -> None:
        """The file that says what runs is deleted, or holds something else."""
        file = self._directory / "pool.json"
        state = self._attacked.pool.state
        if self._dice.random() < 0.5:
            file.unlink()
        else:
            file.write_text(self._dice.choice(("", "{", "[]", '{"pid": 1}')))
        for words in (("pool", "status", "--pool", NAME), ("up", "--name", NAME)):
            await self._attacked.command(*words)
        status, told = await self._attacked.command("down", "--name", NAME)
        domain = self._directory / "domain"
        right = domain.read_bytes()
        domain.write_bytes(self._dice.choice((b"", b"\xff", b"../x", right)))
        await self._attacked.command("up", "--name", NAME)
        domain.write_bytes(right)
        if status and psutil.pid_exists(state.pid) and read_state(self._directory) is None:
            self._attacked.found(f"a pool without pool.json cannot be stopped: {told}")
            psutil.Process(state.pid).terminate()

    async def copies_the_pool(self) -> None:
        """The copy of a pool that runs is another pool: to stop or to delete it stops nothing."""
        await self._attacked.rest()  # a copy goes on with what the pool has under way
        before = self._attacked.pool.state
        self._copies += 1
        copy = f"copy-{self._copies}"
        with contextlib.suppress(shutil.Error):  # sockets, and what has just gone
            shutil.copytree(self._directory, self._directory.parent / copy, symlinks=True)
        for words in (
            ("up", "--name", copy, "--workers", "1"),
            ("pool", "status", "--pool", copy),
            ("down", "--name", copy, "--delete", "--yes"),
        ):
            await self._attacked.command(*words)
        if read_state(self._directory) is None or self._attacked.pool.state.pid != before.pid:
            self._attacked.found("the pool ended with its copy")

    async def restores_an_old_backup(self) -> None:
        await self._attacked.rest()
        self._backups += 1
        file = str(self._attacked.directory / f"backup-{self._backups}")
        status, told = await self._attacked.command("manager", "backup", file, "--pool", NAME)
        if status:
            self._attacked.found(f"no backup is made: {told}")
            return
        await self._attacked.pool.submit(
            JobSpec(program=Program(argv=("true",)), count=5, name="forgotten")
        )
        restore = ("manager", "restore", file, "--pool", NAME)
        status, told = await self._attacked.command(*restore)
        if status == 0:
            self._attacked.found(f"a store was replaced while its manager ran: {told}")
        await self._attacked.down()
        await self._attacked.command("manager", "restore", str(self._properties), "--pool", NAME)
        await self._attacked.command("manager", "restore", "/nowhere", "--pool", NAME)
        status, told = await self._attacked.command(*restore)
        if status:
            self._attacked.found(f"a backup is not restored: {told}")

    async def edits_what_is_in_use(self) -> None:
        """Files of definitions become wrong, or go, and then the manager has to read them again."""
        file, right = self._dice.choice(
            ((self._properties, PROPERTIES), (self._triggers, TRIGGERS))
        )
        if self._dice.random() < 0.3:
            file.unlink()
        else:
            file.write_text(
                self._dice.choice(("", "[", "[load]\n", "[load]\nexpr = (\n", "\0" * 9))
            )
        state = self._attacked.pool.state
        for pid in (state.manager_pid, *state.worker_pids):
            with contextlib.suppress(psutil.NoSuchProcess):
                psutil.Process(pid).kill()
        await asyncio.sleep(self._dice.choice((0.5, 4.0)))
        file.write_text(right)

    async def takes_rights_away(self) -> None:
        """Of root nothing is taken by that; the attack is for others, too."""
        parts = [self._directory, *self._directory.glob("*"), *self._directory.glob("*/*")]
        chosen = self._dice.sample(parts, min(4, len(parts)))
        modes = {}
        for part in chosen:
            with contextlib.suppress(OSError):
                modes[part] = part.stat().st_mode
        for part in modes:
            with contextlib.suppress(OSError):
                part.chmod(self._dice.choice((0, 0o400, 0o777)))
        for words in (
            ("pool", "status", "--pool", NAME), ("up", "--name", NAME), ("down", "--name", NAME),
            ("up", "--name", NAME),
        ):  # fmt: skip
            await self._attacked.command(*words)
        for part in sorted(modes):
            with contextlib.suppress(OSError):
                part.chmod(modes[part])

    async def fills_the_disk(self) -> None:
        """The pool's directory is moved to a small disk, which something else fills."""
        await self._attacked.down()
        with _small_disk(self._directory) as ballast:
            if ballast is None:
                self._attacked.counts["no small disk could be had"] += 1
                return
            await self._attacked.up()
            with contextlib.suppress(OSError), ballast.open("wb") as full:
                while True:
                    full.write(b"x" * 65_536)
            ballast_size = ballast.stat().st_size
            self._attacked.counts["MB that filled the disk"] = ballast_size >> 20
            for words in (
                ("submit", "--pool", NAME, "--", "true"), ("pool", "status", "--pool", NAME),
                ("submit", "--pool", NAME, "--input", str(self._triggers), "--", "true"),
                ("user", "set", "mallory", "--weight", "2", "--pool", NAME),
            ):  # fmt: skip
                await self._attacked.command(*words)
            if self._dice.random() < 0.5:
                with contextlib.suppress(psutil.NoSuchProcess):
                    psutil.Process(self._attacked.pool.state.manager_pid).kill()
                await asyncio.sleep(2.0)
            ballast.unlink()
            await self._attacked.up()
            await self._attacked.look()
            await self._attacked.down()
            self._attacked.read_logs()

    # -- words -------------------------------------------------------------------------------------

    async def removes_what_is_in_use(self) -> None:
        """Policies, assets, groups that jobs count on."""
        for words in (
            ("pool", "policy", "set", "lean", "rules"),
            ("pool", "asset", "set", "matlab", "2"),
            ("group", "set", "physics", "--weight", "2"),
            ("user", "set", "mallory", "--group", "physics"),
        ):
            await self._attacked.command(*words, "--pool", NAME)
        job = await self._attacked.pool.submit(
            JobSpec(
                program=Program(argv=("sleep", "0.3")),
                count=6,
                request={"cpus": 1.0, "matlab": 1.0},
            )
        )
        innocent = await self._attacked.submit_innocent(4, 0.3)
        await asyncio.sleep(0.3)
        for words in (
            ("pool", "policy", "remove", "lean"),
            ("pool", "asset", "remove", "matlab"),
            ("group", "remove", "physics"),
            ("job", "explain", str(job)),
            ("pool", "asset", "set", "matlab", "1"),
        ):
            await self._attacked.command(*words, "--pool", NAME)
        for waited in (innocent, job):
            try:
                await self._attacked.pool.ended(waited, self._attacked.patience_seconds)
            except AssertionError as error:
                self._attacked.found(f"job {waited} does not go on: {error}")

    async def types_nonsense(self) -> None:
        """Commands with senseless values: each ends, and says what is wrong in its own words."""
        lines = [self._nonsense() for _ in range(COMMANDS_OF_A_ROUND)]

        async def types() -> None:
            while lines:
                words = lines.pop()
                with contextlib.suppress(ValueError):  # nobody can type a NUL
                    await self._attacked.command(*words)
                self._attacked.counts["senseless commands"] += 1

        await asyncio.gather(*(types() for _ in range(COMMANDS_AT_ONCE)))

    def _nonsense(self) -> list[str]:
        path, command = self._dice.choice(self._lines)
        words = [*path.split(), "--pool", NAME]
        arguments: list[str] = []
        for each in command.params:
            if isinstance(each, click.Argument):
                times = 1 if each.nargs == 1 else self._dice.choice((0, 1, 1, 2))
                arguments += [self._value(each) for _ in range(times)]
            elif not LEFT_OUT_OPTIONS.intersection(each.opts) and self._dice.random() < 0.15:
                assert isinstance(each, click.Option)
                words.append(self._dice.choice([*each.opts, *each.secondary_opts]))
                if not each.is_flag:
                    words.append(self._value(each))
        return [*words, *(["--"] if path == "submit" else []), *arguments]

    def _value(self, of: click.Parameter) -> str:
        if isinstance(of.type, click.Choice) and self._dice.random() < 0.5:
            return str(self._dice.choice(list(of.type.choices)))
        while True:
            chance = self._dice.random()
            if chance < 0.5:
                text = self._dice.choice(WORDS)
            elif chance < 0.65:
                text = self._nasty.expression()
            else:
                text = self._nasty.any_text()
            if _may_be_typed(text):
                return text

    async def _puts_right(self) -> None:
        """Takes back what an admin may set and others suffer from."""
        ask = self._attacked.ask
        for policy in (await ask(rq.ListPolicies(), Policies)).policies:
            await ask(rq.RemovePolicy(name=policy.name), object)
        for asset in (await ask(rq.ListAssets(), Assets)).assets:
            await ask(rq.RemoveAsset(name=asset.name), object)
        for worker in (await ask(rq.ListWorkers(), an.Workers)).workers:
            if worker.state in ("draining", "quarantined"):
                await ask(rq.ResumeWorkers(names=[worker.worker]), object)


def _leaves() -> Iterator[tuple[str, click.Command]]:
    """All commands that are typed, with their words."""
    root = click.Context(kestrelctl)

    def below(path: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
        if not isinstance(command, click.Group):
            if path not in LEFT_OUT:
                yield path, command
            return
        for name in command.list_commands(root):
            found = command.get_command(root, name)
            if found is not None:
                yield from below(f"{path} {name}".strip(), found)

    for noun in NOUNS:
        assert noun in COMMANDS
        found = kestrelctl.get_command(root, noun)
        assert found is not None
        yield from below(noun, found)


def _may_be_typed(text: str) -> bool:
    """Whether a word fits into a command line, and leads to no file of the machine."""
    if "\0" in text or len(text) > MOST_CHARACTERS:
        return False
    if text.startswith(("/", "~", "..", "file:", "a/..")) or text == ".":
        return False
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return True


def _words_of(pid: int) -> list[str]:
    with contextlib.suppress(psutil.Error):
        return list(psutil.Process(pid).cmdline())
    return []


def _without_metrics(words: list[str]) -> list[str]:
    """Its port is taken, and would be all that is refused."""
    if "--metrics" in words:
        place = words.index("--metrics")
        return words[:place] + words[place + 2 :]
    return words


def _terminate(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    asyncio.get_running_loop().call_later(20.0, _kill, process)


def _kill(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()


@contextlib.contextmanager
def _small_disk(directory: Path) -> Iterator[Path | None]:
    """Puts what is in a directory on a disk of its own; yields where that can be filled, or None.

    Only root may do so.
    """
    kept = directory.with_name(".kept")
    shutil.copytree(directory, kept, symlinks=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=96m,mode=700", "tmpfs", str(directory)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        shutil.rmtree(kept)
        yield None
        return
    try:
        shutil.copytree(kept, directory, symlinks=True, dirs_exist_ok=True)
        yield directory / "ballast"
        shutil.rmtree(kept)
        shutil.copytree(directory, kept, symlinks=True)
    finally:
        subprocess.run(["umount", "-l", str(directory)], check=True)
        shutil.rmtree(directory)
        kept.rename(directory)
