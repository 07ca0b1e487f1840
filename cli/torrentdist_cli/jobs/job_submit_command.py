"""`torrentdist job submit`: uploads a directory if needed, and creates a job from it."""

from pathlib import Path

import click

from torrentdist.client import job_client as client_jobs
from torrentdist.model.wire.job_messages import JobView
from torrentdist.security.signing.signing_keys import read_signer
from torrentdist_cli.frame.asking_masters import masters, run
from torrentdist_cli.frame.command import Command, Session, dry_run_option
from torrentdist_cli.frame.progress_bar import transfer_display
from torrentdist_cli.jobs.job_tables import show_changed


@click.command(cls=Command)
@click.argument("what", metavar="PATH|ID")
@click.option("--name", help="Override the name in job.toml.")
@click.option("--workers", type=click.IntRange(min=1), help="Override the number of workers in job.toml.")
@click.option(
    "--conf", metavar="K=V", multiple=True, help="Override a value of job.toml, such as restart.policy=never."
)
@click.option("--inactive", is_flag=True, help="Replicate and record it, but do not start it yet.")
@click.option(
    "--sign", metavar="KEY", type=click.Path(path_type=Path), help="Sign the job, and a directory's bundle, with it."
)
@dry_run_option
def submit(
    session: Session,
    what: str,
    name: str | None,
    workers: int | None,
    conf: tuple[str, ...],
    inactive: bool,
    sign: Path | None,
) -> None:
    """Submit a directory with a job.toml, or a bundle that has one.

    Hosts whose [trust] enforces signatures start a job with overrides only if it is signed.

    With -q: the job's id.
    """
    pairs = dict(_pair(text) for text in conf)
    choices = client_jobs.JobChoices(name=name, workers=workers, conf=pairs, activate=not inactive)

    async def work() -> JobView:
        config = session.config()
        signer = None if sign is None else read_signer(sign, config.trust)
        async with masters(config.client, dry_run=session.dry_run) as client:
            with transfer_display(session) as progress:
                return await client_jobs.submit(
                    client,
                    what,
                    choices,
                    swarm=config.client_swarm,
                    progress=progress,
                    signer=signer,
                    trust=config.trust,
                )

    show_changed(session, run(work()))


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise click.BadParameter(f"{text!r} is not of the form K=V", param_hint="--conf")
    return key, value
