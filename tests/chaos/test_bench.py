"""The benchmark's short form, except for what mostly waits; that is in the integration ring."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench_short import rows_that_miss

pytestmark = [pytest.mark.alone, pytest.mark.quiet]


@pytest.mark.case("E8")
def test_the_short_form_meets_its_bars_with_room_for_noise(tmp_path: Path) -> None:
    """If this fails, a release is twice as slow as promised, or grows without end, and no other
    test notices. It takes long because it moves real data."""
    barred, missed, table = rows_that_miss("metafile,download,upload,seeding,handover", tmp_path)

    assert {
        "metafile",
        "download-large",
        "downloader-memory",
        "download-files",
        "metafile-wire",
        "upload",
        "seeding-memory",
        "seeding-growth",
        "failover-stopped",
        "failover-transferred",
        "standby-fetch",
    } <= barred
    assert [] == missed, table
