"""Uploads over HTTP whose next leader has never heard of their content, or whose leader publishes
for a long time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from scripted_masters import BUNDLE, ETL, Answer, Heard, Master, client, cluster, error

from torrentdist.bundle.metafile import Metafile
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.client.bundles import upload as uploads
from torrentdist.client.bundles.upload import UploadWanted, upload
from torrentdist.client.storage import object_upload
from torrentdist.client.storage.object_upload import upload_objects
from torrentdist.model.wire.transfer_messages import UploadView

pytestmark = pytest.mark.anyio
LONGEST_SECS = 20.0


@dataclass
class NextLeader:
    """Leads since the upload was opened, and lacks its metafile until it is opened again."""

    meta: Metafile
    asked: list[str] = field(default_factory=list)
    is_opened: bool = False
    data: bytes = b""
    is_done: bool = False

    def __call__(self, heard: Heard) -> Answer:
        path = heard.path.partition("?")[0]
        if path.startswith("/v1/uploads/"):
            return self._upload(heard, path)
        if heard.method == "POST" and path == f"/v1/bundles/{ETL}":
            self.is_opened = self.is_opened or "offset" in self.asked
            return 200, self._view()
        if path == f"/v1/bundles/{ETL}/wait":
            return 200, self._view()
        if path == f"/v1/bundles/{ETL}":
            return error("bundle_not_found", fields={"id": ETL})
        return error("internal", fields={"detail": "not in this script"})

    def _upload(self, heard: Heard, path: str) -> Answer:
        self.asked.append("offset")
        if not self.is_opened:
            return error("not_found", fields={"what": "an opened upload"})
        self.data += heard.body if heard.method == "PUT" else b""
        self.is_done = self.is_done or path.endswith("/finish")
        return 200, self._view() if self.is_done else {"offset": len(self.data)}

    def _view(self) -> dict[str, Any]:
        now = {"replicas": 1, "state": "available"} if self.is_done else {"replicas": 0, "state": "uploading"}
        return {**BUNDLE, "digest": self.meta.digest, "size": self.meta.size, **now}


async def test_an_upload_is_opened_again_at_a_leader_that_lacks_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If this fails, an upload from behind a firewall waits for ever once the leader has died that
    alone had its metafile."""
    monkeypatch.setattr(uploads, "STUCK_SECS", 0.1)
    (tmp_path / "file").write_bytes(b"content")
    leader = NextLeader(make_metafile(tmp_path / "file"))
    wanted = UploadWanted(min_replicas=1, unreachable_secs=0.4)

    assert 1 == (await _uploaded(leader, wanted, tmp_path / "file")).replicas
    assert b"content" == leader.data


async def test_objects_are_sent_again_to_a_leader_that_lacks_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If this fails, `upload s3://...` waits for ever in that case."""
    monkeypatch.setattr(object_upload, "ELSEWHERE_SECS", 0.1)
    (tmp_path / "file").write_bytes(b"content")
    leader = NextLeader(make_metafile(tmp_path / "file"))

    view = await _uploaded(leader, UploadWanted(min_replicas=1), f"file://{tmp_path / 'file'}")

    assert (1, b"content") == (view.replicas, leader.data)
    assert 0 == view.owner_only, "objects have no modes, so no notice tells of some"


@dataclass
class SlowLeader(NextLeader):
    """Has all bytes, and publishes them for longer than a client waits for one answer."""

    is_opened: bool = True
    is_told: bool = False
    looks: int = 0

    def _upload(self, heard: Heard, path: str) -> Answer:
        if path.endswith("/finish"):
            self.is_told = True
            return None
        self.looks += self.is_told
        self.is_done = self.looks >= 2
        return error("not_found", fields={"what": "an opened upload"}) if self.is_done else super()._upload(heard, path)


@pytest.mark.parametrize("are_objects", [False, True])
async def test_an_upload_waits_for_a_leader_that_publishes_for_long(tmp_path: Path, are_objects: bool) -> None:
    """If this fails, the upload of a large bundle over HTTP, or from `s3://...`, is told as failed
    after all its bytes were sent, and is there a little later."""
    file = tmp_path / "file"
    file.write_bytes(b"content")
    leader = SlowLeader(make_metafile(file))
    wanted = UploadWanted(min_replicas=1, unreachable_secs=0.1)

    assert 1 == (await _uploaded(leader, wanted, f"file://{file}" if are_objects else file, deadline=0.5)).replicas
    assert b"content" == leader.data


async def _uploaded(
    leader: NextLeader, wanted: UploadWanted, what: Path | str, deadline: float = LONGEST_SECS
) -> UploadView:
    master = Master(leader)
    async with cluster(master), client(master.url, deadline=deadline) as asking, asyncio.timeout(LONGEST_SECS):
        if isinstance(what, Path):
            return await upload(asking, what, ETL, wanted)
        return await upload_objects(asking, what, ETL, wanted)
