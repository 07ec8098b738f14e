"""Nodes, what lies on them, and the orders in which they are tried.

A node keeps its place in an order until something of ours comes or goes there, so the places are written too. What is
remembered to make the search short (who has no room, who was sought in vain) is found again by searching.

Not here: what predicates said of nodes (`predicates.py`).
"""

from partition_worker.engine.books import Books
from partition_worker.engine.memory import allocations
from partition_worker.engine.memory.amounts import amounts_of, sums
from partition_worker.engine.memory.model import FleetMemory, NodeMemory
from partition_worker.engine.memory.references import Lookup, Numbering
from partition_worker.engine.nodes.fleet import Fleet
from partition_worker.engine.nodes.node import Node


def written(fleet: Fleet, numbering: Numbering) -> FleetMemory:
    """All of them; allocations have their places already."""
    return FleetMemory(
        nodes=[_written(node, numbering) for node in fleet],
        total=sums(fleet.total),
        ranks=fleet.ranks,
        guarded=fleet.ever_guarded,
        lineups=[
            (policy, [(node.rank, lineup.score(node)) for node in lineup]) for policy, lineup in fleet.lineups.items()
        ],
    )


def _written(node: Node, numbering: Numbering) -> NodeMemory:
    places = numbering.places
    return NodeMemory(
        node.node_id,
        node.rank,
        node.capacity,
        node.attributes,
        node.schedulable,
        node.guarded,
        sums(node.allocated),
        sums(node.occupied),
        sums(node.available),
        [places[one] for one in node.allocations.values()],
        [allocations.written(one, numbering) for one in node.foreign.values()],
    )


def restore(fleet: Fleet, found: FleetMemory, lookup: Lookup) -> None:
    """Let the partition have the nodes, with nothing on them."""
    nodes = []
    for memory in found.nodes:
        node = lookup.nodes[memory.rank] = Node(
            memory.node_id,
            memory.rank,
            memory.capacity,
            memory.attributes,
            memory.schedulable,
            allocated=amounts_of(memory.allocated),
            occupied=amounts_of(memory.occupied),
            guarded=memory.guarded,
        )
        node.available = amounts_of(memory.available)
        nodes.append(node)
    lineups = {policy: [(lookup.nodes[rank], score) for rank, score in places] for policy, places in found.lineups}
    fleet.recall(nodes, total=amounts_of(found.total), ranks=found.ranks, ever_guarded=found.guarded, lineups=lineups)


def restore_contents(books: Books, found: FleetMemory, lookup: Lookup) -> None:
    """Let everything lie where it did."""
    reading = allocations.Reading(lookup, books.fleet.predicates)
    for memory in found.nodes:
        node = lookup.nodes[memory.rank]
        for place in memory.allocations:
            allocation = lookup.allocations[place]
            node.allocations[allocation.key] = allocation
        for one in memory.foreign:
            node.foreign[one.key] = reading.restored(one, None)
            books.foreign[one.key] = node
