"""Looks at this host before an application starts here: its spark-submit, and whether a driver can
wait for its environment.

Always: what would fail inside Spark fails here, with a hint.
Never: change anything but the files that the command names.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from torrentdist.client.masters.remembered_masters import cache_dir
from torrentdist.installed_spark import default_properties, find_submit, read_properties, spark_environment
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId
from torrentdist.spark.submission.submit_arguments import SparkArguments
from torrentdist.spark.submission.submit_plan import SubmitRequest, program_of


def request_here(
    spark: SparkArguments, env: BundleId | None, bundles: Sequence[BundleId], ids_dir: str, environ: Mapping[str, str]
) -> SubmitRequest:
    """Returns the request, with what Spark's files on this host say. Blocks."""
    if not ids_dir:
        detail = "supervisor.ids_dir is empty, so executors cannot know where a bundle lies"
        raise TorrentdistError("config_missing", detail=detail)
    submit = find_submit(environ)
    properties = spark.values.get("properties-file")
    return SubmitRequest(
        spark=spark,
        env=env,
        bundles=tuple(bundles),
        ids_dir=ids_dir,
        program=submit.program,
        defaults=read_properties(Path(properties)) if properties else default_properties(environ, submit),
        gateway=environ.get("TORRENTDIST_GATEWAY", ""),
        templates=str(cache_dir()),
    )


def expect_driver(request: SubmitRequest) -> None:
    """Raises an error if the driver starts here and could not get its environment."""
    if not request.drives_with_bundle:
        return
    program = program_of(request.ids_dir)
    if not Path(program).exists():
        raise TorrentdistError("no_bundle_python", path=program)
    if not os.access(request.ids_dir, os.R_OK | os.X_OK):
        raise TorrentdistError("not_a_reader", user=os.getuid())


def environment_of(environ: Mapping[str, str], told: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment of spark-submit."""
    return {**spark_environment(environ, find_submit(environ)), **environ, **told}


def write_files(files: Mapping[str, str]) -> None:
    """Writes the files that a command names. A file that is there has the same content."""
    for name, text in files.items():
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
