"""Signatures as commands use them: whether a bundle may be used here, and a new signature of one.

Always: what is verified against is the client's own configuration, never an answer of a master.
"""

import asyncio
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.client.bundles.known_bundle import bundle_there, packed_if_read
from torrentdist.client.masters.master_client import MasterClient
from torrentdist.model import ids
from torrentdist.model.access.envelope import Envelope
from torrentdist.model.configuration.config import TrustConfig
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest
from torrentdist.model.jobs.job import FILE_NAME, JobSpec, parse_job
from torrentdist.model.jobs.job_overrides import with_overrides
from torrentdist.model.wire.bundle_messages import BundleView
from torrentdist.model.wire.job_messages import SubmitBody
from torrentdist.security.signing.signatures import BundleStatement, JobStatement, SignedContent, check_bundle
from torrentdist.security.signing.signing_keys import Signer
from torrentdist.security.signing.trust import TrustMode, trust_in


class CheckedSignatures(NamedTuple):
    """The result of a check that did not refuse the bundle."""

    signers: tuple[str, ...] = ()
    """Ids of the known keys that have signed it."""
    warning: str = ""


def check_signatures(
    trust: TrustConfig, bundle: BundleId, digest: Digest, signatures: Sequence[Envelope]
) -> CheckedSignatures:
    """Raises the error of a bundle that may not be used here."""
    rule = trust_in(trust, bundle)
    if rule.mode is TrustMode.OFF:
        return CheckedSignatures()
    wanted = BundleStatement(cluster=trust.cluster, id=bundle, digest=digest)
    try:
        return CheckedSignatures(check_bundle(signatures, wanted, rule.keys))
    except TorrentdistError as error:
        if rule.mode is TrustMode.ENFORCE:
            raise
        return CheckedSignatures(warning=error.message)


async def check_with_masters(
    client: MasterClient, trust: TrustConfig, bundle: BundleId, digest: Digest
) -> CheckedSignatures:
    """Gets the signatures from a master and checks them, unless [trust] is off for this id."""
    if trust_in(trust, bundle).mode is TrustMode.OFF:
        return CheckedSignatures()
    return check_signatures(trust, bundle, digest, (await client.bundle(bundle)).signatures)


async def sign_bundle(client: MasterClient, bundle: BundleId, signer: Signer, expected: Digest | None) -> BundleView:
    """Signs the content that a bundle of the cluster has, or raises `conflict` if it is not the
    expected one."""
    view = await client.ask_patiently("GET", f"/v1/bundles/{bundle}", BundleView)
    if expected is not None and view.digest != expected:
        raise TorrentdistError("conflict", id=bundle, existing=view.digest)
    return await client.add_signature(bundle, signer.bundle(bundle, view.digest))


async def sign_copy(client: MasterClient, bundle: BundleId, signer: Signer, path: Path) -> BundleView:
    """Signs a bundle whose content is at `path`, or raises `conflict` if it has other content."""

    async def there(packed: bool) -> Digest:
        meta = await asyncio.to_thread(make_metafile, path, packed=packed)
        return (await bundle_there(client, bundle, meta)).meta.digest

    return await sign_bundle(client, bundle, signer, await packed_if_read(there))


async def signed_body(
    client: MasterClient, body: SubmitBody, local: JobSpec | None, signer: Signer, trust: TrustConfig
) -> SubmitBody:
    """Returns the request with a new job id and a signature.

    `local` is the job.toml of a directory that was just uploaded and signed. Otherwise it is read
    from a master. If that master lies about it, hosts refuse the job, since they compare it with
    the bundle.
    """
    bundle = ids.bundle_id(body.bundle)
    if local is None:
        text = (await client.file(bundle, FILE_NAME)).decode(errors="replace")
        local = parse_job(text, origin=f"{bundle}/{FILE_NAME}")
    spec = with_overrides(local, body.name, body.workers, body.conf)
    statement = JobStatement(
        cluster=signer.cluster,
        id=ids.job_id(f"{spec.name}-{secrets.token_hex(4)}"),
        bundle=await _content(client, bundle, signer, trust),
        dependencies=tuple([await _content(client, needed, signer, trust) for needed in spec.dependencies]),
        name=body.name,
        workers=body.workers,
        conf=body.conf,
        spec=spec,
    )
    return msgspec.structs.replace(body, id=statement.id, signature=signer.job(statement))


async def _content(client: MasterClient, bundle: BundleId, signer: Signer, trust: TrustConfig) -> SignedContent:
    """Returns a bundle's digest. Somebody we know must have signed it, because masters could name
    any."""
    view = await client.ask_patiently("GET", f"/v1/bundles/{bundle}", BundleView)
    wanted = BundleStatement(cluster=trust.cluster, id=bundle, digest=view.digest)
    check_bundle(view.signatures, wanted, (signer.public, *trust_in(trust, bundle).keys))
    return SignedContent(bundle, view.digest)
