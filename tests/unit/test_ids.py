"""Which texts are identifiers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from torrentdist.model import ids
from torrentdist.model.errors import TorrentdistError

KINDS = [
    ids.bundle_id,
    ids.master_id,
    ids.supervisor_id,
    ids.job_id,
    ids.token_name,
    ids.peer_id,
    ids.store_id,
    ids.request_id,
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", ["a", "9", "Z-._z", "x" * ids.MAX_ID_LENGTH])
def test_an_id_is_short_and_has_few_kinds_of_characters(kind: Callable[[str], str], text: str) -> None:
    """A record or a file could not be named by what a user chose."""
    assert text == kind(text)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", ["", ".", "..", "-a", "a/b", "a b", "a\n", "\u00e9", "x" * (ids.MAX_ID_LENGTH + 1)])
def test_what_cannot_be_part_of_a_path_is_no_id(kind: Callable[[str], str], text: str) -> None:
    """A text from outside would name another record, or a file outside of its directory."""
    with pytest.raises(TorrentdistError) as caught:
        kind(text)

    assert "invalid_id" == caught.value.code


def test_a_digest_has_64_small_hexadecimal_digits() -> None:
    """One content would have several names, or a file would be named by a stranger."""
    assert "0123456789abcdef" * 4 == ids.digest("0123456789abcdef" * 4)
    for text in ("", "a" * 63, "a" * 65, "A" * 64, "g" * 64, "a" * 64 + "\n"):
        with pytest.raises(TorrentdistError) as caught:
            ids.digest(text)
        assert "invalid_digest" == caught.value.code


def test_a_new_id_is_another_one_each_time() -> None:
    """Two uploads would be one bundle."""
    first, second = ids.new_random_id("job"), ids.new_random_id("job")

    assert first != second
    assert [True, True] == [ids.job_id(one).startswith("job-") for one in (first, second)]
    assert len("job-") + 16 == len(first)
