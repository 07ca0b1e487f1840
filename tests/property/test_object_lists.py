"""Names of buckets and lists of objects, beside the plainest code that says the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from torrentdist.bundle.bundle_tree import BundleTree
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.model.ids import BundleId
from torrentdist.supervisor.objects.bucket_listing import ObjectIndex, ObjectPage, PageRequest, list_page
from torrentdist.supervisor.objects.bucket_names import LONGEST, bucket_of, bundle_of
from torrentdist.testing.sample_trees import write_tree

IDS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,80}", fullmatch=True)
KEYS = st.lists(st.text("ab/.\xff", min_size=1, max_size=6).map(str.encode), unique=True, max_size=12).map(sorted)
PARTS = st.text("ab/\xff", max_size=3).map(str.encode)


@given(IDS)
@example("x-abc")
@example("x-a--0b")
@example("10.0.0.1")
@example("a..b")
@example("a.-b")
@example("ab-")
@example("ab")
def test_a_bucket_leads_back_to_its_bundle(text: str) -> None:
    """A client would read another bundle than the one that it named."""
    bundle = BundleId(text)
    bucket = bucket_of(bundle)
    assert bundle == bundle_of(bucket)
    if bucket != text:
        assert bucket.startswith("x-")
        assert 3 <= len(bucket) <= LONGEST
        assert bucket.replace("-", "").isalnum()
        assert bucket.lower() == bucket
        assert bucket[-1] != "-"


@pytest.mark.parametrize(
    ("bundle", "bucket"),
    [
        ("etl-42", "etl-42"),
        ("My_model-7.1", "x--my-0model-17-21"),
        ("10.0.0.1", "x-10-20-20-21"),
        ("x-a", "x-x-1a"),
        ("A" * 40, "A" * 40),
    ],
)
def test_a_bucket_has_a_name_that_s3_allows_if_it_can(bundle: str, bucket: str) -> None:
    """Clients that check names would refuse the bucket, or scripts would have to change after an
    upgrade."""
    assert bucket == bucket_of(BundleId(bundle))


def test_a_link_to_a_file_is_an_object(tmp_path: Path) -> None:
    """A copy would lack what the bundle shows under a second name."""
    write_tree(tmp_path / "in", {"d/a": b"aa"})
    (tmp_path / "in" / "b").symlink_to("d/a")
    (tmp_path / "in" / "c").symlink_to("d")
    meta = make_metafile(tmp_path / "in")
    index = ObjectIndex(meta, BundleTree(meta))

    assert [(b"b", 2), (b"d/a", 2)] == [(key, file.size) for key, file in zip(index.keys, index.files, strict=True)]


@given(IDS, IDS)
@example("x-x-a--10b", "x-a--0b")
def test_two_bundles_have_two_buckets(one: str, other: str) -> None:
    assert (one == other) == (bucket_of(BundleId(one)) == bucket_of(BundleId(other)))


def plain_entries(keys: list[bytes], wanted: PageRequest) -> list[bytes]:
    """Returns all keys and common prefixes after the place where the list begins, in order."""
    found: list[bytes] = []
    for key in keys:
        if key <= wanted.after or not key.startswith(wanted.prefix):
            continue
        rest = key[len(wanted.prefix) :]
        shown = key
        if wanted.delimiter and wanted.delimiter in rest:
            shown = wanted.prefix + rest.partition(wanted.delimiter)[0] + wanted.delimiter
        if shown not in found and shown > wanted.after:
            found.append(shown)
    return found


def entries_of(keys: list[bytes], page: ObjectPage) -> list[bytes]:
    return sorted([*(keys[place] for place in page.objects), *page.prefixes])


@given(KEYS, PARTS, PARTS, PARTS, st.integers(1, 4))
@example([b"a/1", b"a/2", b"b"], b"", b"/", b"a/", 1)
@example([b"/1", b"/2", b"b"], b"", b"/", b"", 4)
@example([b"a/1", b"a/2", b"b"], b"", b"/", b"a/1", 1)
@example([b"a\xff\xff1", b"a\xff\xff2", b"b"], b"", b"\xff", b"", 1)
def test_pages_together_are_the_list(
    keys: list[bytes], prefix: bytes, delimiter: bytes, after: bytes, most: int
) -> None:
    """A copy would lack an object that no page has, and have one twice that is on two pages."""
    wanted = PageRequest(prefix, delimiter, after, most)
    found: list[bytes] = []
    while True:
        page = list_page(keys, wanted)
        entries = entries_of(keys, page)
        assert len(entries) <= most
        found += entries
        if not page.is_cut:
            break
        assert entries
        assert entries[-1] == page.last
        wanted = PageRequest(prefix, delimiter, page.last, most)

    assert plain_entries(keys, PageRequest(prefix, delimiter, after)) == found
