"""Invites hosts, lists and revokes them, and lets this host join.

Always: the key of a host is made on the host and never leaves it. Before anything is sent to a
master, its CA has the fingerprint of the invitation.
"""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from torrentdist.client.masters.master_client import MasterClient
from torrentdist.http.access import Trust, with_token
from torrentdist.http.api_calls import Request, error_in
from torrentdist.http.connection_pool import Http
from torrentdist.http.http_values import HttpError
from torrentdist.model import ids
from torrentdist.model.access.host_messages import (
    CertificateView,
    HostBundlesBody,
    HostView,
    InvitationBody,
    InvitationView,
    JoinedView,
    PlaceView,
    RedemptionBody,
)
from torrentdist.model.configuration.config import ClientConfig, Config, TlsConfig
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.wording import cause_text
from torrentdist.security.authority.invitation import Invitation
from torrentdist.security.authorization import ALL_BUNDLES
from torrentdist.security.tokens import hash_of, new_secret


async def invite_host(
    client: MasterClient,
    id_: str,
    role: str,
    addresses: Sequence[str],
    ttl_secs: float,
    bundles: str = ALL_BUNDLES,
    secret: Callable[[], str] = new_secret,
) -> tuple[Invitation, float]:
    """Makes an invitation. Returns it with the time at which it expires."""
    text = secret()
    body = InvitationBody(
        id=id_, role=role, addresses=list(addresses), ttl_secs=ttl_secs, hash=hash_of(text), bundles=bundles
    )
    view = await client.mutate(Request("POST", "/v1/invitations", content=msgspec.json.encode(body)), InvitationView)
    invitation = Invitation(
        id=view.id,
        role=view.role,
        addresses=view.addresses,
        masters=client.masters,
        ca=await asyncio.to_thread(_fingerprints, client.config.ca_file),
        secret=text,
    )
    return invitation, view.expires_at


def _fingerprints(ca_file: str) -> str:
    """Returns the fingerprints of the CAs in a file."""
    from torrentdist.security.authority.certificates import fingerprint
    from torrentdist.security.authority.pem_texts import parse_certificates

    if not ca_file:
        raise TorrentdistError("config_missing", detail="client.ca_file names no CA, so no invitation can name it")
    try:
        certificates = parse_certificates(Path(ca_file).expanduser().read_bytes())
    except (OSError, ValueError) as exc:
        raise TorrentdistError("certificate_invalid", path=ca_file, detail=cause_text(exc)) from exc
    return ",".join(map(fingerprint, certificates))


async def list_hosts(client: MasterClient) -> list[HostView]:
    return await client.read("GET", "/v1/hosts", list[HostView])


async def allow_bundles(client: MasterClient, id_: str, bundles: str) -> HostView:
    """Sets the pattern of the bundles that a supervisor may have besides those that are assigned to
    it."""
    content = msgspec.json.encode(HostBundlesBody(bundles=bundles))
    return await client.mutate(Request("PUT", f"/v1/hosts/{ids.peer_id(id_)}/bundles", content=content), HostView)


async def forget_host(client: MasterClient, id_: str) -> None:
    """Forgets a host or master that is gone."""
    await client.mutate(Request("DELETE", f"/v1/presence/{id_}"), dict[str, str])


async def revoke_host(client: MasterClient, id_: str, *, unknown: bool = False) -> HostView:
    """Shuts a host out. `unknown`: also if the cluster has never seen a host of this id."""
    params = {"unknown": "true"} if unknown else {}
    return await client.mutate(Request("DELETE", f"/v1/hosts/{ids.peer_id(id_)}", params=params), HostView)


async def join(config: Config, invitation: Invitation) -> JoinedView:
    """Makes this host's key, and has the leader issue the certificate of the invitation. Where a
    part of it was done before, it goes on.
    """
    from torrentdist.security.authority.host_files import keep_certificate, keep_issuing_key, key_of_host

    tls = config.tls
    _expect_fitting(config, invitation)
    public_key = await asyncio.to_thread(key_of_host, tls)
    await _fetch_ca(tls, invitation)
    trusting = ClientConfig(masters=invitation.masters, ca_file=tls.ca_file, supervisor="")
    async with MasterClient(trusting) as client:
        body = RedemptionBody(secret=invitation.secret, public_key=public_key)
        path = f"/v1/invitations/{ids.peer_id(invitation.id)}/redeem"
        view = await client.mutate(Request("POST", path, content=msgspec.json.encode(body)), CertificateView)
    await asyncio.to_thread(keep_certificate, tls, view)
    as_host = msgspec.structs.replace(trusting, certificate_file=tls.certificate_file, key_file=tls.key_file)
    async with MasterClient(as_host) as client:
        if invitation.role == "master":
            key = await _from_any_master(client, "/v1/issuing-key")
            await asyncio.to_thread(keep_issuing_key, tls, key)
        await _keep_zookeeper_identity(client, config, invitation)
    return JoinedView(
        id=view.id,
        role=invitation.role,
        serial=view.serial,
        expires_at=view.expires_at,
        certificate_file=tls.certificate_file,
        key_file=tls.key_file,
        ca_file=tls.ca_file,
    )


def _expect_fitting(config: Config, invitation: Invitation) -> None:
    """Raises an error if the invitation is for another daemon than the configuration's."""
    if config.tls.mode == "off":
        raise TorrentdistError("config_missing", detail='tls.mode is "off", so no certificate is wanted here')
    id_ = config.master.id if invitation.role == "master" else config.supervisor.id
    if id_ != invitation.id:
        detail = f"the invitation is for {invitation.role} {invitation.id!r}, and {invitation.role}.id is {id_!r}"
        raise TorrentdistError("config_invalid", origin="the configuration", detail=detail)
    if invitation.role == "master" and not config.tls.ca_key_file:
        raise TorrentdistError("config_missing", detail="tls.ca_key_file says nowhere to keep the CA's key")


async def _fetch_ca(tls: TlsConfig, invitation: Invitation) -> None:
    """Writes the CA of the invitation, as any master gives it. Nothing that it says is believed but
    for its fingerprint."""
    from torrentdist.security.authority.host_files import keep_ca
    from torrentdist.security.tls_contexts import unverified_context

    context = await asyncio.to_thread(unverified_context)
    said = []
    async with Http(access=with_token(None, lambda: Trust(context))) as http:
        for url in invitation.masters:
            try:
                answer = await http.request("GET", f"{url}/v1/ca", most_bytes=1024 * 1024)
                await asyncio.to_thread(keep_ca, tls, answer.content, invitation.ca)
                return
            except (HttpError, TorrentdistError) as exc:
                said.append(f"{url}: {cause_text(exc)}")
    raise TorrentdistError("unreachable", detail="; ".join(said) or "the invitation names no master")


async def _keep_zookeeper_identity(client: MasterClient, config: Config, invitation: Invitation) -> None:
    """Writes this host's identity in ZooKeeper where the configuration names a file for it that is
    not there, or has the identity of an earlier host, if the cluster gives identities."""
    from torrentdist.security.authority.zookeeper_files import keep_auth, takes_auth

    if not await asyncio.to_thread(takes_auth, config.zookeeper.auth_file, invitation.id):
        return
    try:
        if invitation.role == "master":
            text = (await _from_any_master(client, "/v1/zookeeper-auth")).decode()
        else:
            request = Request("POST", f"/v1/hosts/{ids.peer_id(invitation.id)}/place", content=b"{}")
            text = (await client.mutate(request, PlaceView)).auth
    except TorrentdistError as error:
        if error.code != "identities_off":
            raise
        return
    await asyncio.to_thread(keep_auth, config.zookeeper.auth_file, text)


async def _from_any_master(client: MasterClient, path: str) -> bytes:
    failed: TorrentdistError | None = None
    for url in client.masters:
        try:
            answer = await client.http.get(url + path)
        except HttpError as exc:
            failed = TorrentdistError("unreachable", detail=f"{url}: {exc}")
            continue
        failed = error_in(answer)
        if failed is None:
            return answer.content
    raise failed or TorrentdistError("unreachable", detail="no master is known")
