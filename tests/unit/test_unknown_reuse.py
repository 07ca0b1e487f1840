"""What an upload says where no master tells what it had already."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripted_masters import BUNDLE, ETL, Answer, Heard, Master, client, cluster, error

from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.client.bundles.upload import upload
from torrentdist_cli.bundles.reuse_wording import reuse_line

pytestmark = pytest.mark.anyio


async def test_what_no_master_told_is_not_known(tmp_path: Path) -> None:
    """An upload of which nearly all was there would be told as one of which all is new."""
    (tmp_path / "file").write_bytes(b"content")
    digest = make_metafile(tmp_path / "file").digest

    def answer(heard: Heard) -> Answer:
        if heard.path.startswith("/v1/reuse"):
            return error("internal", fields={"detail": "no room"})
        return 200, {**BUNDLE, "digest": digest}

    master = Master(answer)
    async with cluster(master), client(master.url) as asking:
        view = await upload(asking, tmp_path / "file", ETL)

    assert (None, None, []) == (view.new_bytes, view.reused_bytes, view.reused_from)
    assert "not known" in reuse_line(view.new_bytes, view.size, view.reused_from)
