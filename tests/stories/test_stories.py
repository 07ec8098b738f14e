"""Plays the stories in this directory: text that says what a user sees.

A story is blocks separated by empty lines; a block is comment lines (`#`, why), commands, `----`, and what is told in
answer, decisions included. STORIES=rewrite records the answers; commit only what you can explain.

    config QUEUES            create-queues            nodes fair|binpacking       (before anything else)
    enforce-quotas: queues are brought down to a lowered maximum                  (before anything else)
    node n1 memory=10        app app-1 root.a         ask app-1 a1 memory=4       foreign f1 n1 memory=2
    drained-node ...         remove-app app-1         release app-1 a1            (`- f1` for a foreign one)
    kill app-1 by=bob groups=dev                      move app-1 root.b        (by a scheduler admin if not said)
    reconfigure QUEUES: the partition takes another configuration
    update-node n1 memory=20, drain n1, undrain n1, remove-node n1                pass 30
    running                  shows what runs
"""

import os
from pathlib import Path

import pytest

from tests.builders import COMMANDS, PROVIDED_CREATE, Words, words
from tests.trial import ADMIN, Trial
from yunishard.common.messages.query_messages import Actor
from yunishard.partition_worker.engine.administration import NotDone

STORIES = sorted(Path(__file__).parent.glob("*.txt"))


def played(story: str) -> str:
    """The story with the answers that the engine gives."""
    settings = {"queues": "root.a", "nodes": "fair"}
    trial: Trial | None = None
    blocks = []
    for block in story.strip().split("\n\n"):
        asked = block.partition("\n----")[0].strip()
        answers: list[str] = []
        for command in (line for line in asked.splitlines() if not line.startswith("#")):
            verb, _, text = command.partition(" ")
            if verb in ("config", "nodes", "create-queues", "enforce-quotas"):
                settings |= {"queues": text} if verb == "config" else {verb: text or "yes"}
                continue
            if trial is None:
                rules = (PROVIDED_CREATE,) if "create-queues" in settings else ()
                enforced = "enforce-quotas" in settings
                trial = Trial(settings["queues"], nodes=settings["nodes"], rules=rules, quota_preemption=enforced)
            answers += answered(trial, verb, text)
        blocks.append("\n".join([asked, "----", *answers]))
    return "\n\n".join(blocks) + "\n"


def answered(trial: Trial, verb: str, text: str) -> list[str]:
    if verb == "running":
        return trial.running
    if verb == "reconfigure":
        return trial.reconfigures(text).told()
    if verb == "pass":
        return trial.waits(float(text)).told()
    if verb in ("kill", "move"):
        return administered(trial, verb, words(text))
    return trial.does(COMMANDS[verb](text)).told()


def administered(trial: Trial, verb: str, text: Words) -> list[str]:
    by = Actor(user=text.take("by"), groups=text.take("groups").split(","))
    try:
        (trial.kills if verb == "kill" else trial.moves)(*text.names, by=by if by.user else ADMIN)
    except NotDone as refusal:
        return [f"refused ({refusal.status}): {refusal}"]
    return trial.told()


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story(path: Path) -> None:
    story = path.read_text()
    if os.environ.get("STORIES") == "rewrite":
        path.write_text(played(story))
        return
    assert played(story) == story
