"""Computes the next local state from an assignment or from a job's facts.

Always: a worker that is no longer assigned keeps its place until it is forgotten. A new incarnation
of a job starts with fresh worker lives.
Pure: no I/O and no clock.
"""

from collections.abc import Callable, Collection, Mapping

import msgspec

from torrentdist.launcher.job_users import JobUsers
from torrentdist.model.ids import BundleId, JobId
from torrentdist.model.records import AssignmentRecord
from torrentdist.supervisor.jobs.local_state import JobFacts, LocalState, RunRecord, WorkerPlace
from torrentdist.supervisor.process.job_isolation import free_user
from torrentdist.supervisor.worker.worker_life import free_slot
from torrentdist.supervisor.worker.worker_types import Key, Life

replace = msgspec.structs.replace


def place_of(state: LocalState, key: Key) -> WorkerPlace | None:
    return next((place for place in state.places if place.key == key), None)


def changed(state: LocalState, key: Key, change: Callable[[WorkerPlace], WorkerPlace]) -> LocalState:
    return replace(state, places=tuple(change(p) if p.key == key else p for p in state.places))


def follow(state: LocalState, record: AssignmentRecord) -> LocalState:
    """Returns the state in which exactly the workers of this record are assigned."""
    told = {(worker.job, worker.worker): worker for worker in record.workers}
    places = []
    for place in state.places:
        worker = told.pop(place.key, None)
        if worker is None:
            places.append(replace(place, assigned=False))
        else:
            places.append(replace(place, assigned=True, active=worker.active, of=worker.of))
    for key, worker in told.items():
        slot = free_slot({place.slot for place in places})
        places.append(WorkerPlace(job=key[0], worker=key[1], slot=slot, active=worker.active, of=worker.of))
    return _with_jobs(replace(state, generation=record.generation, places=tuple(places)))


def informed(state: LocalState, job: JobId, facts: JobFacts) -> LocalState:
    """Returns the state after a master has described a job."""
    places = tuple(_renewed(place, facts) if place.job == job else place for place in state.places)
    return _with_jobs(replace(state, places=places, jobs={**state.jobs, job: facts}))


def _renewed(place: WorkerPlace, facts: JobFacts) -> WorkerPlace:
    if place.incarnation == facts.incarnation:
        return place
    fresh = WorkerPlace(job=place.job, worker=place.worker, slot=place.slot, of=place.of)
    return replace(
        fresh,
        assigned=place.assigned,
        active=place.active,
        incarnation=facts.incarnation,
        run=place.run,
        fencing=place.fencing,
    )


def forgotten(state: LocalState, key: Key) -> LocalState:
    return _with_jobs(replace(state, places=tuple(p for p in state.places if p.key != key)))


def _with_jobs(state: LocalState) -> LocalState:
    named = {place.job for place in state.places}
    return replace(
        state,
        jobs={job: facts for job, facts in state.jobs.items() if job in named},
        users={job: uid for job, uid in state.users.items() if job in named},
    )


def with_user(state: LocalState, job: JobId, users: JobUsers, seed: str, barred: Collection[int] = ()) -> LocalState:
    """Returns the state in which the job has one of these users that is not barred. It has none if
    all are taken."""
    uid = state.users.get(job)
    if uid is not None and users.has(uid):
        return state
    others = {other: uid for other, uid in state.users.items() if other != job}
    chosen = free_user(users, {*others.values(), *barred}, f"{seed}/{job}")
    return replace(state, users=others if chosen is None else {**others, job: chosen})


def started(state: LocalState, key: Key, run: RunRecord) -> LocalState:
    return changed(state, key, lambda place: replace(place, run=run, fencing=run.fencing, detail=""))


def carried(state: LocalState, sessions: Mapping[Key, int]) -> LocalState:
    """Returns the state in which the runs of these workers belong to the given sessions."""

    def moved(place: WorkerPlace) -> WorkerPlace:
        session = sessions.get(place.key)
        if place.run is None or session is None:
            return place
        return replace(place, run=replace(place.run, session=session))

    return replace(state, places=tuple(map(moved, state.places)))


def not_started(state: LocalState, key: Key, detail: str, not_before: float) -> LocalState:
    return changed(state, key, lambda place: replace(place, run=None, detail=detail, not_before=not_before))


def fetched(state: LocalState, key: Key, at: float) -> LocalState:
    return changed(state, key, lambda place: replace(place, fetched_at=place.fetched_at or at))


def lived(state: LocalState, key: Key, life: Life, detail: str, at: float) -> LocalState:
    """Returns the state after a run has ended at the wall-clock time `at`."""

    def change(place: WorkerPlace) -> WorkerPlace:
        return replace(
            place,
            run=None,
            restarts=life.restarts,
            in_a_row=life.in_a_row,
            exit_code=life.exit_code,
            ended=life.ended,
            ended_at=at,
            not_before=life.not_before,
            detail=detail,
        )

    return changed(state, key, change)


def life_of(place: WorkerPlace, clock_ahead: float = 0.0) -> Life:
    """Returns a worker's life on the clock that is `clock_ahead` seconds behind the host's
    clock."""
    not_before = place.not_before - clock_ahead if place.not_before else 0.0
    return Life(place.restarts, place.in_a_row, not_before, place.exit_code, place.ended)


def needs_of(state: LocalState, jobs: Collection[JobId]) -> frozenset[BundleId]:
    """Returns the bundles of these jobs, and those that their runs began with."""
    wanted: set[BundleId] = set()
    for job in jobs:
        if (facts := state.jobs.get(job)) is not None:
            wanted |= facts.needs
    for place in state.places:
        if place.job in jobs and place.run is not None:
            wanted |= set(place.run.needs)
    return frozenset(wanted)


def needs(state: LocalState) -> frozenset[BundleId]:
    """Returns the bundles of all workers that are assigned here or still run here."""
    wanted: set[BundleId] = set()
    for place in state.places:
        facts = state.jobs.get(place.job)
        if facts is not None and place.assigned:
            wanted |= facts.needs
        if place.run is not None:
            wanted |= set(place.run.needs)
    return frozenset(wanted)
