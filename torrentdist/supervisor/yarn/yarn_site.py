"""Reads from Hadoop's configuration where the ResourceManagers of a YARN cluster answer.

Always: what is missing is an error that names the file or the variable.
It blocks: call it in threads. Never: follow an XInclude, or ask anybody.
"""

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path

from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import JobId
from torrentdist.model.wording import os_sentence
from torrentdist.supervisor.yarn.yarn_place import YarnPlace, tag_of_job

FILE = "yarn-site.xml"
MOST_BYTES = 4 * 1024 * 1024
MOST_MANAGERS = 16
MOST_CHARACTERS = 10_000
"""Longest value, with its variables replaced."""
PORT, SECURE_PORT = 8088, 8090
_VARIABLE = re.compile(r"\$\{([^${}\s]+)\}")
_MOST_ROUNDS = 20
"""As often as Hadoop replaces the variables of a value."""
_RM = "yarn.resourcemanager"


def yarn_place(environ: Mapping[str, str], cluster: str, job: JobId, user: str) -> YarnPlace:
    """Returns where the applications of a job are found. `environ`: the environment of its
    submissions, by a user of this host. Blocks."""
    return YarnPlace(
        resource_managers=resource_managers(environ),
        tag=tag_of_job(cluster, job),
        user=environ.get("HADOOP_USER_NAME") or user,
    )


def resource_managers(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the URLs of the web interfaces, for a program with these environment variables."""
    folder = environ.get("YARN_CONF_DIR") or environ.get("HADOOP_CONF_DIR")
    if not folder:
        detail = "a driver in YARN needs HADOOP_CONF_DIR or YARN_CONF_DIR, in the job's [env] or its supervisor's"
        raise TorrentdistError("config_missing", detail=detail)
    path = Path(folder) / FILE
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            is_file = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
            text = file.read(MOST_BYTES + 1) if is_file else b""
    except OSError as exc:
        raise TorrentdistError("config_invalid", origin=str(path), detail=os_sentence(exc)) from exc
    if not is_file:
        raise TorrentdistError("config_invalid", origin=str(path), detail="it is no regular file")
    if len(text) > MOST_BYTES:
        raise TorrentdistError("config_invalid", origin=str(path), detail=f"it has more than {MOST_BYTES} bytes")
    return urls_in(_properties(text, str(path)))


def _without_waiting(path: str, flags: int) -> int:
    """Opens a file. A pipe of that name, which a job may have made, would wait for its writer."""
    return os.open(path, flags | os.O_NONBLOCK)


def urls_in(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the URLs that these properties name, one for each ResourceManager."""
    secure = _value(properties, "yarn.http.policy") == "HTTPS_ONLY"
    several = _value(properties, f"{_RM}.ha.enabled") == "true"
    names = [name.strip() for name in _value(properties, f"{_RM}.ha.rm-ids").split(",") if name.strip()]
    suffixes = [f".{name}" for name in names[:MOST_MANAGERS]] if several and names else [""]
    return tuple(_url(properties, suffix, secure) for suffix in suffixes)


def _url(properties: Mapping[str, str], suffix: str, secure: bool) -> str:
    key = f"{_RM}.webapp.https.address" if secure else f"{_RM}.webapp.address"
    host = _value(properties, f"{_RM}.hostname{suffix}") or "0.0.0.0"
    address = _value(properties, f"{key}{suffix}") or f"{host}:{SECURE_PORT if secure else PORT}"
    address = address.replace("0.0.0.0", "127.0.0.1", 1) if address.startswith("0.0.0.0") else address
    return f"{'https' if secure else 'http'}://{address}"


def _value(properties: Mapping[str, str], name: str) -> str:
    """Returns one value with its variables replaced; empty: there is none. A value may name a long
    one often, so only values that are needed are made, and none becomes long."""
    value = properties.get(name, "")
    for _ in range(_MOST_ROUNDS):
        found = _VARIABLE.search(value)
        if found is None or found[1] not in properties or len(value) > MOST_CHARACTERS:
            break
        value = value[: found.start()] + properties[found[1]] + value[found.end() :]
    if len(value) > MOST_CHARACTERS:
        detail = f"the value of {name} has more than {MOST_CHARACTERS} characters"
        raise TorrentdistError("config_invalid", origin=FILE, detail=detail)
    return value


def _properties(text: bytes, origin: str) -> dict[str, str]:
    from xml.etree import ElementTree  # only hosts with such a job need it

    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as exc:
        raise TorrentdistError("config_invalid", origin=origin, detail=str(exc)) from exc
    pairs = ((each.findtext("name"), each.findtext("value")) for each in root.iter("property"))
    return {name.strip(): (value or "").strip() for name, value in pairs if name}
