"""Decides whether a principal may use an operation, and on which bundles.

Always: what is not allowed here is refused. A role includes the roles below it; the role of hosts
is apart, and includes reading. A job gets what is its own, and nothing else.
Pure: no I/O and no clock.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase, translate
from functools import lru_cache
from typing import Final

from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import MAX_ID_LENGTH
from torrentdist.security.certificate_identity import CertificateRole
from torrentdist.security.principal import STRANGER, Principal, Role

ALL_BUNDLES: Final = "*"
_RANK: Final = {
    Role.ANYONE: 0, Role.JOB: 1, Role.HOST: 2, Role.READER: 2, Role.UPLOADER: 3, Role.SUBMITTER: 4, Role.OPERATOR: 5
}  # fmt: skip
BOUND_ROLES: Final = (Role.UPLOADER, Role.SUBMITTER)
"""The roles that a pattern binds. Each operation of theirs names the bundles that it is about."""
_PATTERN: Final = re.compile(r"[A-Za-z0-9._*?-]+", re.ASCII)


def may_use(principal: Principal, needed: Role) -> bool:
    """Whether the principal may use operations that need this role."""
    if needed is Role.HOST:
        return principal.is_host
    return _RANK[principal.role] >= _RANK[needed]


def may_change(principal: Principal, bundles: Iterable[str]) -> bool:
    """Whether the principal's pattern allows one of the ids under which this content is known."""
    if principal.role not in BOUND_ROLES or principal.bundles == ALL_BUNDLES:
        return True
    return any(fnmatchcase(bundle, principal.bundles) for bundle in bundles)


def may_read(principal: Principal, bundle: str) -> bool:
    """Whether a bundle exists for this principal. What it may not read is not there: no answer may
    differ from that about an id that nobody has used.
    """
    return bundle in principal.own_bundles or matches_one(principal.reads, bundle)


def matches_one(patterns: tuple[str, ...], bundle: str) -> bool:
    return ALL_BUNDLES in patterns or (bool(patterns) and _matcher(patterns)(bundle) is not None)


@lru_cache(maxsize=1024)
def _matcher(patterns: tuple[str, ...]) -> Callable[[str], object]:
    """Compiles patterns into one expression, since a list asks for each of its bundles."""
    return re.compile("|".join(map(translate, patterns))).match


def reads_everything(principal: Principal) -> bool:
    """Whether no bundle is hidden from this principal, whatever its id."""
    return ALL_BUNDLES in principal.reads


def may_see_pattern(principal: Principal, pattern: str) -> bool:
    """Whether a pattern names nothing that is hidden from this principal. A pattern that holds the
    beginning of an id tells that there is such an id.
    """
    return pattern in ("", ALL_BUNDLES) or may_read(principal, pattern)


def check_role(principal: Principal, needed: Role, operation: str) -> None:
    """Raises the error that says which role is missing."""
    if may_use(principal, needed):
        return
    if principal == STRANGER:
        raise TorrentdistError("unauthorized")
    if needed is Role.HOST:
        raise TorrentdistError("hosts_only", name=principal.name, operation=operation)
    raise TorrentdistError("role_needed", name=principal.name, role=principal.role, needed=needed, operation=operation)


def check_readable(principal: Principal, bundle: str) -> None:
    """Raises the error about an id that nobody has used, for a bundle that is hidden."""
    if not may_read(principal, bundle):
        raise TorrentdistError("bundle_not_found", id=bundle, note="")


def check_master(principal: Principal, what: str) -> None:
    """Raises an error for a certificate that is not a master's. `what` is for masters alone."""
    certificate = principal.certificate
    if certificate is not None and certificate.role is not CertificateRole.MASTER:
        raise TorrentdistError("forbidden", detail=f"{what} for masters alone")


def check_bundles(principal: Principal, bundles: Iterable[str]) -> None:
    """Raises the error that names the pattern that none of these ids matches."""
    bundles = sorted(bundles)
    if not may_change(principal, bundles):
        named = ", ".join(bundles) or "an unknown bundle"
        raise TorrentdistError("pattern_mismatch", name=principal.name, pattern=principal.bundles, id=named)


def check_own(principal: Principal, named: Mapping[str, object]) -> None:
    """Raises an error if a job asks for what belongs to another. `named`: the parameters of the
    path, of which `id` is a bundle and `job` a job.
    """
    if principal.role is not Role.JOB:
        return
    for kind, own in (("id", principal.own_bundles), ("job", principal.jobs)):
        if kind in named and named[kind] not in own:
            detail = f"{principal.name} runs jobs, and {str(named[kind])[:200]!r} is not theirs"
            raise TorrentdistError("forbidden", name=principal.name, detail=detail)


def may_read_content(principal: Principal, names: Iterable[str]) -> bool:
    """Whether a principal may read content that is known under these ids: one of them is enough."""
    return reads_everything(principal) or any(may_read(principal, name) for name in names)


def checked_pattern(text: str) -> str:
    """Returns a pattern of bundle ids, or raises the error that says what it may hold."""
    if len(text) > MAX_ID_LENGTH or not _PATTERN.fullmatch(text):
        raise TorrentdistError("invalid_pattern", text=text[:200])
    return text
