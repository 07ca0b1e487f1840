"""Which resource groups a program may join."""

from __future__ import annotations

import pytest

from torrentdist.cluster.paths import free_group
from torrentdist.model.errors import TorrentdistError


def test_the_group_of_the_jobs_is_nobodys_else() -> None:
    """If this fails, a program that joins `jobs` gets a coordinator there, which deletes the
    barriers of workers."""
    with pytest.raises(TorrentdistError) as caught:
        free_group("jobs")

    assert "forbidden" == caught.value.code
    assert "/groups/jobs2" == free_group("jobs2").root
