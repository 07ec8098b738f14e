"""Configurations for the RMs of the simulation: few texts, with the same names of partitions and queues everywhere.

Not here: who asks for which (`workload.py`).
"""

from typing import Final

LEAVES: Final = ("root.low", "root.high", "root.capped", "root.fair", "root.made.x")
"""The last one exists while an application is in it."""

REFUSED: Final = "partitions: [{name: default, queues: [{name: root, resources: {max: {vcore: nonsense}}}]}]"
"""A configuration that nobody gets."""


def text(names: tuple[str, ...], *, cap: int = 3, resolver: str = "") -> str:
    """Partitions of these names, all alike."""
    return "partitions:\n" + "".join(_partition(name, cap, resolver) for name in names)


def _partition(name: str, cap: int, resolver: str) -> str:
    looked_up = f"    usergroupresolver: {{type: {resolver}}}\n" if resolver else ""
    return f"""\
  - name: {name}
{looked_up}    placementrules: [{{name: provided, create: true}}]
    preemption: {{quotapreemptionenabled: true}}
    queues:
      - name: root
        submitacl: '*'
        limits:
          - {{limit: ann, users: [ann], maxresources: {{vcore: 12}}, maxapplications: 5}}
          - {{limit: developers, groups: [dev], maxresources: {{vcore: 14}}}}
        queues:
          - name: low
          - name: high
            resources: {{guaranteed: {{vcore: 6}}}}
            properties: {{preemption.delay: 1s}}
          - name: capped
            resources: {{max: {{vcore: {cap}}}}}
            properties: {{quota.preemption.delay: 1s}}
          - name: fair
            properties: {{application.sort.policy: fair}}
          - name: made
            parent: true
            childtemplate: {{resources: {{max: {{vcore: 5}}}}}}
"""


def variants(resolver: str) -> tuple[str, ...]:
    """What an RM may have."""
    return (
        text(("default",), resolver=resolver),
        text(("default", "gpu"), resolver=resolver),
        text(("default", "gpu"), cap=8, resolver=resolver),
        text(("default", "gpu", "spot"), resolver=resolver),
    )
