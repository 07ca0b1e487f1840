"""The error table: every failure that a user can meet, with its exit code, HTTP status, sentence
and hint.

Always: an error that crosses a process boundary keeps its code, so that a failure has the same exit
code wherever it was found.
Never: let a user see a code that is not in the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar


class ErrorKind(NamedTuple):
    exit_code: int
    http_status: int
    message: str
    hint: str


EXIT_OK = 0
EXIT_BUG = 1
EXIT_USAGE = 2
EXIT_NOT_FOUND = 3
EXIT_NOT_ALLOWED = 4
EXIT_UNAVAILABLE = 5
EXIT_TIMED_OUT = 6
EXIT_CORRUPT = 7
EXIT_DISK = 8
EXIT_CONFLICT = 9
EXIT_PARTLY = 10

NO_CLUSTER = "ZooKeeper holds no cluster: run `torrentdist ha init` once, or `ha restore FILE` if there was one"
"""The status of a daemon that waits for a cluster."""
_RETRY = "Nothing was changed for good: run the same command again."

ERRORS: Mapping[str, ErrorKind] = {
    "internal": ErrorKind(1, 500, "something unexpected happened: {detail}", "This is a bug of torrentdist. The log of the process names the place."),
    # usage and config
    "usage": ErrorKind(2, 400, "{detail}", "See --help."),
    "invalid_id": ErrorKind(2, 400, "{kind} {text!r} is not valid", "Use 1 to 128 letters, digits, '.', '_' and '-', starting with a letter or digit."),
    "invalid_image": ErrorKind(2, 400, "{text!r} is no image's name with a tag", "Give NAME:TAG, such as team/app:1. Names have lower-case letters, digits, '.', '_', '-' and '/'."),
    "invalid_pattern": ErrorKind(2, 400, "{text!r} is no pattern of bundle ids", "Use letters, digits, '.', '_', '-', '*' for any text and '?' for one character, as in 'etl-*'. Quote it for the shell."),
    "invalid_digest": ErrorKind(2, 400, "{text!r} is not a digest", "A digest is 64 lower-case hex digits, as `bundle show` prints it."),
    "invalid_request": ErrorKind(2, 400, "the request is not understood: {detail}", "docs/protocol.md and /openapi.json describe every request."),
    "invalid_metafile": ErrorKind(2, 400, "the metafile is refused: {detail}", "Make it with `torrentdist upload`; other v2 torrents lack the manifest."),
    "invalid_bundle": ErrorKind(2, 400, "{path} cannot be a bundle: {detail}", "Remove or replace what is named, then upload again. docs/operations.md lists what a bundle may hold."),
    "empty_bundle": ErrorKind(2, 400, "{path} holds no bytes at all, so there is nothing to distribute", "Put at least one file that is not empty into it."),
    "unsafe_symlink": ErrorKind(2, 400, "{path} is a symlink to {target}, which leaves the bundle", "Make it relative and keep it inside the directory, or copy what it points to. A virtual environment: `python -m venv --copies`."),
    "special_file": ErrorKind(2, 400, "{path} is a {kind}, which no bundle can hold", "Remove it, or upload a directory without it."),
    "bad_name": ErrorKind(2, 400, "{path!r} has a name that cannot be stored: {detail}", "Rename or move it. docs/operations.md lists the limits of names, paths and depth."),
    "changed_while_reading": ErrorKind(9, 409, "{path} changed while it was being read", "Wait until nobody writes to it, then upload again."),
    "path_not_found": ErrorKind(3, 404, "{path} does not exist", "Check the path."),
    "config_invalid": ErrorKind(2, 400, "{origin}: {detail}", "`torrentdist config show --origin` lists every key and where its value comes from."),
    "job_invalid": ErrorKind(2, 400, "{origin}: {detail}", "docs/jobs.md lists every key of a job.toml with its values. Nothing was uploaded or changed."),
    "job_file_missing": ErrorKind(2, 400, "{what} has no job.toml, so it is no job", "Write one (docs/jobs.md shows it: name and command are enough), or `torrentdist upload` it as a bundle."),
    "config_missing": ErrorKind(2, 400, "{detail}", "Set it in the configuration file, a TORRENTDIST_* variable or a flag."),
    "role_missing": ErrorKind(2, 400, "{path} has no [{role}] section, so it is no {role}'s configuration", "Give --config the {role}'s own file; docs/deployment.md shows one. An empty [{role}] section means all defaults."),
    "secret_invalid": ErrorKind(2, 500, "{path} cannot be used as a secret: {detail}", "Put the secret alone into a file that only its owner can read: chmod 600 {path}"),
    "key_invalid": ErrorKind(2, 400, "{path} is no key to sign with: {detail}", "`torrentdist key generate FILE` makes one. Give the private key's file, not FILE.pub."),
    "signing_cluster_missing": ErrorKind(2, 400, "nothing can be signed, since trust.cluster does not name the cluster", "Set the cluster's name in your configuration: [trust] cluster = \"NAME\", the same name as on its hosts. It keeps a signature for one cluster from being used in another."),
    "plugin_invalid": ErrorKind(2, 400, "codedistributor.class {name!r} cannot be used: {detail}", "Give the name of an installed plug-in, such as torrent, or package.module:Class; docs/plugins.md shows how to write and test one."),
    "validator_invalid": ErrorKind(2, 400, "jobs.validator {name!r} cannot be used: {detail}", "Give it as package.module:Class; the class needs a method validate(job, bundle)."),
    "missing_dependency": ErrorKind(2, 500, "{detail}", "Install what is missing: pip install '{package}'."),
    "skopeo_missing": ErrorKind(2, 500, "an image is read by skopeo, which is not installed", "Install it (on Debian: apt-get install skopeo), or upload the directory of an OCI layout as a bundle."),
    "java_missing": ErrorKind(2, 500, "{what} needs Java 11 or later, and there is no `java`", "Install one (on Debian: apt-get install openjdk-17-jre-headless), or set JAVA_HOME."),
    "insecure_listen": ErrorKind(2, 400, "refusing to listen on {address} {lack}", "Set tls.mode = \"mutual\" (docs/security.md), or listen on 127.0.0.1. Without TLS, beyond loopback, both api.token_file and api.insecure_listen = true are needed, and everybody on the way reads along."),
    "jobs_not_isolated": ErrorKind(2, 500, "this host runs no jobs, since it cannot isolate them: {detail}", "Make the user and start torrentdist-launcher as root, as in docs/security.md; `torrentdist doctor` on the host says whether it helped."),
    "invalid_address": ErrorKind(2, 400, "{text!r} is not a host address", "Give an IP address or a host name, without a port or a wildcard."),
    "ca_invalid": ErrorKind(2, 500, "{path} is no usable CA: {detail}", "Give the directory that `torrentdist ca init` made, with both files as they were."),
    "certificate_invalid": ErrorKind(2, 500, "{path} cannot be used for TLS: {detail}", "docs/security.md says what a certificate must carry; `torrentdist ca issue` makes one."),
    "swarm_key_missing": ErrorKind(2, 500, "this master cannot issue certificates of the swarm: neither swarm.ca_key_file nor tls.ca_key_file names a key", "Make one with `torrentdist ca init DIR`, give DIR/ca.key to all masters and name it in swarm.ca_key_file; or set swarm.tls = \"off\" on every host."),
    "swarm_tls_differs": ErrorKind(2, 500, "the swarm has TLS on this host and none on the masters", "Set swarm.tls alike on every host."),
    "certificate_refused": ErrorKind(2, 400, "no certificate is issued: {detail}", "docs/security.md says what a certificate is issued for."),
    "port_in_use": ErrorKind(2, 500, "{what} cannot listen on {address}: {detail}", "Another process has the port. Choose another one, or 0 for any free port."),
    "later_release": ErrorKind(2, 500, "{path} in ZooKeeper was written by a later release: schema {schema}, and this one reads up to {newest}", "Start the release that the other daemons run."),
    "empty_path": ErrorKind(2, 400, "{what} is empty", "Name a file or a directory; was a variable not set?"),
    "protected_path": ErrorKind(4, 403, "{path} is not replaced: it is {what}", "--force replaces neither the current directory, a home directory or a mount point, nor what holds one. Choose another destination."),
    "precondition_failed": ErrorKind(9, 412, "{field} does not hold: the content is {tag!r}", "Ask again without the condition, or with the ETag of what is there now."),
    "range_not_satisfiable": ErrorKind(2, 416, "{range!r} is no part of a file of {size} bytes", "Ask for less, or for all of it."),
    "too_large": ErrorKind(2, 413, "{what} has {size}, more than the {limit} allowed", "docs/operations.md lists the limits, and which of them are settings."),
    "not_a_backup": ErrorKind(2, 400, "{path} is no backup that this release can read: {detail}", "Give a file that `torrentdist ha backup` wrote; that of a later release needs the later release. Nothing was restored."),
    "archive_unsuitable": ErrorKind(2, 406, "bundle {id!r} is not given as .{kind}: {detail}", "Use archive.tar.gz: it keeps everything."),
    # not found
    "bundle_not_found": ErrorKind(3, 404, "there is no bundle {id!r}", "`torrentdist bundle ls` lists what there is."),
    "not_found": ErrorKind(3, 404, "{what} does not exist", "Check the name."),
    "no_supervisor_matches": ErrorKind(3, 404, "no supervisor {what}", "`torrentdist supervisor ls` lists them with their labels."),
    "events_not_found": ErrorKind(3, 404, "there are no events at {path}: {detail}", "Give a directory, file or URI that Spark can read, such as <data_dir>/events; docs/events.md says who writes them."),
    "no_events": ErrorKind(3, 404, "{path} holds no events yet", "Give the events of daemons that run or ran with events.enabled: files called *.jsonl. With an object store, only files that a daemon has closed are there."),
    "image_unreadable": ErrorKind(5, 503, "the image {source} cannot be read: {detail}", "Check its name and your credentials: `skopeo inspect {source}` reads it the same way."),
    "storage_failed": ErrorKind(5, 503, "{url} cannot be read: {detail}", "Check the address and the credentials; fsspec's library for this storage takes them from its usual variables and files (docs/s3.md). Then run the same command again."),
    "report_failed": ErrorKind(5, 503, "Spark could not make the report of {path}: {detail}", "For another file system than this host's, name its jar and credentials with --conf, as in --conf spark.jars.packages=org.apache.hadoop:hadoop-aws:VERSION."),
    "ca_missing": ErrorKind(3, 404, "there is no CA in {path}", "`torrentdist ca init {path}` makes one."),
    # not allowed
    "unauthorized": ErrorKind(4, 401, "the token is missing or wrong", "Put the cluster's token into a file and name it in client.token_file."),
    "foreign_site": ErrorKind(4, 403, "the request may come from a web page of another site: {detail}", "Call the daemon by its address or host name, or list its name in api.hosts; see \"Browsers\" in docs/security.md."),
    "forbidden": ErrorKind(4, 403, "{detail}", "Ask the operator of the cluster."),
    "role_needed": ErrorKind(4, 403, "{name!r} has the role {role}, and {operation} needs the role {needed}", "Ask an operator for a token of that role: `torrentdist token create NAME --role {needed}`. `torrentdist whoami` shows what you have."),
    "hosts_only": ErrorKind(4, 403, "{operation} is for the cluster's hosts, and {name!r} is none", "Only daemons need it: they prove themselves by the token of api.token_file."),
    "pattern_mismatch": ErrorKind(4, 403, "{name!r} may change and run bundles that match {pattern!r}, and {id} does not match", "Choose an id that matches, or ask an operator for a token with another --bundles."),
    "quota_exceeded": ErrorKind(4, 403, "the quota of {name!r} is used up: {detail}", "Remove bundles or wait for a distribution to end; or ask an operator for more: `torrentdist token quota {name}`."),
    "uploading_already": ErrorKind(9, 409, "somebody else is sending the same content", "Wait until that upload has ended: then nothing needs to be sent. One that is silent for half a minute makes place."),
    "proof_needed": ErrorKind(9, 428, "the cluster takes {id} only after all its bytes were sent: a metafile alone does not make its content yours", "Upload it with this release's client, which sends them."),
    "too_many_uploads": ErrorKind(5, 429, "{name!r} has {own} uploads that are not finished, and the cluster {count}", "Finish or remove some (`torrentdist bundle ls`, `torrentdist bundle rm ID`). One whose uploader is silent for an hour is given up."),
    "not_for_host": ErrorKind(4, 403, "the host {name!r} may not have bundle {id}", "It may have what is assigned to it (`bundle distribute`, a job's workers) and what matches its pattern. `torrentdist host allow {name} --bundles PATTERN` sets the pattern."),
    "token_expired": ErrorKind(4, 401, "the token {name!r} has expired", "Ask an operator for a new one: `torrentdist token create`."),
    "token_revoked": ErrorKind(4, 401, "the token {name!r} was revoked", "Ask an operator for a new one: `torrentdist token create`."),
    "too_many_urls": ErrorKind(5, 429, "{name!r} has {own} URLs for pods that have not ended, and the cluster {count}", "Wait until some have ended, and give new ones a shorter --ttl: one maker may have 500, and a cluster 1,000. An operator can end all of them: `torrentdist key rotate-urls`."),
    "url_invalid": ErrorKind(4, 401, "a URL for pods needs a capability that this cluster has signed", "Ask for a new URL: `torrentdist url ID`."),
    "url_expired": ErrorKind(4, 401, "the URL {name!r} has expired", "Ask for a new one: `torrentdist url ID --ttl T`."),
    "url_revoked": ErrorKind(4, 401, "the URL {name!r} was revoked", "Ask for a new one: `torrentdist url ID`."),
    "job_refused": ErrorKind(4, 403, "job {id!r} is refused: {detail}", "The cluster's own rules (jobs.validator) say so: change the job, or ask the operator."),
    "invitation_invalid": ErrorKind(4, 403, "the invitation for {id!r} is refused: {detail}", "Ask the operator for a new one: `torrentdist host invite {id} --role ROLE --address ADDRESS`."),
    "host_revoked": ErrorKind(4, 403, "the certificate of {id!r} was revoked", "`torrentdist host invite {id} --role ROLE --address ADDRESS` lets it join again."),
    "other_cluster": ErrorKind(4, 403, "the certificate of {id!r} is for the cluster {cluster!r}, which is not this one", "Use a certificate for this cluster, or a token of it."),
    "issuing_elsewhere": ErrorKind(4, 409, "this cluster's certificates are not issued here: {detail}", "Get the certificate from where the CA's key is (cert-manager, SPIFFE, your corporate CA). docs/security.md says what it must carry."),
    "unsigned_bundle": ErrorKind(4, 403, "bundle {id!r} is not signed, and [trust] wants a signature", "Look at what it holds, then sign it with `torrentdist bundle sign {id} --key FILE`. `upload --sign FILE` does it at once."),
    "unknown_key": ErrorKind(4, 403, "{what} is signed by {keys}, and [trust] names none of these keys for it", "If you trust the signer, add the public key (FILE.pub) to trust.bundles on this host and restart the daemon."),
    "bad_signature": ErrorKind(4, 403, "the signature of {what} is refused: {detail}", "Do not use it before you know who put it there. Signed again by a known key, it is accepted."),
    "job_not_signed": ErrorKind(4, 403, "job {id!r} does not start here: {detail}", "Under enforce a job is what its signed bundle says, with this host's jobs.defaults. Submit it again with `job submit --sign FILE` if it overrides anything, and give masters and supervisors the same jobs.defaults."),
    "limit_not_kept": ErrorKind(4, 409, "the plug-in {plugin!r} cannot limit a fetch, so a rate would change nothing", "Leave the rate out, or set codedistributor.class to torrent on every host (docs/plugins.md)."),
    "identities_off": ErrorKind(4, 409, "this cluster gives hosts no identities in ZooKeeper", "Set zookeeper.identities on every master (docs/security.md)."),
    "acl_mismatch": ErrorKind(4, 403, "ZooKeeper's {path} is open to others: {detail}", "Start a master once with --repair-acls."),
    # unavailable
    "not_leader": ErrorKind(5, 421, "this master is not the leader", "The client follows to the leader by itself."),
    "read_stalled": ErrorKind(5, 503, "nothing of {id!r} has come to this host for {seconds:g} s: {reason}", "`torrentdist bundle show` names its holders and the hosts that are stuck. The fetch goes on by itself when one is back; then ask again."),
    "not_ready": ErrorKind(5, 503, "this master is not ready: {detail}", _RETRY),
    "no_leader": ErrorKind(5, 503, "no master leads right now, an election is in progress", _RETRY),
    "leader_not_found": ErrorKind(5, 503, "no leader was found: {detail}", _RETRY),
    "zookeeper_unavailable": ErrorKind(5, 503, "ZooKeeper does not answer: {detail}", "Check that its servers run and can be reached. " + _RETRY),
    "identity_outdated": ErrorKind(5, 503, "zookeeper.auth_file of host {id!r} has the identity of an earlier host of this id", "Run `torrentdist host join` with this host's invitation, and start the supervisor again."),
    "unreachable": ErrorKind(5, 503, "no master could be reached: {detail}", "Check client.masters, and that a master runs. `torrentdist dev up` starts a cluster on this machine."),
    "master_unreachable": ErrorKind(5, 503, "the master at {url} does not answer: {detail}", "Check client.masters, and that this master runs; its log says more. The others go on without it."),
    "supervisor_unreachable": ErrorKind(5, 503, "the supervisor at {url} does not answer: {detail}", "Start it, or use --no-supervisor."),
    "bundle_unavailable": ErrorKind(5, 503, "bundle {id!r} cannot be had now: {detail}", "It can be downloaded as soon as a holder is back."),
    "bundle_lost": ErrorKind(5, 503, "every copy of bundle {id!r} is lost", "Upload the same content again under the same id."),
    "no_cluster": ErrorKind(5, 503, "ZooKeeper holds no cluster at {chroot}, so nothing can be changed", "Was there one? `torrentdist ha restore FILE` brings it back from a backup. For a new one run `torrentdist ha init` once. Both take the --config of a daemon."),
    "outcome_unknown": ErrorKind(5, 503, "the connection broke before the answer came: {detail}", _RETRY),
    "leadership_lost": ErrorKind(5, 503, "this master lost its leadership before the change was made", _RETRY),
    "target_not_ready": ErrorKind(5, 503, "master {id!r} cannot take over the leadership: {detail}", "`torrentdist ha roles` shows what it lacks. Nothing was changed."),
    "closing": ErrorKind(5, 503, "{what} is shutting down", _RETRY),
    "spark_unreachable": ErrorKind(5, 503, "no Spark master answers at {master}: {detail}", "Check the URL, that the master runs, and that this host gets to its port; --spark-master 'local[*]' runs Spark on this host alone."),
    "spark_failed": ErrorKind(5, 503, "Spark did not start: {detail}", "Check --spark-master, --conf and JAVA_HOME."),
    "yarn_unavailable": ErrorKind(5, 503, "YARN cannot be asked: {detail}", "Check that the ResourceManager runs, and that this host reaches its web interface, as yarn-site.xml names it. The job goes on by itself."),
    "earlier_application": ErrorKind(5, 503, "job {job!r} waits for an application of an earlier run: {detail}", "It is being killed. The job starts by itself when YARN says that it has ended."),
    # timed out
    "timed_out": ErrorKind(6, 504, "{what} was not done within {seconds:g} s", "What has arrived is kept: run it again to go on."),
    # content
    "corrupt": ErrorKind(7, 500, "{path} does not match its digest: {detail}", "The bytes were damaged on the way or on disk. Run it again; a holder repairs itself."),
    "content_differs": ErrorKind(7, 500, "{path} is not bundle {id!r}: {detail}", "It was changed after it was downloaded, or it is another bundle. `torrentdist download {id} {path} --force` replaces it."),
    "backup_damaged": ErrorKind(7, 500, "{path} is a damaged backup: {detail}", "Take another copy of it, or an older backup. Nothing was restored."),
    # disk
    "disk_full": ErrorKind(8, 507, "not enough room in {path}: {needed} bytes needed, {free} free", "Free some space, raise store.limit_bytes, or `torrentdist bundle prune`."),
    "no_bundle_python": ErrorKind(5, 503, "this host has no {path}, so the driver cannot run the bundle's Python here", "Start a supervisor on this host (supervisor.ids_dir, the same on all hosts), give the driver a Python of this host by --conf spark.pyspark.driver.python=PATH, or use --deploy-mode cluster on YARN or Kubernetes"),
    "not_a_reader": ErrorKind(8, 403, "user {user} may not read the files of this host's bundles", "Set store.readable_by in the supervisor's configuration, for example to \"group torrentdist-readers\", put the user into that group, and restart both: docs/security.md#on-the-disks"),
    "disk_error": ErrorKind(8, 500, "{path}: {detail}", "Check the disk, the permissions and the owner of the directory."),
    "store_locked": ErrorKind(9, 409, "another daemon (process {pid}) uses the store in {path}", "Two daemons cannot share a data directory. Stop the other one, or give this one its own."),
    # conflict
    "distribution_over": ErrorKind(9, 409, "the distribution of bundle {id!r} is {state} already", "`torrentdist bundle distributions` lists those that run. To free hosts of the bundle, distribute it with --keep, or `torrentdist bundle rm`."),
    "distribution_standing": ErrorKind(9, 409, "bundle {id!r} has a standing order for hosts with {labels}", "`torrentdist bundle cancel {id}` ends it; or give the same labels."),
    "tag_taken": ErrorKind(9, 409, "the tag {tag!r} stands for another image: {detail}", "A tag never moves, so that every host runs the same image. Push under a tag of its own, or delete this one first."),
    "conflict": ErrorKind(9, 409, "the id {id!r} belongs to other content ({existing})", "Bundles never change: choose another id."),
    "key_exists": ErrorKind(9, 409, "{path} exists already", "A key is never overwritten. Choose another file."),
    "too_many_signatures": ErrorKind(9, 409, "bundle {id!r} has {count} signatures already, the most that are kept", "Upload it under another id to sign it anew."),
    "ca_exists": ErrorKind(9, 409, "{path} already holds the CA of {cluster!r}", "Choose another directory for another cluster."),
    "host_running": ErrorKind(9, 409, "{id!r} is registered, so it is not forgotten", "Only what is gone can be forgotten. `torrentdist supervisor drain {id}` empties a host first; `torrentdist host revoke {id}` shuts one out."),
    "host_exists": ErrorKind(9, 409, "there is already a host {id!r}: {detail}", "Choose another id; or `torrentdist host revoke {id}` first, which shuts the other one out."),
    "certificate_exists": ErrorKind(9, 409, "{path} is the certificate of {holder}", "Choose another --out."),
    "id_taken": ErrorKind(9, 409, "{what} {id!r} is already running elsewhere", "Give every daemon its own id."),
    "dev_running": ErrorKind(9, 409, "there is already a cluster in {dir}: {detail}", "`torrentdist dev status --dir {dir}` shows it and `torrentdist dev down --dir {dir}` stops it; or give another --dir."),
    "dest_busy": ErrorKind(9, 409, "another download is writing to {path}", "Wait until it is done, or choose another destination."),
    "in_use": ErrorKind(9, 409, "bundle {id!r} is in use: {detail}", "Unpin it or end what uses it first."),
    "job_state": ErrorKind(9, 409, "job {id!r} is {status}: it cannot be {asked} now", "`torrentdist job show` tells its state; docs/jobs.md has the table of what is possible when."),
    "job_exists": ErrorKind(9, 409, "there is already a job {id!r}", "Kill it first, or give this one another --name."),
    "job_not_found": ErrorKind(3, 404, "there is no job {id!r}", "`torrentdist job ls` lists what there is."),
    "not_a_report": ErrorKind(9, 409, "{path} is not a report's directory: it holds {found}", "Choose another --out: a directory that is empty, does not exist yet, or was made by an earlier report."),
    "dest_exists": ErrorKind(9, 409, "{path} exists and holds other content", "Choose another destination, or replace it with --force."),
    "tree_not_empty": ErrorKind(9, 409, "ZooKeeper's tree is not empty: it holds {path}", "A backup is restored only into a tree that holds nothing but what running daemons put there by themselves. Nothing was changed. If what is there is not wanted: stop the masters, delete the chroot, try again."),
    "token_exists": ErrorKind(9, 409, "there is already a token {name!r}", "`torrentdist token revoke {name}` ends it; then the name is free. A token's text is shown once, when it is made."),
    "request_reused": ErrorKind(9, 409, "request id {id!r} was used before for other content", "Use a fresh request id for every mutation."),
    # partly
    "distribution_stopped": ErrorKind(10, 200, "the distribution of bundle {id!r} was stopped: {detail}", "The hosts behind it were not told. Mend what is named, then distribute it again; docs/distribution.md tells how waves work."),
    "partly": ErrorKind(10, 200, "{detail}", "It goes on in the background; run the same command again to wait for it."),
    "interrupted": ErrorKind(130, 499, "interrupted", "What has arrived is kept: run the same command again to go on."),
}


class TorrentdistError(Exception):
    """A failure listed in the table.

    `fields` fill its sentence; `extra` is for programs (leader, masters...). A field `note` that
    the sentence does not use is appended to it.
    """

    def __init__(self, code: str, *, extra: Mapping[str, Any] | None = None, **fields: Any) -> None:
        self.code = code
        self.kind = ERRORS[code]
        self.fields = fields
        self.extra: dict[str, Any] = dict(extra or {})
        note = fields.get("note")
        self.message = self.kind.message.format(**fields) + (f": {note}" if note else "")
        super().__init__(self.message)

    @property
    def exit_code(self) -> int:
        return self.kind.exit_code

    @property
    def http_status(self) -> int:
        return self.kind.http_status

    @property
    def hint(self) -> str:
        try:
            return self.kind.hint.format(**self.fields) if "{" in self.kind.hint else self.kind.hint
        except (KeyError, IndexError):  # another release, or a damaged answer, named other fields
            return ""

    def to_wire(self) -> dict[str, Any]:
        return {"error": self.code, "message": self.message, "hint": self.hint, "fields": self.fields, **self.extra}

    @classmethod
    def from_wire(cls, body: Mapping[str, Any]) -> TorrentdistError:
        """Rebuilds an error from another process. An unknown code or missing field becomes
        `internal`."""
        code = str(body.get("error", "internal"))
        fields = body.get("fields")
        extra = {k: v for k, v in body.items() if k not in ("error", "message", "hint", "fields")}
        try:
            return cls(code, extra=extra, **(fields if isinstance(fields, dict) else {}))
        except (KeyError, ValueError, TypeError, IndexError):
            return cls("internal", extra=extra, detail=str(body.get("message", body)))


T = TypeVar("T")


def required(value: T | None, code: str, **fields: Any) -> T:
    """Returns the value, or raises this error if it is None."""
    if value is None:
        raise TorrentdistError(code, **fields)
    return value
