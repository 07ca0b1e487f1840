"""The rule of [trust] for any table and any id."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from torrentdist.model.configuration.config import TrustConfig, TrustRule
from torrentdist.security.signing.trust import TrustMode, trust_in

pytestmark = pytest.mark.case("F12")

ID = st.text("ab-1", min_size=1, max_size=5)
PATTERN = st.text("ab-1*?", min_size=1, max_size=5)
TABLE = st.dictionaries(PATTERN, st.sampled_from(list(TrustMode)), max_size=6)
STRICT = [TrustMode.OFF, TrustMode.WARN, TrustMode.ENFORCE]


def table(modes: dict[str, TrustMode]) -> TrustConfig:
    return TrustConfig(cluster="c", bundles={pattern: TrustRule(mode=mode.value) for pattern, mode in modes.items()})


def literals(pattern: str) -> int:
    return sum(character not in "*?" for character in pattern)


@example(modes={"aa?": TrustMode.OFF, "a****": TrustMode.ENFORCE}, bundle="aaa")
@example(modes={"a*": TrustMode.WARN, "*a": TrustMode.ENFORCE, "a**": TrustMode.OFF}, bundle="aa")
@example(modes={"a*": TrustMode.ENFORCE, "*a": TrustMode.WARN}, bundle="aa")
@given(modes=TABLE, bundle=ID)
def test_the_most_specific_pattern_counts(modes: dict[str, TrustMode], bundle: str) -> None:
    """A general rule would overrule the one that was written for a bundle."""
    chosen = trust_in(table(modes), bundle)
    matching = [pattern for pattern in modes if fnmatchcase(bundle, pattern)]

    assert bool(matching) == bool(chosen.pattern)
    if matching:
        assert chosen.pattern in matching
        assert chosen.mode is modes[chosen.pattern]
        assert literals(chosen.pattern) == max(map(literals, matching))
        tied = [
            p for p in matching if (literals(p), p.count("*")) == (literals(chosen.pattern), chosen.pattern.count("*"))
        ]
        assert STRICT.index(chosen.mode) == max(STRICT.index(modes[p]) for p in tied)


@given(modes=TABLE, bundle=ID, mode=st.sampled_from(list(TrustMode)))
def test_an_exact_id_beats_every_pattern(modes: dict[str, TrustMode], bundle: str, mode: TrustMode) -> None:
    """No exception could be made for one bundle."""
    assert mode is trust_in(table({**modes, bundle: mode}), bundle).mode


@given(modes=TABLE, bundle=ID)
def test_an_id_without_a_pattern_has_the_strictest_mode_and_no_key(modes: dict[str, TrustMode], bundle: str) -> None:
    """A table that enforces `etl-*` would let anything run under another id."""
    chosen = trust_in(table(modes), bundle)
    if not chosen.pattern:
        strictest = max(modes.values(), key=STRICT.index, default=TrustMode.OFF)

        assert (strictest, ()) == (chosen.mode, chosen.keys)


@given(modes=TABLE, bundle=ID)
def test_the_order_of_the_table_is_nothing(modes: dict[str, TrustMode], bundle: str) -> None:
    """Two hosts with the same table would decide differently."""
    assert trust_in(table(modes), bundle) == trust_in(table(dict(reversed(modes.items()))), bundle)
