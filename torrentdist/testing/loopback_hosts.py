"""Hosts on loopback that give a plug-in the services of a daemon, with real HTTP servers and real
swarms.

Always: a crashed host answers no request. It stays a holder until it is withdrawn, as a master does
until its session expires.
Never: verify or publish what a plug-in downloads. A test checks the bare result.
"""

from __future__ import annotations

import asyncio
import secrets
import shutil
from contextlib import suppress
from pathlib import Path

import httpx

from torrentdist.bundle.metafile import Metafile
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.distributor.plugin_files import as_parsed
from torrentdist.distributor.protocol import Holder
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import Digest, MasterId
from torrentdist.testing.file_server import FileFault, FileServer
from torrentdist.testing.loop_thread import BackgroundLoop
from torrentdist.testing.loopback_swarm import LoopbackSwarm
from torrentdist.testing.sample_trees import Tree, write_tree


class LoopbackHosts:
    """The cluster as a plug-in sees it: bundles and their holders. A context manager."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._loop = BackgroundLoop()
        self._swarm = LoopbackSwarm(self._loop)
        self._token = secrets.token_hex(8)
        self._hosts: dict[str, LoopbackHost] = {}
        self._metafiles: dict[str, Metafile] = {}
        self._removed: set[str] = set()
        self._holders: dict[str, list[LoopbackHost]] = {}

    def __enter__(self) -> LoopbackHosts:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self, name: str) -> LoopbackHost:
        """Returns a new host, with a file server and a BitTorrent engine."""
        host = LoopbackHost(self, name, self._directory / name, self._loop, self._swarm, self._token)
        self._hosts[name] = host
        return host

    def close(self) -> None:
        self._loop.run(self._stop_servers())
        for host in self._hosts.values():
            host.close()
        self._loop.close()

    async def _stop_servers(self) -> None:
        """Stops all servers at the same time, since each takes a moment."""
        await asyncio.gather(*(host.stop_server() for host in self._hosts.values()))

    def forget(self, bundle_id: str) -> None:
        """Removes the bundle: it has no holder, and its metafile is unknown from now on."""
        self._holders.pop(bundle_id, None)
        self._removed.add(bundle_id)

    def learn(self, bundle_id: str, metafile: Metafile) -> None:
        self._metafiles[bundle_id] = metafile
        self._removed.discard(bundle_id)

    def add_holder(self, bundle_id: str, host: LoopbackHost) -> None:
        holders = self._holders.setdefault(bundle_id, [])
        if host not in holders:
            holders.append(host)

    def remove_holder(self, bundle_id: str, host: LoopbackHost) -> None:
        with suppress(ValueError):
            self._holders.get(bundle_id, []).remove(host)

    def holders(self, bundle_id: str) -> list[LoopbackHost]:
        return list(self._holders.get(bundle_id, []))

    def metafile(self, bundle_id: str) -> Metafile:
        if bundle_id in self._removed or bundle_id not in self._metafiles:
            raise TorrentdistError("bundle_not_found", id=bundle_id)
        return self._metafiles[bundle_id]

    def digest(self, bundle_id: str) -> Digest:
        """Returns the last digest of this id, even after its removal."""
        return self._metafiles[bundle_id].digest


class LoopbackHost:
    """One host: HostServices for its plug-in, and for a test the actions of the daemon around the
    plug-in."""

    def __init__(
        self, hosts: LoopbackHosts, name: str, directory: Path, loop: BackgroundLoop, swarm: LoopbackSwarm, token: str
    ) -> None:
        self.id = MasterId(name)
        self.directory = directory
        self._hosts = hosts
        self._loop = loop
        self._swarm = swarm
        self._server = FileServer(self._find_file, token)
        self._client = httpx.Client(headers={"Authorization": f"Bearer {token}"}, timeout=10.0, trust_env=False)
        self._loop.run(self._server.start())

    # HostServices.

    def holders(self, bundle_id: str) -> list[Holder]:
        return [Holder(host.id, host.url) for host in self._hosts.holders(bundle_id)]

    def http(self) -> httpx.Client:
        return self._client

    def metafile(self, bundle_id: str) -> bytes:
        return self._hosts.metafile(bundle_id).raw

    def fetch_by_swarm(self, metafile: Metafile | bytes, dest_dir: Path, *, stall_secs: float) -> None:
        self._swarm.fetch(self.id, as_parsed(metafile), dest_dir, stall_secs)

    def seed(self, metafile: Metafile | bytes, content_dir: Path) -> None:
        self._swarm.seed(self.id, as_parsed(metafile), content_dir)

    def stop_seeding(self, digest: Digest) -> None:
        self._swarm.leave(self.id, digest)

    # For tests.

    @property
    def url(self) -> str:
        return self._server.url

    def plugin_dir(self) -> Path:
        """The plug-in's own directory: `data_dir` of its configuration."""
        path = self.directory / "plugin"
        path.mkdir(parents=True, exist_ok=True)
        return path

    def content_dir(self, digest: Digest) -> Path:
        """Returns the directory for the files of a bundle."""
        path = self.directory / "objects" / digest / "content"
        path.mkdir(parents=True, exist_ok=True)
        return path

    def take_directory(self, bundle_id: str, tree: Tree) -> Path:
        """Lets a bundle arrive as a directory. Returns its content directory, for upload()."""
        arrived = self._arrive(tree)
        return self._take(bundle_id, make_metafile(arrived), arrived)

    def take_single_file(self, bundle_id: str, tree: Tree) -> Path:
        """Lets a bundle arrive as a single file. Returns its content directory, for upload()."""
        arrived = self._arrive(tree)
        (file,) = arrived.iterdir()
        return self._take(bundle_id, make_metafile(file), arrived)

    def publish(self, bundle_id: str) -> None:
        """Makes this host a holder, which serves the files."""
        self._hosts.add_holder(bundle_id, self)

    def withdraw(self, bundle_id: str) -> None:
        self._hosts.remove_holder(bundle_id, self)

    def crash(self) -> None:
        """Breaks off all answers, including those in progress."""
        self._loop.run(self._server.stop())
        self._swarm.crash(self.id)

    def restart(self) -> None:
        """Comes back at the same address, and seeds what it seeded before."""
        self._loop.run(self._server.start())
        self._swarm.restart(self.id)

    def spoil_files(self, fault: FileFault) -> None:
        """Makes this host's file server fail in this way from now on."""
        self._server.fault = fault

    async def stop_server(self) -> None:
        await self._server.stop()

    def asked_files(self) -> list[tuple[str, str | None]]:
        """The paths that were requested from this host's file server, each with its range."""
        return list(self._server.asked)

    def close(self) -> None:
        self.crash()
        self._client.close()

    def _arrive(self, tree: Tree) -> Path:
        arrived = self.directory / "arriving"
        shutil.rmtree(arrived, ignore_errors=True)
        arrived.mkdir(parents=True)
        write_tree(arrived, tree)
        return arrived

    def _take(self, bundle_id: str, metafile: Metafile, arrived: Path) -> Path:
        self._hosts.learn(bundle_id, metafile)
        content = self.content_dir(metafile.digest)
        if any(content.iterdir()):
            shutil.rmtree(arrived)
        else:
            arrived.rename(content)
        return content

    def _find_file(self, bundle_id: str, path: str) -> Path:
        if self not in self._hosts.holders(bundle_id):
            raise TorrentdistError("bundle_unavailable", id=bundle_id, detail="this master does not hold it")
        metafile = self._hosts.metafile(bundle_id)
        if all(file.path != path for file in metafile.files):
            raise TorrentdistError("not_found", what=f"file {path!r}")
        return self.content_dir(metafile.digest) / path
