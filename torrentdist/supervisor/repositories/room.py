"""The package indexes and Maven repositories of this host, for its daemon."""

from torrentdist.host.process.host_daemon import HostDaemon
from torrentdist.host.process.room import Room
from torrentdist.supervisor.gateway.bundle_reader import BundleReader
from torrentdist.supervisor.repositories.file_facts import FileFacts
from torrentdist.supervisor.repositories.maven_api import MavenApi
from torrentdist.supervisor.repositories.python_index_api import PythonIndexApi


def repository_room(host: HostDaemon, reader: BundleReader) -> Room:
    facts = FileFacts(host.runtime.store.data_dir / "file-facts", host.runtime.is_here)
    host.close_later(facts.close)
    return Room(routers=(PythonIndexApi(reader, facts), MavenApi(reader, facts)))
