"""Names of images and the bundles that hold them."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from torrentdist.bundle.images.image_names import Image, image_of, is_digest, is_name, is_tag
from torrentdist.model import ids

PART = r"[a-z0-9]{1,60}((\.|_|__|-{1,3})[a-z0-9]{1,3}){0,2}"
NAMES = st.from_regex(f"{PART}(/{PART}){{0,3}}", fullmatch=True)
TAGS = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}", fullmatch=True)


@given(NAMES, TAGS, NAMES, TAGS)
@example("a/b", "c", "a", "b--c")
@example("a--b", "c", "a/b", "c")
@example("a", "b-", "a", "b")
@example("a", "_b", "a", "b")
@example("a", "0123456789ab", "a", "0123456789ac")
@example("/".join(["a" * 60] * 4), "b", "/".join(["a" * 60] * 4), "c")
def test_two_images_have_two_bundles(name: str, tag: str, other: str, other_tag: str) -> None:
    """A pull would get another image than the one that was asked for."""
    one, two = Image(name, tag), Image(other, other_tag)
    assert is_name(name)
    assert is_tag(tag)
    assert (one == two) == (one.bundle == two.bundle)
    assert ids.bundle_id(one.bundle) == one.bundle
    assert image_of(one.bundle) in (one, None)


def test_a_plain_name_can_be_read_in_the_id() -> None:
    """An operator who looks at the list of bundles would not know what they are."""
    assert "image--team--app--v2" == Image("team/app", "v2").bundle
    assert Image("team/app", "v2") == image_of(Image("team/app", "v2").bundle)
    assert Image("a--b/app", "1").bundle.startswith("image--a-b-app-1--")
    assert image_of(Image("a--b/app", "1").bundle) is None


def test_what_is_no_name_is_refused() -> None:
    for name in ("", "A", "a//b", "/a", "a/", "a..b", "../a", "a b", "a" * 256):
        assert not is_name(name), name
    for tag in ("", "-a", ".a", "a/b", "a:b", "a" * 129):
        assert not is_tag(tag), tag
    assert is_digest("sha256:" + "0a" * 32)
    for digest in ("sha256:" + "a" * 63, "sha256:" + "A" * 64, "md5:" + "a" * 64):
        assert not is_digest(digest), digest
