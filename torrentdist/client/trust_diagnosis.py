"""What the doctor says about [trust]: which signatures this host wants, and where the table has
gaps.

Always: a key that does not parse never gets here, because the configuration is refused.
Pure: no I/O and no clock.
"""

from collections.abc import Iterator

from torrentdist.client import diagnosis
from torrentdist.model.access.envelope import parse_public_key_text
from torrentdist.model.configuration.config import TrustConfig
from torrentdist.model.wire.doctor_views import Finding
from torrentdist.model.wording import counted
from torrentdist.security.signing.trust import TrustMode, trust_in

_ANY = "~"
"""No bundle has this id, so only patterns that match every id match it."""


def judge_trust(trust: TrustConfig) -> Iterator[Finding]:
    if not trust.bundles:
        yield Finding(check="trust", detail="off: signatures are not looked at on this host")
        return
    for pattern, rule in sorted(trust.bundles.items()):
        ids = ", ".join(parse_public_key_text(text).id for text in rule.keys)
        detail = f"{rule.mode}: {counted(len(rule.keys), 'key')}{f' ({ids})' if ids else ''}"
        if rule.mode == TrustMode.ENFORCE and not rule.keys:
            hint = "Add the public keys that may sign them, if they should be used here."
            yield diagnosis.warning("trust", pattern, f"{detail}, so these bundles are never used", hint)
        else:
            yield Finding(check="trust", subject=pattern, detail=detail)
    others = trust_in(trust, _ANY)
    enforces = any(rule.mode == TrustMode.ENFORCE for rule in trust.bundles.values())
    if not others.pattern:
        yield Finding(check="trust", subject="all other ids", detail=f"{others.mode}: no key")
    elif enforces and others.mode is not TrustMode.ENFORCE:
        hint = 'Whoever can write records may run a job of any such id on this host: use "enforce" for it too.'
        yield diagnosis.warning("trust", others.pattern, f"other ids are not enforced ({others.mode})", hint)
