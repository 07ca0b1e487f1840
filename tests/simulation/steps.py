"""The steps of a story, as values, and their sentences.

Pure: a step does nothing by itself. story_runner.py carries it out.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    at: float
    """Seconds after the cluster stands."""
    kind: str
    who: str
    """The host or the user that it is about."""
    what: str = ""
    """The bundle, or the other host."""
    secs: float = 0.0
    """How long it lasts, or after what time a dead daemon comes back."""
    number: int = 0
    """A size, a count or a choice, by kind."""

    def sentence(self) -> str:
        text = SENTENCES[self.kind].format(who=self.who, what=self.what, secs=self.secs, number=self.number)
        return f"{self.at:7.2f} s: {text}"


SINGLE_FILE, LAST_CONTENT = 6, 5
CONTENTS = (1, 2, 3, 4, SINGLE_FILE)
"""What users upload, by number. `LAST_CONTENT` is uploaded after the calm, and not before."""
UNSENT, UNHEARD = "before it is sent", "before it hears that it is made"

SENTENCES = {
    "upload": "{who} uploads {what}, with content {number}",
    "distribute": "{who} distributes {what} to every host",
    "remove": "{who} removes {what}",
    "download": "{who} downloads {what}",
    "read": "{who} lists the bundles",
    "look": "{who} looks at the cluster",
    "history": "{who} looks at what the distributions of {what} did",
    "open": "a program on {who} reads {what} through the gateway",
    "objects": "a program on {who} reads {what} by S3",
    "untar": "a program on {who} reads {what} as an archive",
    "lease": "a program on {who} uses {what} by its id for {secs:.1f} s",
    "mount": "a pod on {who} has {what} mounted for {secs:.1f} s",
    "prune": "an operator drops what {who} does not need",
    "again": "{who} removes {what}, uploads it again, and programs on all hosts read it through their gateways",
    "submit": "{who} submits the job {what}",
    "kill job": "{who} kills the job {what}",
    "rebalance": "{who} rebalances the job {what} to {number} workers",
    "wave": "{who} distributes {what} in waves of one host",
    "wait": "nothing happens for {secs:.0f} s",
    "show hidden": "{who} uploads content {number} as {what}, which the cluster has and hides from them",
    "send over http": "{who} uploads {what} with content {number} over HTTP, in two parts",
    "twins": "two users upload content {number} as {what} at once",
    "leave upload": "{who} opens an upload of {what} and goes away",
    "silence": "{who} is cut off from all masters, and not from ZooKeeper",
    "lose masters": "all masters lose their disks, and start again after {secs:.1f} s",
    "cancelled": "{who} distributes {what}, and cancels that when a host has a part and hears nobody",
    "undropped": "{who} removes {what} while the disk of a daemon that has it takes no change",
    "absent": "{who} keeps {what}, is drained, and is away for longer than useless records are kept",
    "prune in use": "an operator prunes {who} while a program there uses {what}, and after that",
    "masters away": "all masters are away for longer than {who} waits",
    "zookeeper away": "ZooKeeper is away for longer than {who} waits",
    "rule": "{who} keeps the newest two bundles, {what} among them, by a rule",
    "young rule": "{who} keeps {what} and all bundles of the last {secs:.0f} s by a rule",
    "submit past lock": "ann submits the job {what} while the assignment of {who} cannot be written",
    "join": "{who} joins the cluster",
    "hurt wave": "{who} distributes {what} in waves of one host, and the disk of supervisor-{number} is full",
    "hurt pairs": "{who} distributes {what} in waves of two hosts, and the disk of supervisor-{number} is full",
    "send": "{who} distributes {what} to supervisor-{number} alone",
    "stand": "{who} distributes {what} to every host, and to those that join later",
    "cancel": "{who} cancels the distribution of {what}",
    "pin": "{who} pins {what}",
    "unpin": "{who} unpins {what}",
    "retain": "{who} lets the cluster keep the newest {number} of the bundles",
    "unretain": "{who} removes that rule",
    "sign": "{who} signs {what}",
    "make token": "{who} makes the token {what}",
    "revoke token": "{who} revokes the token {what}",
    "use token": "{who} lists the bundles with the token {what}",
    "transfer": "{who} passes the leadership to {what}",
    "backup": "{who} makes a backup",
    "deactivate": "{who} deactivates the job {what}",
    "activate": "{who} activates the job {what}",
    "drain": "{who} drains {what}",
    "undrain": "{who} undrains {what}",
    "kill": "{who} is killed, and starts again after {secs:.1f} s",
    "kill leader": "the leader is killed, and starts again after {secs:.1f} s",
    "stop": "{who} is stopped, and starts again after {secs:.1f} s",
    "crash": "{who} dies at its disk's effect number {number} from now",
    "crash at write": "{who} dies at its write number {number} to ZooKeeper from now, {what}",
    "slow zookeeper": "what ZooKeeper sends to each host is late by up to 1.5 s, for {secs:.1f} s",
    "slow reader": "{who} reads 10 KiB a second of each connection, for {secs:.1f} s",
    "torn answer": "the next thing that {who} sends is cut in the middle by a reset",
    "drift": "the wall clock of {who} runs {number} % too fast",
    "pause": "{who} is paused for {secs:.1f} s",
    "pause leader": "the leader is paused for {secs:.1f} s",
    "expire": "{who} is cut off from ZooKeeper until its session has expired",
    "expire leader": "the leader is cut off from ZooKeeper until its session has expired",
    "deaf": "for {secs:.1f} s nothing from ZooKeeper reaches {who}",
    "mute": "for {secs:.1f} s nothing from {who} reaches ZooKeeper",
    "no zookeeper": "{who} is cut off from ZooKeeper for {secs:.1f} s",
    "cut": "{who} and {what} are cut off from each other for {secs:.1f} s",
    "one way": "for {secs:.1f} s nothing from {who} reaches {what}",
    "isolate": "{who} is cut off from everything for {secs:.1f} s",
    "zookeeper down": "ZooKeeper is down for {secs:.1f} s",
    "zookeeper frozen": "ZooKeeper is frozen for {secs:.1f} s",
    "slow link": "what {who} sends to {what} is late by up to 2 s, for {secs:.1f} s",
    "reset": "a connection somewhere is reset",
    "clock": "the wall clock of {who} jumps by {number} s",
    "disk error": "a call to the disk of {who} fails with EIO, the {number}th from now",
    "bit flip": "a bit turns on the disk of {who}",
    "read-only disk": "the disk of {who} is read-only for {secs:.1f} s",
    "full": "the disk of {who} is full for {secs:.1f} s",
    "slow disk": "each call to the disk of {who} takes a second, for {secs:.1f} s",
    "broken disk": "each change of the disk of {who} fails with EIO, for {secs:.1f} s",
    "follower": "the ZooKeeper server of {who} is cut off from the others for {secs:.1f} s, and answers reads",
    "power": "{who} loses power and what it has not synced, and starts again after {secs:.1f} s",
    "kill at answer": "the leader is killed when it next writes an answer, and starts again after {secs:.1f} s",
    "pause at answer": "the leader is paused for {secs:.1f} s when it next writes an answer",
    "expire at answer": "the leader is cut off from ZooKeeper when it next writes an answer, until its session is over",
    "unheard answer": "the leader's next answer to a change does not reach the user",
    "isolate at barrier": "the host that next takes a barrier is cut off from everything for {secs:.1f} s",
    "pause at barrier": "the host that next takes a barrier is paused for {secs:.1f} s",
    "kill at barrier": "the host that next takes a barrier is killed, and starts again after {secs:.1f} s",
    "isolate at start": "the host that next starts a worker is cut off from everything for {secs:.1f} s",
    "expire at start": "the host that next starts a worker is cut off from ZooKeeper for {secs:.1f} s",
    "kill at epoch": "the next new leader is killed at once, and starts again after {secs:.1f} s",
    "pause at epoch": "the next new leader is paused at once for {secs:.1f} s",
    "crash at replica": "the master that next writes a replica record is killed, and starts again after {secs:.1f} s",
    "kill at assignment": "the leader dies as it tells a host what to keep or run, and is back after {secs:.1f} s",
    "power at record": "the leader loses power when it next opens an upload, and starts again after {secs:.1f} s",
    "power at replica": "the next master that has a new bundle loses power, and starts again after {secs:.1f} s",
    "strand at record": "when an upload is next opened, users and masters are cut off from each other for {secs:.1f} s",
    "kill at record": "the leader is killed when it next opens an upload, and starts again after {secs:.1f} s",
    "pause at assignment": "the leader is paused for {secs:.1f} s when it next writes an assignment",
    "long texts": "workers end soon, and those that fail say {number} characters",
    "small requests": "ZooKeeper takes {number} times less at once, and daemons know it",
    "snapshot": "ZooKeeper's disks are copied",
    "set back": "ZooKeeper is down for {secs:.1f} s, and comes back with the copies of its disks",
    "trust": "hosts use no bundle of users that is not signed",
    "identities": "each host is a user of ZooKeeper of its own",
    "last release": "{who} is of the last release",
    "small store": "{who} has room for {number} bytes of bundles",
    "upgrade": "{who} is stopped, and starts in this release after {secs:.1f} s",
    "go back": "{who} is stopped, and starts in the last release after {secs:.1f} s",
    "wipe zookeeper": "ZooKeeper is down for {secs:.1f} s, and comes back empty",
    "restore": "{who} restores the newest backup, or founds a new cluster",
    "wipe": "{who} loses its disk, and starts again after {secs:.1f} s",
}
READS = ("open", "objects", "untar")
USES = (*READS, "lease", "mount")
USERS = frozenset({
    "upload", "distribute", "stand", "wave", "hurt wave", "hurt pairs", "send", "cancel", "remove", "download", "read",
    "look", "history", "open", "objects", "untar", "lease", "mount", "prune", "again", "pin", "unpin", "retain",
    "unretain", "sign", "make token", "revoke token", "use token", "transfer", "backup", "restore", "submit",
    "kill job", "rebalance", "deactivate", "activate", "drain", "undrain",
})  # fmt: skip
