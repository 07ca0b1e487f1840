"""The first containers of pods, run again and again with the manifests' own scripts and volumes in
a directory."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import yaml
from cluster_fixtures import Cluster
from swarm_members import membership

from torrentdist.security.authority.authority_files import init_authority, issue_files, read_authority
from torrentdist.security.authority.membership_files import MEMBERSHIP, keep_memberships, read_memberships
from torrentdist.security.certificate_identity import CertificateRole
from torrentdist.security.private_files import read_private
from torrentdist.security.tls_contexts import TlsFiles, client_context

MANIFEST = Path(__file__).parent.parent.parent / "deploy/kubernetes/masters.yaml"
BACKUP, SUPERVISORS = MANIFEST.with_name("backup.yaml"), MANIFEST.with_name("supervisors.yaml")
POD = "torrentdist-master-0"
STATEFUL_SET = next(d for d in yaml.safe_load_all(MANIFEST.read_text()) if d["kind"] == "StatefulSet")
SPEC = STATEFUL_SET["spec"]["template"]["spec"]


def given_secret(work: Path) -> None:
    """Fills the secret of docs/kubernetes.md."""
    ca, given = work / "ca", work / "secrets"
    init_authority(ca, "test", time.time())
    issue_files(ca, CertificateRole.MASTER, POD, ["127.0.0.1"], None, time.time())
    given.mkdir()
    (given / "token").write_text("operators-token")
    for name in ("ca.pem", "ca.key"):
        (given / name).write_bytes((ca / name).read_bytes())
    for name in ("certificate.pem", "key.pem", "zookeeper.auth"):
        (given / f"{POD}.{name}").write_bytes((ca / "hosts" / POD / name).read_bytes())


def start(work: Path) -> subprocess.CompletedProcess[str]:
    """Runs the container, with its mounts below `work`."""
    (container,) = SPEC["initContainers"]
    return run(container, work, {"PATH": "/usr/bin:/bin", "POD_NAME": POD})


def run(container: dict[str, Any], work: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Runs a container's script, with its mounts below `work`."""
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    script = re.sub("|".join(sorted(mounts)), lambda found: f"{work}{found[0]}", container["command"][-1])
    for mount in mounts:
        Path(f"{work}{mount}").mkdir(parents=True, exist_ok=True)
    command = [*container["command"][:-1], script]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)


def open_to_group(volume: Path) -> None:
    """Does what the kubelet does to a volume for `fsGroup`."""
    for path in (volume, *volume.rglob("*")):
        path.chmod(path.stat().st_mode | (0o770 if path.is_dir() else 0o660))


def test_a_master_starts_again_on_a_volume_that_was_opened_to_the_group(tmp_path: Path) -> None:
    """If this fails, a master's pod that is deleted or moved never starts again: the daemon refuses
    its own key."""
    given_secret(tmp_path)
    volume = tmp_path / "var/lib/torrentdist/master"
    tls, secrets = volume / "tls", tmp_path / "run/secrets/torrentdist"
    first = start(tmp_path)
    keep_memberships(tls / MEMBERSHIP, [membership(read_authority(tmp_path / "ca").key)])
    (tls / "certificate.pem").write_text((tls / "certificate.pem").read_text() + "# renewed\n")
    open_to_group(volume)
    second = start(tmp_path)

    assert (0, 0) == (first.returncode, second.returncode), first.stderr + second.stderr
    client_context(TlsFiles(tls / "ca.pem", tls / "certificate.pem", tls / "key.pem"))
    assert 1 == len(read_memberships(tls / MEMBERSHIP))
    assert (tls / "certificate.pem").read_text().endswith("# renewed\n")
    for name in ("token", "ca.key", "zookeeper.auth"):
        read_private(secrets / name)


def test_a_volume_with_the_right_group_is_left_alone() -> None:
    """If this fails, each start of a master changes the mode of every file of its bundles, and the
    master reads all of them again."""
    assert "OnRootMismatch" == SPEC["securityContext"]["fsGroupChangePolicy"]


JOINING = """#!/bin/sh
# Stands for `torrentdist host join`, of a cluster that refuses invitations with the text `refused`.
for invitation; do :; done
cat "$invitation" >> "$TLS/../joined"
grep -q refused "$invitation" && exit 4
touch "$TLS/certificate.pem" "$TLS/zookeeper.auth"
"""


def test_a_node_joins_once_by_each_invitation(tmp_path: Path) -> None:
    """If this fails, a node that was revoked and invited again never comes back, or a node that is
    in the cluster cannot start while no master answers."""
    daemons = next(d for d in yaml.safe_load_all(SUPERVISORS.read_text()) if d["kind"] == "DaemonSet")
    (container,) = daemons["spec"]["template"]["spec"]["initContainers"]
    tls, given = tmp_path / "var/lib/torrentdist/supervisor/tls", tmp_path / "invitations/node-1"
    command = tmp_path / "bin/torrentdist"
    for folder in (command.parent, given.parent):
        folder.mkdir()
    command.write_text(JOINING)
    command.chmod(0o755)
    env = {"PATH": f"{command.parent}:/usr/bin:/bin", "NODE_NAME": "node-1", "TLS": str(tls)}

    def starts(invitation: str | None) -> tuple[bool, str]:
        """Starts the pod with this invitation in the secret. Returns whether its first container
        ends well, and by which invitation the node asked to join."""
        given.unlink(missing_ok=True)
        if invitation is not None:
            given.write_text(invitation)
        joined = tls.with_name("joined")
        joined.unlink(missing_ok=True)
        ended = run(container, tmp_path, env)
        return ended.returncode == 0, joined.read_text() if joined.exists() else ""

    assert [(False, ""), (False, "refused"), (True, "one")] == [starts(each) for each in (None, "refused", "one")]
    assert [(True, "")] * 3 == [starts(each) for each in ("one", "", None)]
    assert [(False, "two, refused"), (True, "two"), (True, "")] == list(map(starts, ("two, refused", "two", "two")))
    (tls / "invitation.sha256").unlink()  # as on a node that joined before a release that notes it
    assert [(True, "refused"), (True, "two"), (True, "")] == [starts(each) for each in ("refused", "two", "two")]


def test_the_backups_job_keeps_the_newest_fourteen(cluster: Cluster, tmp_path: Path) -> None:
    """If this fails, there is no backup when it is needed, or the volume fills up."""
    job = next(d for d in yaml.safe_load_all(BACKUP.read_text()) if d["kind"] == "CronJob")
    (container,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    for folder in ("backups", "secrets", "etc/torrentdist"):
        (tmp_path / folder).mkdir(parents=True)
    for day in range(20):
        (tmp_path / "backups" / f"202001{day:02}T021700Z.backup").write_text("old")
    (tmp_path / "secrets/token").write_text(cluster.dev.token_file.read_text())
    (tmp_path / "secrets/ca.pem").write_text("")
    masters = ", ".join(f'"{cluster.url(name)}"' for name in cluster.masters())
    token = tmp_path / "run/secrets/torrentdist/token"
    (tmp_path / "etc/torrentdist/client.toml").write_text(f'[client]\nmasters = [{masters}]\ntoken_file = "{token}"\n')
    made = run(container, tmp_path, {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"})
    kept = sorted((tmp_path / "backups").iterdir())

    assert 0 == made.returncode, made.stderr
    assert 14 == len(kept)
    assert (0o600, True) == (kept[-1].stat().st_mode & 0o777, kept[-1].stat().st_size > 100)
