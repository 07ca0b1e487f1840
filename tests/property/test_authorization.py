"""Authorization as a table: what each role may use, and on which bundles."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import MAX_ID_LENGTH, BundleId, JobId
from torrentdist.security.authorization import (
    BOUND_ROLES,
    LOCAL,
    STRANGER,
    TOKEN_HOLDER,
    Principal,
    Proof,
    Role,
    certificate_holder,
    check_bundles,
    check_master,
    check_own,
    check_readable,
    check_role,
    checked_pattern,
    host_user,
    may_change,
    may_read,
    may_read_content,
    may_see_pattern,
    may_use,
    reads_everything,
    where_hosts_have_certificates,
)
from torrentdist.security.certificate_identity import CertificateIdentity, CertificateRole

pytestmark = pytest.mark.case("F5")

PEOPLE = (Role.ANYONE, Role.JOB, Role.READER, Role.UPLOADER, Role.SUBMITTER, Role.OPERATOR)
"""The roles of people and jobs, the weakest first."""
IDS = st.text("ab-.1", min_size=1, max_size=8)
PATTERNS = st.text("ab-.1*?", min_size=1, max_size=8)


def principal(role: Role, bundles: str = "*", *, speaks_for_hosts: bool = False) -> Principal:
    return Principal("ann", role, Proof.TOKEN, bundles=bundles, speaks_for_hosts=speaks_for_hosts)


@given(st.sampled_from(PEOPLE), st.sampled_from(PEOPLE), PATTERNS)
def test_a_person_may_use_what_the_own_role_or_a_lower_one_needs(role: Role, needed: Role, pattern: str) -> None:
    """A reader could submit jobs, or an operator could not read."""
    assert (PEOPLE.index(role) >= PEOPLE.index(needed)) == may_use(principal(role, pattern), needed)


@given(st.sampled_from(Role), st.booleans())
def test_only_hosts_may_use_what_hosts_need(role: Role, speaks_for_hosts: bool) -> None:
    """An operator's own token would be enough to pose as every host of the cluster."""
    sender = principal(role, speaks_for_hosts=speaks_for_hosts)

    assert (role is Role.HOST or speaks_for_hosts) == may_use(sender, Role.HOST)


@given(st.sampled_from(PEOPLE[3:]))
def test_a_host_reads_and_changes_nothing(needed: Role) -> None:
    """A stolen host certificate would be enough to upload, or to submit a job."""
    host = principal(Role.HOST)

    assert (True, False) == (may_use(host, Role.READER), may_use(host, needed))


@example(Role.UPLOADER, "*", [])
@given(st.sampled_from(Role), PATTERNS, st.lists(IDS, max_size=3))
def test_a_pattern_binds_uploaders_and_submitters_alone(role: Role, pattern: str, ids: list[str]) -> None:
    """A token for one team's bundles could change those of another team."""
    allowed = role not in BOUND_ROLES or pattern == "*" or any(fnmatchcase(id_, pattern) for id_ in ids)

    assert allowed == may_change(principal(role, pattern), ids)


@pytest.mark.case("I1")
@given(st.lists(PATTERNS, max_size=3), st.frozensets(IDS, max_size=2), IDS)
def test_a_bundle_is_read_by_pattern_or_because_it_is_the_own(
    patterns: list[str], own: frozenset[str], bundle: str
) -> None:
    """A team could read the bundles of another one, or not its own."""
    sender = Principal(
        "ann", Role.READER, Proof.TOKEN, reads=tuple(patterns), own_bundles=frozenset(map(BundleId, own))
    )
    expected = bundle in own or any(fnmatchcase(bundle, pattern) for pattern in patterns)

    assert expected == may_read(sender, bundle)
    assert ("*" in patterns) == reads_everything(sender)
    assert may_read(sender, bundle) or not reads_everything(sender)
    if expected:
        check_readable(sender, bundle)
        return
    with pytest.raises(TorrentdistError) as caught:
        check_readable(sender, bundle)
    assert ("bundle_not_found", bundle) == (caught.value.code, caught.value.fields["id"])


@pytest.mark.case("I1")
@given(PATTERNS, PATTERNS, IDS)
def test_a_pattern_that_is_shown_leads_to_no_hidden_bundle(reads: str, pattern: str, bundle: str) -> None:
    """A list of rules or tokens would tell the ids of another team's bundles."""
    sender = Principal("ann", Role.READER, Proof.TOKEN, reads=(reads,))
    if "*" not in pattern and "?" not in pattern and may_see_pattern(sender, pattern):
        assert may_read(sender, pattern)
    assert may_see_pattern(sender, "*")
    assert not may_see_pattern(Principal("ann", Role.READER, Proof.TOKEN, reads=()), bundle)


@given(st.sampled_from(Role), st.sampled_from(Role))
def test_a_refusal_names_the_role_that_is_missing(role: Role, needed: Role) -> None:
    """A refused user could not tell which role to ask for."""
    sender = STRANGER if role is Role.ANYONE else principal(role)
    if may_use(sender, needed):
        check_role(sender, needed, "POST /v1/jobs")
        return
    with pytest.raises(TorrentdistError) as caught:
        check_role(sender, needed, "POST /v1/jobs")

    if sender == STRANGER:
        assert "unauthorized" == caught.value.code
    elif needed is Role.HOST:
        assert "hosts_only" == caught.value.code
    else:
        assert ("role_needed", needed) == (caught.value.code, caught.value.fields["needed"])
        assert f"--role {needed}" in caught.value.hint


@given(
    st.sampled_from(Role), st.frozensets(IDS, max_size=3), st.frozensets(IDS, max_size=3),
    st.dictionaries(st.sampled_from(["id", "job", "path", "worker"]), IDS),
)  # fmt: skip
def test_a_job_is_bound_to_what_is_its_own(
    role: Role, bundles: set[str], jobs: set[str], named: dict[str, str]
) -> None:
    """A job could read the bundles of other jobs, or keep a dead worker of another one alive."""
    sender = Principal(
        "job", role, Proof.JOB_TOKEN, jobs=frozenset(map(JobId, jobs)), own_bundles=frozenset(map(BundleId, bundles))
    )
    is_own = named.get("id") in (None, *bundles) and named.get("job") in (None, *jobs)
    if role is not Role.JOB or is_own:
        check_own(sender, named)
        return
    with pytest.raises(TorrentdistError, match="runs jobs, and"):
        check_own(sender, named)


@pytest.mark.parametrize("text", ["a", "etl-*", "?.A_z-9", "a" * MAX_ID_LENGTH])
def test_a_pattern_of_ids_is_taken(text: str) -> None:
    """A token for a team's bundles could not be made."""
    assert text == checked_pattern(text)


@pytest.mark.parametrize("text", ["", "a b", "a/b", "[ab]", "\u00e9", "a\n", "a" * (MAX_ID_LENGTH + 1), "a" * 300])
def test_what_is_no_pattern_of_ids_is_refused(text: str) -> None:
    """A pattern that matches nothing, or more than its author reads, would be kept for ever."""
    with pytest.raises(TorrentdistError) as caught:
        checked_pattern(text)

    assert ("invalid_pattern", text[:200]) == (caught.value.code, caught.value.fields["text"])


@given(st.sampled_from(BOUND_ROLES), PATTERNS.filter(lambda text: text != "*"), IDS)
def test_a_refusal_names_the_pattern_that_does_not_match(role: Role, pattern: str, bundle: str) -> None:
    """A refused user would not know which ids are allowed."""
    if fnmatchcase(bundle, pattern):
        check_bundles(principal(role, pattern), [bundle])
        return
    with pytest.raises(TorrentdistError) as caught:
        check_bundles(principal(role, pattern), [bundle])

    assert ("pattern_mismatch", True, True) == (
        caught.value.code,
        repr(pattern) in caught.value.message,
        bundle in caught.value.message,
    )


def test_a_refusal_without_a_bundle_says_so() -> None:
    """A refused user would read an error that names nothing."""
    with pytest.raises(TorrentdistError, match="an unknown bundle"):
        check_bundles(principal(Role.UPLOADER, "etl-*"), [])


@pytest.mark.parametrize(
    ("reads", "role"), [(("*",), Role.OPERATOR), (("a*", "*"), Role.OPERATOR), (("a*",), Role.READER)]
)
def test_a_local_user_who_may_not_read_all_decides_nothing(reads: tuple[str, ...], role: Role) -> None:
    """I1: a user of one team could have a host drop what another team's jobs need."""
    assert Principal("user 7", role, Proof.CONNECTION, reads=reads) == host_user(7, reads)


def test_with_tls_nobody_is_trusted_without_a_proof_or_speaks_for_hosts() -> None:
    """F1: any program on a master's machine could pose as every host of the cluster."""
    ann = principal(Role.UPLOADER, "etl-*")

    assert [None, None] == [where_hosts_have_certificates(sender) for sender in (None, LOCAL)]
    assert ann == where_hosts_have_certificates(ann)
    assert Principal("token", Role.OPERATOR, Proof.TOKEN_FILE) == where_hosts_have_certificates(TOKEN_HOLDER)


def test_what_is_for_masters_alone_is_refused_to_other_certificates() -> None:
    """F4: a host could read the cluster's whole backup."""
    master, supervisor = (
        certificate_holder(CertificateIdentity("main", role, "h"))
        for role in (CertificateRole.MASTER, CertificateRole.SUPERVISOR)
    )
    for sender in (master, LOCAL, principal(Role.READER)):
        check_master(sender, "the backup is")
    with pytest.raises(TorrentdistError) as caught:
        check_master(supervisor, "the backup is")

    assert ("forbidden", "the backup is for masters alone") == (caught.value.code, caught.value.fields["detail"])


@pytest.mark.case("F6")
@example("*", frozenset(), frozenset())
@given(st.one_of(st.just(""), PATTERNS), st.frozensets(IDS, max_size=3), st.frozensets(IDS, max_size=3))
def test_a_host_may_have_content_under_one_of_its_names(
    pattern: str, assigned: frozenset[str], names: frozenset[str]
) -> None:
    """A stolen certificate of one host would open the bundles of all, or a host would not get what
    its job needs."""
    host = Principal(
        "h", Role.HOST, Proof.CERTIFICATE, reads=(pattern,) if pattern else (),
        own_bundles=frozenset(map(BundleId, assigned)),
    )  # fmt: skip
    matches = pattern != "" and any(fnmatchcase(name, pattern) for name in names)

    assert (pattern == "*" or bool(names & assigned) or matches) == may_read_content(host, names)
