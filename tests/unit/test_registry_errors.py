"""What is told to somebody whose image cannot be pushed or imported."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from registry_clients import needs_skopeo

from torrentdist.client.storage.image_source import copy_image
from torrentdist.model.errors import TorrentdistError
from torrentdist.supervisor.images.registry_errors import registry_answer


@pytest.mark.parametrize(
    ("realm", "way"),
    [
        ("", 'Basic realm="torrentdist"'),
        ("http://g/v2/token", 'Bearer realm="http://g/v2/token",service="torrentdist"'),
    ],
)
def test_a_push_without_a_token_is_told_how_to_give_it(realm: str, way: str) -> None:
    """A user of podman would look for a setting of ours, and docker would not ask for a token."""
    answer = registry_answer(TorrentdistError("unauthorized"), realm)
    (told,) = json.loads(bytes(answer.body))["errors"]

    assert (401, way) == (answer.status_code, answer.headers["www-authenticate"])
    assert "password" in told["detail"]


@needs_skopeo
def test_what_skopeo_says_is_told_without_its_escapes(tmp_path: Path) -> None:
    """A user would read backslashes."""
    with pytest.raises(TorrentdistError) as refused:
        asyncio.run(copy_image("docker://127.0.0.1:9/x:1", tmp_path / "l", "1", all_platforms=False, verify_tls=True))

    assert '"https://127.0.0.1:9/v2/"' in refused.value.message
    assert "\\" not in refused.value.message
