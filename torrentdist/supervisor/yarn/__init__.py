"""Applications whose driver runs in YARN: how they are found, followed and ended, so that a job
never runs twice there."""
