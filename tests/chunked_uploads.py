"""An uploader that sends a bundle over HTTP, one request after another."""

from __future__ import annotations

from pathlib import Path

import httpx
from cluster_fixtures import Cluster

from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.client.bundles.chunked_upload import read_chunk


class Chunked:
    """An uploader without BitTorrent: it has HTTP, and a metafile that another program made."""

    def __init__(
        self, cluster: Cluster, source: Path, http: httpx.Client | None = None, *, packed: bool = True
    ) -> None:
        """`http`: of the uploader; by default that of the daemons' token."""
        self.cluster = cluster
        self.meta = make_metafile(source, packed=packed)
        self.data = read_chunk(self.meta, source, 0, self.meta.size)
        self._base = cluster.url(cluster.leader())
        self._http = http or cluster.http

    def open(self, bundle: str, **params: str) -> int:
        url = f"{self._base}/v1/bundles/{bundle}"
        return self._http.post(url, content=self.meta.raw, params=params).status_code

    def offset(self) -> int:
        return int(self._http.get(f"{self._base}/v1/uploads/{self.meta.digest}").json()["offset"])

    def refusal(self, **headers: str) -> tuple[int, str]:
        """Returns the status and the error of a question for the offset."""
        answer = self._http.get(f"{self._base}/v1/uploads/{self.meta.digest}", headers=headers)
        return answer.status_code, answer.json().get("error", "")

    def turn_to_leader(self) -> None:
        self._base = self.cluster.url(self.cluster.leader())

    def until(self) -> int:
        return int(self._http.get(f"{self._base}/v1/uploads/{self.meta.digest}").json()["until"])

    def put(self, start: int, end: int) -> tuple[int, int]:
        """Returns the status and the offset to continue at."""
        url = f"{self._base}/v1/uploads/{self.meta.digest}?offset={start}"
        answer = self._http.put(url, content=self.data[start:end])
        return answer.status_code, int(answer.json()["offset"])

    def put_all(self, step: int = 200_000) -> None:
        """Sends what the leader lacks."""
        at = self.offset()
        while at < self.meta.size:
            at = self.put(at, min(self.meta.size, at + step))[1]

    def finished_id(self) -> str:
        """Finishes the upload. Returns the id of the bundle, or the error."""
        answer = self._http.post(f"{self._base}/v1/uploads/{self.meta.digest}/finish").json()
        return str(answer.get("id") or answer["error"])

    def finish(self) -> tuple[int, str]:
        answer = self._http.post(f"{self._base}/v1/uploads/{self.meta.digest}/finish")
        return answer.status_code, answer.json().get("error", "")
