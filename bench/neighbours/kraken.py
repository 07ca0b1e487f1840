"""Kraken in the lab: an origin that has the file, a tracker on a link without limits, and an agent
on each host.

Always: every setting that is not a path or an address is that of the published base.yaml, apart
from those that a kind names. A host is done when its agent has the whole blob in its cache.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.lab.namespaces import BRIDGE, Host, wait_until
from bench.neighbours.neighbour_daemon import READY_SECS, await_go, await_port, built, daemon, stay, with_own_tmp
from bench.neighbours.reference_hosts import ReferenceHosts, Roles

ORIGIN_PORT, ORIGIN_PEER_PORT = 15002, 15001
TRACKER_PORT = 15003
AGENT_PORT, AGENT_PEER_PORT, REGISTRY_PORT = 16002, 16001, 16000
NOBODY = "127.0.0.1:9"
"""There is no build-index: nobody asks for tags."""
NAMESPACE = "lab"
MANY = 64
TUNED: dict[str, Any] = {
    "metainfogen": {"piece_lengths": {0: "256KB"}},
    "scheduler": {"dispatch": {"pipeline_limit": 4, "origin_pipeline_limit": 2}, "connstate": {"max_open_conn": MANY}},
}
"""Smaller pieces, which can be passed on earlier, and connections to all others."""


def kraken(changed: dict[str, Any] | None = None) -> Callable[[ReferenceHosts], Roles]:
    """`changed`: settings that replace those of base.yaml."""

    def stage(stage: ReferenceHosts) -> Roles:
        here = [sys.executable, "-m", "bench.neighbours.kraken"]
        extra = json.dumps(changed or {})
        tracker = stage.dir / "tracker"
        tracker.mkdir()
        config = _config(
            "tracker", tracker, {"origin": {"hosts": {"static": [f"{stage.seeder.address}:{ORIGIN_PORT}"]}}}
        )
        command = [str(built("kraken") / "tracker"), "--config", config, "--port", str(TRACKER_PORT)]
        stage.beside_them("kraken-tracker", with_own_tmp(command))
        wait_until(lambda: stage.lab.listens(TRACKER_PORT), "Kraken's tracker")
        digest = hashlib.sha256(stage.file.read_bytes()).hexdigest()
        (origin := stage.dir / "origin").mkdir()
        seeding = [*here, "origin", stage.seeder.address, str(origin), digest, extra, str(stage.file)]

        def fetching(host: Host) -> list[str]:
            return [*here, "agent", host.address, str(stage.home(host)), digest, extra]

        return seeding, fetching

    return stage


def run_origin(address: str, home: Path, digest: str, changed: dict[str, Any], file: Path) -> None:
    own = {
        "cluster": {"static": [f"{address}:{ORIGIN_PORT}"]},
        "blobserver": {"listener": {"net": "unix", "addr": f"{home}/origin.sock"}},
        "castore": {"upload_dir": f"{home}/upload/", "cache_dir": f"{home}/cache/"},
        "localdb": {"source": f"{home}/origin.db"},
    }
    command = [str(built("kraken") / "origin"), "--config", _config("origin", home, own, changed)]
    command += [f"--blobserver-hostname={address}", f"--blobserver-port={ORIGIN_PORT}"]
    with daemon(with_own_tmp([*command, f"--peer-ip={address}", f"--peer-port={ORIGIN_PEER_PORT}"]), home):
        await_port(address, ORIGIN_PORT)
        _await_answer(address, ORIGIN_PORT, "/health")
        _upload(address, digest, file.read_bytes())
        _await_answer(BRIDGE, TRACKER_PORT, "/readiness")
        await_go()
        stay()


def run_agent(address: str, home: Path, digest: str, changed: dict[str, Any]) -> None:
    own = {
        "tracker": {"hosts": {"static": [f"{BRIDGE}:{TRACKER_PORT}"]}},
        "build_index": {"hosts": {"static": [NOBODY]}},
        "store": {"download_dir": f"{home}/download/", "cache_dir": f"{home}/cache/"},
        "registry": {"docker": {"http": {"net": "unix", "addr": f"{home}/registry.sock"}}},
    }
    command = [str(built("kraken") / "agent"), "--config", _config("agent", home, own, changed)]
    command += [f"--peer-ip={address}", f"--peer-port={AGENT_PEER_PORT}"]
    command += [f"--agent-server-port={AGENT_PORT}", f"--agent-registry-port={REGISTRY_PORT}"]
    with daemon(with_own_tmp(command), home):
        await_port("127.0.0.1", AGENT_PORT)
        _await_answer("127.0.0.1", AGENT_PORT, "/health")
        await_go()
        line = http.client.HTTPConnection("127.0.0.1", AGENT_PORT, timeout=3600)
        line.request("GET", f"/namespace/{NAMESPACE}/blobs/sha256:{digest}")
        answer = line.getresponse()  # the agent answers when it has all of the blob
        if answer.status != 200:
            sys.exit(f"the agent answers {answer.status}: {answer.read(500)!r}")
        (home / "done").touch()
        stay()


def _config(kind: str, home: Path, own: dict[str, Any], changed: dict[str, Any] | None = None) -> str:
    """Writes a configuration that extends the published one, and returns its path."""
    logs = {"outputPaths": ["stdout"], "errorOutputPaths": ["stdout"]}
    nginx = {"name": f"kraken-{kind}", "cache_dir": f"{home}/nginx/", "log_dir": str(home)}
    settings = {
        "extends": str(built("kraken") / "config" / kind / "base.yaml"),
        "zap": logs,
        "tls": {"server": {"disabled": True}, "client": {"disabled": True}},
        "nginx": nginx,
        **own,
        **_of(kind, changed or {}),
    }
    if kind == "agent":
        log = {"torrentlog": {"path": f"{home}/torrent.log"}}
        settings["scheduler"] = {**settings.get("scheduler", {}), **log}
    path = home / f"{kind}.yaml"
    path.write_text(json.dumps(settings))  # YAML, too
    return str(path)


def _of(kind: str, changed: dict[str, Any]) -> dict[str, Any]:
    known = {"origin": ("metainfogen", "scheduler"), "agent": ("scheduler",), "tracker": ()}[kind]
    return {key: value for key, value in changed.items() if key in known}


def _upload(address: str, digest: str, content: bytes) -> None:
    """Gives the origin a blob, as another origin would."""
    at = f"/internal/blobs/sha256:{digest}/uploads"
    line = http.client.HTTPConnection(address, ORIGIN_PORT, timeout=600)
    line.request("POST", at)
    started = line.getresponse()
    started.read()
    uid = started.headers["Location"]
    for method, body, headers in (
        ("PATCH", content, {"Content-Range": f"0-{len(content)}"}),
        ("PUT", b"", {}),
    ):
        line.request(method, f"{at}/{uid}", body=body, headers=headers)
        answer = line.getresponse()
        said = answer.read()
        if answer.status >= 300:
            sys.exit(f"the origin answers {answer.status} to {method}: {said[:500]!r}")


def _await_answer(host: str, port: int, path: str) -> None:
    deadline = time.monotonic() + READY_SECS
    said = b""
    while time.monotonic() < deadline:
        try:
            line = http.client.HTTPConnection(host, port, timeout=5)
            line.request("GET", path)
            answer = line.getresponse()
            said = answer.read()
            if answer.status == 200:
                return
        except OSError:
            pass
        time.sleep(0.1)
    sys.exit(f"{host}:{port}{path} is not ready: {said[:500]!r}")


def main(role: str, address: str, home: str, digest: str, changed: str, file: str = "") -> None:
    if role == "origin":
        run_origin(address, Path(home), digest, json.loads(changed), Path(file))
    else:
        run_agent(address, Path(home), digest, json.loads(changed))


if __name__ == "__main__":
    main(*sys.argv[1:])
