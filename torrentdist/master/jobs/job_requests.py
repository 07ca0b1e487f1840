"""What users ask of jobs: submit, show, steer, drain a supervisor.

Always: every change is a decision of job_operations.py or job_duties.py, committed through the
fence. A job is checked before it is recorded: first job.toml alone, so that an error names its
place in that file, then with the cluster's defaults by the validator plug-in. A plug-in that fails
or takes too long refuses the job.
Never: place workers. The job loop does.
"""

import asyncio
import importlib
import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from torrentdist.bundle.job_files import file_problem, job_text
from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.cluster.session.znode_operations import Op
from torrentdist.host.hand_outs import HandOuts
from torrentdist.master.bundles.bundle_views import not_found
from torrentdist.master.changes.answered_requests import Mutation, Requests
from torrentdist.master.changes.commit import LeaderChanges
from torrentdist.master.jobs.heartbeats import Heartbeats
from torrentdist.master.jobs.job_duties import drain_ops
from torrentdist.master.jobs.job_operations import NewJob, event_ops, find_job, submit_ops
from torrentdist.master.jobs.job_views import job_list, job_view
from torrentdist.master.jobs.lifecycle import Event
from torrentdist.master.jobs.story_keeper import Stories
from torrentdist.master.master_session import MasterSession
from torrentdist.master.reads.paging import Page
from torrentdist.master.reads.readable_records import readable
from torrentdist.model import ids
from torrentdist.model.configuration.config import JobsConfig
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, JobId, SupervisorId
from torrentdist.model.jobs.job import FILE_NAME, JobSpec
from torrentdist.model.jobs.job_overrides import check_defaults, job_with_defaults, with_overrides
from torrentdist.model.records import BundleState
from torrentdist.model.wire.job_messages import JobView, SubmitBody
from torrentdist.security.authorization import Principal

VALIDATE_SECS = 20.0
_ID_END = re.compile(r"[0-9a-f]{8}", re.ASCII)


class JobRequests:
    def __init__(
        self,
        session: MasterSession,
        changes: LeaderChanges,
        heartbeats: Heartbeats,
        stories: Stories,
        hand_outs: HandOuts,
        config: JobsConfig,
    ) -> None:
        self._session = session
        self._mirror = session.mirror
        self._changes = changes
        self._heartbeats = heartbeats
        self._stories = stories
        self._hand_outs = hand_outs
        self._validation = Validation(config)
        self._submitting = Requests(session.zookeeper)

    async def submit(self, mutation: Mutation | None, body: SubmitBody, sender: Principal) -> bytes:
        """Submits a job. A client that sends it again does not make the master validate it
        twice."""
        async with self._submitting.turn(mutation):
            return await self._changes.recall(mutation) or await self._submit(mutation, body, sender)

    async def _submit(self, mutation: Mutation | None, body: SubmitBody, sender: Principal) -> bytes:
        bundle = ids.bundle_id(body.bundle)
        content, parsed = await self._spec_of(bundle)
        spec = with_overrides(parsed, body.name, body.workers, body.conf)
        problem = await asyncio.to_thread(file_problem, content, spec)
        if problem is not None:
            raise TorrentdistError("job_invalid", origin=f"{bundle}/{FILE_NAME}", detail=": ".join(problem))
        await self._validation.check(spec, content)
        job = NewJob(_id_of(body, spec), bundle, spec, body.activate, body.signature)

        def decide(snapshot: ClusterSnapshot) -> Sequence[Op]:
            """A job reads what it depends on, so its submitter must be able to. A name is taken
            also by a job that is hidden."""
            seen = replace(snapshot, bundles=readable(snapshot, sender).bundles)
            return submit_ops(seen, job, self._session.server_now())

        return await self._changes.make_alone(mutation, decide, lambda s: self.view(s, job.id))

    async def _spec_of(self, bundle: BundleId) -> tuple[Path, JobSpec]:
        entry = self._mirror.snapshot.bundles.get(bundle)
        if entry is None or entry.record.state in (BundleState.REMOVED, BundleState.UPLOADING):
            raise not_found(bundle, entry)
        stored = await self._hand_outs.checked(entry.record.digest)
        if stored is None:
            raise TorrentdistError("not_ready", detail=f"bundle {bundle} is still on its way to this master")
        text = await asyncio.to_thread(job_text, stored.content, FILE_NAME)
        if text is None:
            raise TorrentdistError("job_file_missing", what=f"bundle {bundle}")
        return stored.content, self._validation.parse(text, f"{bundle}/{FILE_NAME}")

    async def happen(self, mutation: Mutation | None, wanted: str, event: Event) -> bytes:
        return await self._changes.make(mutation, lambda s: event_ops(s, wanted, event), lambda s: self.view(s, wanted))

    async def recall(self, mutation: Mutation | None) -> bytes | None:
        """Returns the kept answer to this mutation, if there is one."""
        return await self._changes.recall(mutation)

    async def drain(self, mutation: Mutation | None, supervisor: SupervisorId, draining: bool) -> bytes:
        def decide(snapshot: ClusterSnapshot) -> list[Op]:
            if supervisor not in snapshot.supervisors and supervisor not in snapshot.assignments:
                raise TorrentdistError("not_found", what=f"supervisor {supervisor!r}")
            return [*drain_ops(snapshot, supervisor, draining)]

        return await self._changes.make(mutation, decide, lambda s: {"id": supervisor, "draining": draining})

    def server_now(self) -> float:
        """Returns the time by ZooKeeper's clock, which tells all deadlines."""
        return self._session.server_now()

    def view(self, snapshot: ClusterSnapshot, wanted: str) -> JobView:
        entry, now = find_job(snapshot, wanted), self._session.zookeeper.server_now()
        return job_view(snapshot, entry, self._heartbeats.reports(snapshot), self._heartbeats.recent(), now)

    async def told(self, snapshot: ClusterSnapshot, wanted: str) -> JobView:
        """Returns the view of a job with its story."""
        view = self.view(snapshot, wanted)
        return msgspec.structs.replace(view, events=await self._stories.events(view.id))

    def views(
        self, snapshot: ClusterSnapshot, page: Page, listed: Callable[[JobId], bool] = lambda _: True
    ) -> list[JobView]:
        """Returns a page of the jobs that `listed` accepts."""
        reports, recent = self._heartbeats.reports(snapshot), self._heartbeats.recent()
        return job_list(snapshot, reports, recent, self._session.zookeeper.server_now(), page, listed)


def _id_of(body: SubmitBody, spec: JobSpec) -> JobId:
    """Returns the id of a new job: the one that its submitter has signed, else a new one."""
    if body.signature is None:
        return ids.job_id(f"{spec.name}-{secrets.token_hex(4)}")
    name, _, digits = body.id.rpartition("-")
    if name != spec.name or not _ID_END.fullmatch(digits):  # so that no id is another job's name
        raise TorrentdistError("job_invalid", origin="id", detail=f"{body.id!r} is not {spec.name}- and 8 hex digits")
    return ids.job_id(body.id)


class JobValidator(Protocol):
    """The interface of the class that `jobs.validator` names. It is created without arguments."""

    def validate(self, job: Mapping[str, Any], bundle: str) -> Iterable[str]:
        """Returns what is wrong with the job; nothing if it may run. `job` is the completed
        job.toml, `bundle` the directory of its bundle. Several threads call it at once."""
        ...


class Validation:
    def __init__(self, config: JobsConfig) -> None:
        self._defaults = config.defaults
        self._name = config.validator
        self._validate = _load(config.validator) if config.validator else None
        check_defaults(config.defaults)

    def parse(self, text: str, origin: str) -> JobSpec:
        """Returns the job of a job.toml, with the cluster's defaults."""
        return job_with_defaults(text, self._defaults, origin=origin)

    async def check(self, spec: JobSpec, bundle: Path) -> None:
        """Raises `job_refused` unless the plug-in accepts the job."""
        if self._validate is None:
            return
        document = msgspec.to_builtins(spec)
        document["resources"] = msgspec.structs.asdict(spec.resources)  # records leave out what is not limited
        try:
            async with asyncio.timeout(VALIDATE_SECS):
                problems = await asyncio.to_thread(_ask, self._validate, document, str(bundle))
        except TimeoutError:
            problems = [f"{self._name} has said nothing for {VALIDATE_SECS:g} s"]
        except Exception as exc:
            problems = [f"{self._name} raised {type(exc).__name__}: {exc}"]
        if problems:
            raise TorrentdistError("job_refused", id=spec.name, detail="; ".join(problems))


def _ask(validate: Callable[..., Iterable[str]], document: Mapping[str, Any], bundle: str) -> list[str]:
    return [str(problem) for problem in validate(document, bundle) or ()]


def _load(name: str) -> Callable[..., Iterable[str]]:
    module, _, attribute = name.partition(":")
    try:
        validate = getattr(importlib.import_module(module), attribute)().validate
    except Exception as exc:
        raise TorrentdistError("validator_invalid", name=name, detail=f"{type(exc).__name__}: {exc}") from exc
    if not callable(validate):
        raise TorrentdistError("validator_invalid", name=name, detail="validate is no method")
    return validate  # type: ignore[no-any-return]
