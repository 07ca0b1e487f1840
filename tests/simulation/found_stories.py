"""Stories that once found something, whole, because the story of a seed changes with its maker.

`found_stories.jsonl` has one a line: `found` says what it was. A story that run.py finds is printed
as such a line with `--line`.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from simulation.steps import Step
from simulation.story_maker import Story

FILE = Path(__file__).with_name("found_stories.jsonl")


def found_stories() -> dict[str, Story]:
    """Returns each story by what it found."""
    known = map(json.loads, FILE.read_text().splitlines())
    return {each.pop("found"): _story(each) for each in known}


def _story(fields: dict[str, object]) -> Story:
    steps = tuple(Step(**step) for step in fields.pop("steps"))  # type: ignore[attr-defined]
    return Story(steps=steps, **fields)  # type: ignore[arg-type]


def line_of(story: Story, found: str) -> str:
    steps = [{key: value for key, value in asdict(step).items() if value} | {"at": step.at} for step in story.steps]
    steps = [{"who": "", **step} for step in steps]
    return json.dumps({"found": found, **asdict(story), "steps": steps})
