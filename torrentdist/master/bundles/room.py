"""The bundles' room of a master: uploads, changes and reads of bundles, metafiles and recipes."""

from torrentdist.host.process.room import Room
from torrentdist.master.bundles.bundle_api import BundleApi
from torrentdist.master.bundles.bundle_change_api import BundleChangeApi
from torrentdist.master.bundles.bundle_operations import BundleOperations
from torrentdist.master.bundles.intake import Intake
from torrentdist.master.bundles.metafile_api import MetafileApi, RecipeApi
from torrentdist.master.bundles.pruning import Pruning
from torrentdist.master.bundles.recipes import RawMetafiles, Recipes
from torrentdist.master.bundles.upload_api import UploadApi
from torrentdist.master.leading.room import LeadingRoom
from torrentdist.master.master_core import MasterCore
from torrentdist.master.reads.reuse_api import ReuseApi
from torrentdist.master.reads.reuse_sources import ReuseSources
from torrentdist.master.replication.fetch_attempts import FetchAttempts
from torrentdist.master.replication.possession import Proofs
from torrentdist.master.swarm.swarms import Swarms
from torrentdist.model.ids import Digest


class BundlesRoom(Room, frozen=True, kw_only=True):
    intake: Intake
    attempts: FetchAttempts
    metafiles: RawMetafiles
    recipes: Recipes


def bundles_room(core: MasterCore, leading: LeadingRoom, swarms: Swarms) -> BundlesRoom:
    runtime, links, records, mirror = core.host.runtime, core.host.links, core.records, core.session.mirror
    leadership, changes, max_body = leading.leadership, leading.changes, core.config.api.max_request_bytes
    runtime.fetches.keeps_recipes = True
    attempts, metafiles = FetchAttempts(), RawMetafiles(runtime.store, links, mirror)
    recipes = Recipes(runtime.store, links, records)
    operations = BundleOperations(changes, leadership.default_min_replicas, core.now)
    sources = ReuseSources(runtime.store, records, swarms.names)
    runtime.fetches.sources_of = sources.of_bundle
    runtime.store.waiting_for = sources.waiting_for
    intake = Intake(runtime, mirror, operations, changes, attempts, recipes)
    abandon_secs = core.config.replication.abandon_secs

    def is_uploading(digest: Digest) -> bool:
        return intake.is_active(digest, abandon_secs)

    leading.completing.append(is_uploading)
    return BundlesRoom(
        intake=intake,
        attempts=attempts,
        metafiles=metafiles,
        recipes=recipes,
        routers=[
            BundleApi(core, swarms),
            BundleChangeApi(operations, leadership, Pruning(core.session, changes)),
            UploadApi(leadership, intake, Proofs(), max_body),
            MetafileApi(core, swarms, metafiles, attempts.retry, max_body),
            RecipeApi(core, swarms, recipes, leadership, max_body),
            ReuseApi(runtime.store, sources, max_body),
        ],
    )
