"""Maps names and tags of images to ids of bundles, and back.

Always: two images have two bundles.
Pure: no I/O.

    app:1              image--app--1
    team/app:v2        image--team--app--v2
    a--b/app:1         image--a-b-app-1--5d2f0c3e9a1b

A bundle keeps its id for a while after it was removed. Until then, a tag that was deleted and
pushed again is the bundle of its next generation, `image--app--1--_g1`.
"""

import re
from hashlib import sha256
from typing import Final

import msgspec

from torrentdist.model import ids
from torrentdist.model.ids import BundleId

PREFIX: Final = "image--"
LONGEST_NAME: Final = 255
_PART: Final = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_NAME: Final = re.compile(rf"{_PART}(?:/{_PART})*", re.ASCII)
_TAG: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}", re.ASCII)
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)
_HASHED: Final = re.compile(r".*--[0-9a-f]{12}", re.ASCII)
_HASH_DIGITS: Final = 12
_MARK: Final = "--"
GENERATIONS: Final = 5
"""How many bundles a tag may stand for, one after the other, while removed ones keep their ids."""
_GENERATION: Final = re.compile(rf"(.+){_MARK}_g([1-{GENERATIONS - 1}])", re.ASCII)
_REFERRER: Final = re.compile(r"referrer\.[0-9a-f]{16}\.[0-9a-f]{16}", re.ASCII)


class Image(msgspec.Struct, frozen=True):
    name: str
    tag: str

    @property
    def bundle(self) -> BundleId:
        """Returns the bundle that holds this image's layout, unless its tag was deleted once."""
        return self.in_generation(0)

    @property
    def generations(self) -> list[BundleId]:
        """Returns the bundles of which one may hold this image. The first one that is there
        counts."""
        return [self.in_generation(number) for number in range(GENERATIONS)]

    def in_generation(self, number: int) -> BundleId:
        """Returns the bundle of this image after so many deletions of its tag."""
        parts = [*self.name.split("/"), self.tag]
        plain = PREFIX + _MARK.join(parts)
        ending = f"{_MARK}_g{number}" if number else ""
        if len(plain + ending) <= ids.MAX_ID_LENGTH and _image_of(plain) == self:
            return BundleId(plain + ending)
        told = f"{self.name}:{self.tag}" + (f"#{number}" if number else "")
        digits = sha256(told.encode()).hexdigest()[:_HASH_DIGITS]
        room = ids.MAX_ID_LENGTH - len(PREFIX) - len(_MARK) - _HASH_DIGITS
        slug = re.sub("[^A-Za-z0-9._]+", "-", told)[:room].strip("-")
        return BundleId(f"{PREFIX}{slug}{_MARK}{digits}")


def image_of(bundle: BundleId) -> Image | None:
    """Returns the image of a bundle whose id tells it; None if it is no image, or only a hash of
    the image's name is in the id."""
    later = _GENERATION.fullmatch(bundle)
    plain, number = (later[1], int(later[2])) if later is not None else (bundle, 0)
    image = _image_of(plain)
    return image if image is not None and image.in_generation(number) == bundle else None


def _image_of(plain: str) -> Image | None:
    """Reads an id that no hash has shortened."""
    name, mark, tag = plain.removeprefix(PREFIX).rpartition(_MARK)
    image = Image(name.replace(_MARK, "/"), tag)
    is_plain = plain.startswith(PREFIX) and mark and is_name(image.name) and is_tag(tag)
    doubtful = any(one.fullmatch(plain) for one in (_HASHED, _GENERATION))
    return image if is_plain and not doubtful else None


def is_name(text: str) -> bool:
    return len(text) <= LONGEST_NAME and _NAME.fullmatch(text) is not None


def is_tag(text: str) -> bool:
    return _TAG.fullmatch(text) is not None


def referrer_tag(subject: str, digest: str) -> str:
    """Returns the tag under which a manifest about another one is kept, if it came without a tag.
    Both are digests."""
    return f"referrer.{subject.removeprefix('sha256:')[:16]}.{digest.removeprefix('sha256:')[:16]}"


def is_referrer_tag(text: str) -> bool:
    return _REFERRER.fullmatch(text) is not None


def is_digest(text: str) -> bool:
    return _DIGEST.fullmatch(text) is not None


def named_in(registry: str, name: str) -> str:
    """Returns the name under which an image of another registry is kept. A runtime that has the
    gateway as a mirror tells the registry that it mirrors."""
    return name if registry in ("", "docker.io") else f"{registry.replace(':', '_')}/{name}"
