"""`torrentdist group` at a real cluster."""

from __future__ import annotations

from cluster_fixtures import Cluster


def test_resources_are_added_seen_and_removed(cluster: Cluster) -> None:
    """If this fails, an administrator cannot tell a group its resources, or is shown other ones."""
    added = cluster.run("group", "add", "ingest", "queue-1", "queue-2").ok()
    again = cluster.run("group", "add", "ingest", "queue-2", "queue-3").ok()
    removed = cluster.run("group", "rm", "ingest", "queue-1").ok()
    shown = cluster.run("group", "show", "ingest").ok()
    listed = cluster.run("group", "ls").ok()

    assert {"group": "ingest", "changed": ["queue-1", "queue-2"]} == added
    assert {"group": "ingest", "changed": ["queue-3"]} == again
    assert {"group": "ingest", "changed": ["queue-1"]} == removed
    assert ["queue-2", "queue-3"] == shown["resources"] == shown["unassigned"]
    assert {"group": "ingest", "algorithm": None, "members": 0, "resources": 2} in listed


def test_what_is_not_there_or_not_allowed_is_told_by_the_exit_code(cluster: Cluster) -> None:
    """If this fails, a script does not notice a typing error in the name of a group or a
    resource, or takes the workers' own group apart."""
    cluster.run("group", "add", "known", "queue-1").ok()
    codes = [
        cluster.run("group", "show", "other").code,
        cluster.run("group", "rm", "known", "queue-2").code,
        cluster.run("group", "add", "known", "../epoch").code,
        cluster.run("group", "add", "jobs", "etl.0").code,
        cluster.run("group", "identity", "known").code,
    ]

    assert [3, 3, 2, 4, 4] == codes
