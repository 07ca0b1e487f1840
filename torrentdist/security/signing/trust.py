"""Decides which keys must sign a bundle: the rule of the most specific pattern that matches its id.

Among the patterns that match, the one with the most characters besides `*` and `?` counts; then the
one with fewer `*`; then the stricter mode; then the first in the alphabet. An id that no pattern
matches has the strictest mode of the table and no key, so that a table never leaves a gap.
Pure: no I/O and no clock.
"""

from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Final

import msgspec

from torrentdist.model.access.envelope import SigningKeyText, parse_public_key_text
from torrentdist.model.configuration.config import TrustConfig


class TrustMode(StrEnum):
    OFF = "off"
    """Signatures are not looked at."""
    WARN = "warn"
    """A missing or wrong signature is reported, and changes nothing."""
    ENFORCE = "enforce"
    """Without a right signature a bundle is not used."""


_STRICTNESS: Final = {TrustMode.OFF: 0, TrustMode.WARN: 1, TrustMode.ENFORCE: 2}


class BundleTrust(msgspec.Struct, frozen=True):
    """What the configuration wants of the signatures of one bundle."""

    mode: TrustMode
    keys: tuple[SigningKeyText, ...] = ()
    pattern: str = ""
    """The pattern that counts; empty: none matches."""


def trust_in(config: TrustConfig, bundle: str) -> BundleTrust:
    """Returns the rule for this bundle."""
    modes = {pattern: TrustMode(rule.mode) for pattern, rule in config.bundles.items()}
    matching = [pattern for pattern in modes if fnmatchcase(bundle, pattern)]
    if not matching:
        return BundleTrust(max(modes.values(), key=_STRICTNESS.__getitem__, default=TrustMode.OFF))
    chosen = min(matching, key=lambda pattern: _rank(pattern, modes[pattern]))
    return BundleTrust(modes[chosen], tuple(map(parse_public_key_text, config.bundles[chosen].keys)), chosen)


def _rank(pattern: str, mode: TrustMode) -> tuple[int, int, int, str]:
    """Returns a number that is the smaller, the more specific a pattern is."""
    literals = len(pattern) - pattern.count("*") - pattern.count("?")
    return -literals, pattern.count("*"), -_STRICTNESS[mode], pattern
