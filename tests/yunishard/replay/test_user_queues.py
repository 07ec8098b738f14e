"""Jobs find a queue in any configuration, and the same one each time."""

from pathlib import Path

import pytest

from tests.yunishard.replay.swf_lines import swf_line, swf_log
from yunishard.cli.main import CommandUnusable
from yunishard.workloads.replay.user_queues import UserQueues, read_user_queues
from yunishard.workloads.replay.workload import plan

TEXT = """
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        queues:
          - {name: g2}
          - {name: teams, queues: [{name: red}, {name: u9}]}
          - {name: templates, parent: true}
  - name: rl.ac.uk
    queues: [{name: root, submitacl: "*", queues: [{name: only}]}]
"""


def test_groups_and_users_get_the_leaf_of_their_name_and_others_share_the_leaves_in_turn() -> None:
    queues = UserQueues(TEXT)
    chosen = [queues.choose_queue("default", group, "u1") for group in ("g1", "g2", "g3", "g4", "g5", "g1")]
    shared = ["root.g2", "root.teams.red", "root.teams.u9", "root.g2"]
    assert chosen == [shared[0], "root.g2", shared[1], shared[2], shared[3], shared[0]]
    assert queues.choose_queue("default", "g1", "u9") == "root.teams.u9"


def test_a_site_gets_the_partition_of_its_name_and_others_the_default_one() -> None:
    lines = [swf_line(1, site=1), swf_line(2, site=2, processors=2), swf_line(3, site=3)]
    planned = plan(
        swf_log(*lines, "; Partition: 2 RL.ac.uk"), rm_id="replay", partitions=1, queues=UserQueues(TEXT), nodes=2
    )
    assert [(job.partition, job.queue) for job in planned.jobs] == [
        ("default", "root.g2"),
        ("rl.ac.uk", "root.only"),
        ("default", "root.g2"),
    ]
    assert {site.partition for site in planned.sites} == {"default", "rl.ac.uk"}
    assert planned.build_configuration() == TEXT
    assert planned.folded_sites == 0


def test_without_a_default_partition_the_first_one_gets_the_rest() -> None:
    queues = UserQueues("partitions: [{name: a, queues: [{name: x}]}, {name: b, queues: [{name: y}]}]")
    assert queues.choose_partition("") == "a"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("partitions: [{name: a, queues: [{name: x, resources: {max: {vcore: -1}}}]}]", "vcore"),
        ("partitions: []", "there is no partition in it"),
        ("partitions: [{name: a, queues: [{name: root}]}]", "neither a leaf queue nor placement rules"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "queues.yaml"
    file.write_text(text)
    with pytest.raises(CommandUnusable, match=problem):
        read_user_queues(str(file))


def test_placement_rules_need_no_leaf() -> None:
    queues = UserQueues("partitions: [{name: a, placementrules: [{name: user, create: true}], queues: [{name: root}]}]")
    assert queues.choose_queue("a", "g1", "u1") == ""
    assert queues.partitions["a"].has_rules
