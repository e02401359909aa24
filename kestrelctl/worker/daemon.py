"""`kestrelctl worker run`: puts a worker process together and keeps it until it has drained."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import cast

import msgspec

from kestrelctl import clock, garbage, logs
from kestrelctl.beside import logged
from kestrelctl.core.environments.environment_class import SEES_HOSTS_FILES, EnvironmentClass
from kestrelctl.core.environments.names import EnvironmentOwner
from kestrelctl.core.environments.worker_command import worker_command
from kestrelctl.core.model.files import inputs, outputs, parent_files, workdir
from kestrelctl.core.model.files.parent_files import ParentFiles
from kestrelctl.core.model.job import (
    channel_rules,
    checkpoint,
    guest,
    placeholders,
    stage,
    task_environment,
)
from kestrelctl.core.model.worker import isolation
from kestrelctl.core.model.worker.ad import AssetChange, AssetUnit, WorkerAd, changed
from kestrelctl.core.model.worker.ad_rules import problem_with_ad
from kestrelctl.core.model.worker.assets import GPUS
from kestrelctl.core.properties.reading import PropertyReading
from kestrelctl.errors import KestrelError, NotAllowed, Unreachable, UsageError, why
from kestrelctl.files.share import FileShare
from kestrelctl.grammar.asset_words import offered_assets
from kestrelctl.notify import Notifier
from kestrelctl.protocol.upload_slots import Slot
from kestrelctl.protocol.workers import Token
from kestrelctl.worker.addresses.address_reader import AddressReader, tags_of_protocols
from kestrelctl.worker.addresses.shared_outputs import SharedOutputs
from kestrelctl.worker.connection.manager_epochs import ManagerEpochs
from kestrelctl.worker.connection.parent_file_questions import Left
from kestrelctl.worker.connection.poll_answers import PollAnswers
from kestrelctl.worker.connection.session import WorkerSession
from kestrelctl.worker.credentials import read_credentials
from kestrelctl.worker.discovery import (
    Machine,
    discover,
    disk_for_tasks_bytes,
    even_bytes,
    machine_tags,
)
from kestrelctl.worker.environments.driver_choice import program_in
from kestrelctl.worker.environments.driver_process import DistantDriver, DriverProcess
from kestrelctl.worker.environments.environment_files import made_in
from kestrelctl.worker.environments.environment_host import EnvironmentHost
from kestrelctl.worker.environments.prepared_keeper import PreparedKeeper
from kestrelctl.worker.environments.task_environments import TaskEnvironments
from kestrelctl.worker.files.checkpoint_fetch import CheckpointFetch
from kestrelctl.worker.files.checkpoints import Checkpoints
from kestrelctl.worker.files.input_cache import InputCache
from kestrelctl.worker.files.log_stage import LogStage
from kestrelctl.worker.files.output_stage import OutputStage
from kestrelctl.worker.files.preparation import Preparation
from kestrelctl.worker.gpus import detect
from kestrelctl.worker.isolation.file_view import FileView
from kestrelctl.worker.isolation.plain import Plain
from kestrelctl.worker.isolation.probe import choose
from kestrelctl.worker.isolation.rung import Rung, TaskLimits
from kestrelctl.worker.keeper import keep_the_keeper
from kestrelctl.worker.launch import native_program
from kestrelctl.worker.launch.launcher import Events, Launcher, Tree
from kestrelctl.worker.launch.native_launcher import NativeLauncher
from kestrelctl.worker.launch.python_launcher import PythonLauncher
from kestrelctl.worker.options import WorkerOptions
from kestrelctl.worker.own_files import OwnDirectory
from kestrelctl.worker.plugins.definition_files import read_all_commands, read_all_definitions
from kestrelctl.worker.plugins.plugin_process import PluginProcess
from kestrelctl.worker.process import WorkerProcess
from kestrelctl.worker.run.executor import Completion, Executor
from kestrelctl.worker.run.inline_executor import InlineExecutor
from kestrelctl.worker.run.process_executor import ProcessExecutor
from kestrelctl.worker.run.task_channels import TaskChannels
from kestrelctl.worker.run.variables import own_directories
from kestrelctl.worker.spool import DiskSpool
from kestrelctl.xmpp import xmpp_session
from kestrelctl.xmpp.slots import request_slot

log = logging.getLogger(__name__)

#: Tags of a worker that runs tasks as processes.
_PROCESS_TAGS = (outputs.TAG, stage.TAG, checkpoint.TAG, channel_rules.TAG)
#: Exit status after a second signal, which ends tasks instead of waiting for them.
STOPPED = 143


def _add_sessions(
    process: WorkerProcess,
    options: WorkerOptions,
    machine: Machine,
    rung: Rung,
    native: Path | None,
) -> None:
    n, lifetime = options.sessions, options.lifetime_seconds
    wanted = offered_assets(options.assets)
    # Whoever names them knows better, and no tool is asked.
    gpus = () if GPUS in wanted.amounts.keys() | wanted.units.keys() else detect()
    base = WorkerAd(
        assets={
            "cpus": options.cpus or (float(machine.cpus) if n == 1 else 1.0),
            "memory": options.memory_bytes or machine.memory_bytes // n,
            "disk": even_bytes(disk_for_tasks_bytes(options.data_dir) // n),
        },
        tags=(
            *machine_tags(machine),
            *options.tags,
            guest.TAG,
            placeholders.TAG,
            *isolation.tags_of(rung.name),
            *((workdir.TAG,) if options.any_workdir else ()),
            *(_input_tags(options) if _fetches_inputs(options) else ()),
            *(_environment_tags(options) if options.executor == "process" else ()),
            *(_process_tags(options, native) if options.executor == "process" else ()),
        ),
        host=machine.hostname,
        os=machine.os,
        arch=machine.arch,
        version=machine.kestrel_version,
        attributes=options.attributes,
        start=options.start,
        ends_at=lifetime and round(clock.now() + lifetime, 3),
    )
    if lifetime is not None:
        process.live_for(lifetime)
    accounts = read_credentials(options.credentials, n, machine.hostname)
    for place, (jid, password) in enumerate(accounts):
        units = gpus[place::n]  # an equal share, too
        ad = changed(base, _with_units(wanted, units), {GPUS: units})
        if problem := problem_with_ad(ad):
            raise UsageError("the pool would not take this worker", cause=problem)
        connect = partial(
            xmpp_session.client,
            jid,
            password,
            options.host,
            options.port,
            tls=options.tls,
            ca_file=options.ca_file,
        )
        process.add_session(options.pool, ad, jid, connect, pulls=options.pulls)


def _environment_tags(options: WorkerOptions) -> tuple[str, ...]:
    return tuple(
        task_environment.tag_of(kind)
        for kind in task_environment.KINDS
        if kind in options.environments
    )


def _process_tags(options: WorkerOptions, native: Path | None) -> tuple[str, ...]:
    writes_files = options.any_workdir or bool(options.shared_outputs)
    return (
        *_PROCESS_TAGS,
        *((outputs.FILE_TAG,) if writes_files else ()),
        "launcher:python" if native is None else "launcher:native",
    )


def _fetches_inputs(options: WorkerOptions) -> bool:
    return options.executor == "process" and options.cache_bytes != 0


def _input_tags(options: WorkerOptions) -> tuple[str, ...]:
    reads_files = options.any_workdir or bool(options.shared_files)
    return (inputs.TAG, parent_files.TAG, *tags_of_protocols(reads_files=reads_files))


def _with_units(wanted: AssetChange, gpus: tuple[AssetUnit, ...]) -> AssetChange:
    if not gpus:
        return wanted
    units = {GPUS: tuple(unit.id for unit in gpus)} | wanted.units
    return msgspec.structs.replace(wanted, units=units)


def _rung(options: WorkerOptions, machine: Machine) -> Rung:
    """Chooses what keeps tasks apart. UsageError if that does not work here."""
    if options.executor == "inline":
        return Plain()  # it runs no processes
    for share in options.shares:
        if not share.exists():
            raise UsageError(f"{share} cannot be shared", cause="it is not there")
    secrets = [] if str(options.credentials) == "-" else [options.credentials]
    view = FileView(
        options.data_dir,
        options.shares,
        secrets,
        memory_bytes=machine.memory_bytes,
        shown=(*own_directories(os.environ), *_shown_environments(options)),
    )
    init = native_program.find(native_program.INIT)
    rung = choose(options.isolation, options.data_dir, view, init)
    log.info("isolation of tasks: %s", rung.name)
    return rung


def _shown_environments(options: WorkerOptions) -> list[Path]:
    """Returns where environments are that tasks run inside, and what these consist of.

    The directories are made, because mounts need them. Programs of virtual environments are
    links to those of this process.
    """
    shown = [
        made_in(_environments_of(options) / kind)
        for kind in task_environment.KINDS
        if kind in options.environments
    ]
    for each in shown:
        each.mkdir(parents=True, exist_ok=True)
    return [*shown, Path(sys.base_prefix)] if shown else []


def _environments_of(options: WorkerOptions) -> Path:
    return options.data_dir.absolute() / "environments"


def _executor(
    options: WorkerOptions,
    machine: Machine,
    rung: Rung,
    native: Path | None,
    inside: TaskEnvironments,
    sessions: Sequence[WorkerSession],
    process: Callable[[], WorkerProcess],
    channels: TaskChannels,
    on_completion: Callable[[Completion], None],
) -> Executor:
    if options.executor == "inline":
        return InlineExecutor(on_completion)
    limits = TaskLimits(
        memory_bytes=machine.memory_bytes,
        disk_bytes=disk_for_tasks_bytes(options.data_dir),
    )
    share = _file_share(options, sessions)

    def is_online() -> bool:
        return any(each.session.online for each in sessions)

    stage = OutputStage(
        options.data_dir.absolute() / "outgoing",
        share,
        is_online=is_online,
        writer=SharedOutputs(
            [each.absolute() for each in options.shared_outputs], own_user=options.any_workdir
        ),
        limit_bytes=options.outputs_limit_bytes,
        now=clock.now,
    )

    async def find(number: int, files: ParentFiles) -> Left:
        [holder] = [each for each in sessions if number in each.agent.running]
        return await holder.parent_files.find(number, files)

    launch: Callable[[OwnDirectory, Tree, Events], Launcher] = PythonLauncher
    if native is not None:
        launch = partial(NativeLauncher, native)
    return ProcessExecutor(
        options.data_dir / "tasks",
        on_completion,
        rung=rung,
        task_limits=limits,
        any_workdir=options.any_workdir,
        on_stage=lambda number, name: process().on_stage(number, name),
        on_begun=lambda number, at: process().on_begun(number, clock.of_monotonic(at)),
        on_withdrawn=lambda number: process().on_withdrawn(number),
        launch=launch,
        preparation=lambda: Preparation(
            InputCache(
                options.data_dir / "inputs",
                options.cache_bytes,
                share.get,
                AddressReader(options.shared_files, own_user=options.any_workdir),
                options.pool,
            ),
            find,
            inside.inside,
        ),
        checkpoints=lambda: Checkpoints(
            stage,
            CheckpointFetch(
                options.data_dir.absolute() / "tasks" / "checkpoints",
                share.get,
                is_online=is_online,
                now=clock.now,
            ),
        ),
        output_stage=stage,
        log_stage=LogStage(share),
        channels=channels,
    )


def _file_share(options: WorkerOptions, sessions: Sequence[WorkerSession]) -> FileShare:
    """The pool's file share, in which any of the sessions may ask for a place."""

    async def slot(size_bytes: int, filename: str) -> Slot:
        online = next((each for each in sessions if each.session.online), None)
        if online is None:
            raise Unreachable("the server is away")
        # In production a session is nothing else.
        session = cast(xmpp_session.XmppSession, online.session)
        return await request_slot(session, options.pool, size_bytes, filename)

    return FileShare(slot, ca_file=options.ca_file)


async def _environments(
    options: WorkerOptions, rung: Rung, session: WorkerSession, inside: TaskEnvironments
) -> EnvironmentHost:
    """Makes the host of environments here, and stops those that an earlier process has left."""
    owner = EnvironmentOwner(options.pool, session.account)
    root = _environments_of(options)
    process = DriverProcess(root, owner.pool, owner.worker)

    def token_of(jid: str, password: str) -> str:
        return Token(
            host=options.host,
            port=options.port,
            tls=options.tls,
            pool=options.pool,
            jid=jid,
            password=password,
            ca=options.ca_file.read_text() if options.ca_file is not None else "",
        ).encode()

    def command_of(wanted: EnvironmentClass, worker: str) -> tuple[str, ...]:
        words = worker_command(
            wanted,
            worker,
            program=program_in(wanted.kind),
            # Another tree may have less than this machine to isolate tasks with.
            isolation=rung.name if wanted.kind in SEES_HOSTS_FILES else options.isolation,
            any_workdir=options.any_workdir and wanted.kind in SEES_HOSTS_FILES,
        )
        # This worker offers the GPUs that are found here, and it alone.
        return (*words, "--asset", f"{GPUS}=indexed:")

    drivers = {kind: DistantDriver(kind, process) for kind in options.environments}
    host = EnvironmentHost(
        session.environments,
        drivers,
        owner,
        root / "recipes",
        token_of,
        command_of,
        process.close,
    )
    await host.sweep()
    session.environments.host = host
    inside.drivers = drivers
    return host


def _plugins(options: WorkerOptions, sessions: Sequence[WorkerSession]) -> PluginProcess:
    """Makes what reads properties of this machine and runs commands there, for all sessions."""

    def on_reading(name: str, reading: PropertyReading) -> None:
        for session in sessions:
            session.properties.put(name, reading)

    process = PluginProcess(read_all_definitions(options.properties), on_reading)
    commands = read_all_commands(options.commands)
    for session in sessions:
        session.commands.commands = commands
        session.commands.runs = process
    return process


async def serve(options: WorkerOptions) -> int:
    """Runs a worker until it has drained or is stopped; returns its exit status.

    Raises:
        KestrelError: it cannot start.
        NotAllowed: the server or the pool refuses it.
    """
    machine = discover()
    rung = _rung(options, machine)
    native = None
    if options.executor == "process":
        native = native_program.find(native_program.LAUNCHER)
    sessions: list[WorkerSession] = []
    inside = TaskEnvironments(_environments_of(options) / "recipes")
    channels = TaskChannels(asyncio.get_running_loop())
    process: WorkerProcess = WorkerProcess(
        secrets.token_hex(8),
        DiskSpool(options.data_dir / "spool"),
        partial(
            _executor,
            options,
            machine,
            rung,
            native,
            inside,
            sessions,
            lambda: process,
            channels,
        ),
        clock,
        Random(),
        ManagerEpochs(options.data_dir / "manager-epochs"),
    )
    notifier = Notifier(process.status)
    process.on_draining = notifier.stopping
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, process.on_signal)
    loop.add_signal_handler(signal.SIGHUP, process.stop)
    metrics_server = keeping = environments = collecting = plugins = plugins_here = None
    try:
        _add_sessions(process, options, machine, rung, native)
        sessions += process.sessions
        for session in sessions:
            session.channels.channels = channels
        channels.said = process.on_said
        channels.has_room = lambda: all(each.has_room for each in sessions)
        # What may fail comes first: the rest sets right what an earlier process has left.
        if options.metrics:
            from kestrelctl.worker.metrics import serve_metrics

            metrics_server = await serve_metrics(options.metrics, options.metrics_allow, process)
        for session in sessions if options.poll_bytes else ():
            session.commands.runs = PollAnswers(session.properties.put, options.poll_bytes)
        if options.properties or options.commands:
            plugins_here = _plugins(options, sessions)
        if options.environments:
            host = environments = await _environments(options, rung, sessions[0], inside)
            keeper = PreparedKeeper(host.drivers, lambda: [*host.in_use(), *inside.in_use()])
            collecting = loop.create_task(logged("the collection of environments", keeper.run()))
        garbage.settle()
        notifier.ready()
        keeping = loop.create_task(logged("the watch over the keeper", keep_the_keeper()))
        if plugins_here is not None:
            plugins = loop.create_task(logged("the reading of properties", plugins_here.run()))
        log.info("worker with %d sessions for %s", len(process.sessions), options.pool)
        await process.run()
    finally:
        if metrics_server is not None:
            await metrics_server.stop()
        if keeping is not None:
            keeping.cancel()
        for each in (plugins, collecting):
            if each is not None:
                each.cancel()
        inside.close()
        if environments is not None:
            await environments.close()
        await process.close()
        notifier.close()
    if process.refused:
        raise NotAllowed("the worker was refused", cause=process.refused)
    return STOPPED if process.stopped else 0


def run(options: WorkerOptions) -> int:
    """The daemon's main program; returns the exit status."""
    logs.set_up(options.log_format, verbose=options.verbose)
    Path(options.data_dir).mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        return asyncio.run(serve(options))
    except OSError as error:
        cause = f"{error.filename}: {why(error)}" if error.filename else why(error)
        raise KestrelError("the worker cannot start", cause=cause) from error
