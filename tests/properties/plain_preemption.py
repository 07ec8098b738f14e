"""A second implementation of the choice of victims, as plain as it can be: every queue is copied for every question.

It follows the words of the specification (5.2) and its resource algebra (section 0), in which nothing, an empty amount
and an amount of 0 are three things. It shares nothing with the engine but reading its state. It is slow on purpose.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass

from tests.properties.searching import outranks
from yunishard.common.messages.kinds import Resources
from yunishard.common.resources import total_of
from yunishard.partition_worker.engine.allocation import Allocation
from yunishard.partition_worker.engine.application import Application
from yunishard.partition_worker.engine.nodes.node_index import Node, Reservation
from yunishard.partition_worker.engine.queues.queue import Queue
from yunishard.partition_worker.engine.state import PartitionState

Res = Resources | None

NO_GUARANTEE = "preemption-guarantee-used"
NO_HELP = "preemption-no-victim"
TOO_LITTLE = "preemption-too-little"


# The algebra of section 0 --------------------------------------------------------------------------------------------


def add(a: Res, b: Res) -> Resources:
    return {t: (a or {}).get(t, 0) + (b or {}).get(t, 0) for t in {**(a or {}), **(b or {})}}


def sub(a: Res, b: Res) -> Resources:
    return {t: (a or {}).get(t, 0) - (b or {}).get(t, 0) for t in {**(a or {}), **(b or {})}}


def sub_ex(base: Res, d: Res) -> Res:
    return None if base is None else {t: base[t] - (d or {}).get(t, 0) for t in base}


def fit(room: Res, s: Res) -> bool:
    return all(s[t] <= max(0, (room or {}).get(t, 0)) for t in s or {})


def fit_actual(room: Res, s: Resources) -> bool:
    return all(s[t] <= room[t] for t in s if t in room) if room is not None else True


def ge(a: Res, b: Res) -> bool:
    return all((a or {}).get(t, 0) >= (b or {}).get(t, 0) for t in {**(a or {}), **(b or {})})


def ge_ex(limit: Res, s: Res) -> bool:
    if not s and limit:
        return all(value > 0 for value in limit.values())
    common = [t for t in limit or {} if t in (s or {})]
    if not common:
        return bool(limit) and bool(s)
    return all((s or {})[t] <= (limit or {})[t] for t in common)


def gt_ex(limit: Res, s: Res) -> bool:
    common = [t for t in limit or {} if t in (s or {})]
    return ge_ex(limit, s) and (not common or any((s or {})[t] != (limit or {})[t] for t in common))


def min_u(a: Res, b: Res) -> Res:
    if a is None or b is None:
        return b if a is None else a
    return {t: min(a.get(t, b.get(t, 0)), b.get(t, a.get(t, 0))) for t in {**a, **b}}


def merge_missing(a: Resources, b: Res) -> Resources:
    return {**(b or {}), **a}


def match_any(a: Resources, b: Resources) -> bool:
    return any(t in b for t in a)


def same(a: Res, b: Res) -> bool:
    return a is b if a is None or b is None else all(a.get(t, 0) == b.get(t, 0) for t in {**a, **b})


# Snapshots -----------------------------------------------------------------------------------------------------------


@dataclass
class Snapshot:
    path: str
    parent: "Snapshot | None"
    allocated: Resources
    preempting: Resources
    guaranteed: Res
    ask_queue: "Snapshot | None" = None

    def change(self, r: Resources, sign: int) -> None:
        at: Snapshot | None = self
        while at is not None:
            at.allocated = add(at.allocated, r) if sign > 0 else sub(at.allocated, r)
            at = at.parent


def remaining(q: Snapshot | None) -> Res:
    if q is None:
        return None
    pr = remaining(q.parent)
    if not pr and not q.guaranteed:
        return None
    u = sub_ex(q.allocated, q.preempting)
    r = sub_ex(q.guaranteed, u)
    ask = q.ask_queue
    if ask is not None:
        if ask.path == q.path and r:
            return merge_missing(r, pr)
        if r and ask.path.startswith(q.path) and sub_ex(ask.guaranteed, sub_ex(ask.allocated, ask.preempting)):
            return None
    return min_u(r, pr)


Manager = Callable[[str, str, list[str], int], int | str]
"""As the RM's predicate for preemptions in the SDK."""


class Plain:
    """One question for victims."""

    def __init__(
        self,
        state: PartitionState,
        application: Application,
        ask: Allocation,
        *,
        nodes_tried: bool,
        admits: Callable[[Allocation, Node], bool] | None = None,
        manager: Manager | None = None,
    ) -> None:
        self.state, self.leaf, self.ask, self.nodes_tried = state, application.queue, ask, nodes_tried
        self.admits = admits or (lambda ask, node: True)
        self.manager = manager
        self.wanted = {t: n for t, n in ask.resources.items() if n}
        """A type of which nothing is asked is not asked for."""
        self.start = self.snapshots()

    def snapshots(self) -> dict[str, Snapshot]:
        found: dict[str, Snapshot] = {}
        for queue in self.state.tree:
            found[queue.path] = Snapshot(
                queue.path,
                None if queue.parent is None else found[queue.parent.path],
                dict(queue.allocated),
                dict(queue.preempting),
                None if queue.guaranteed is None else dict(queue.guaranteed),
            )
        at_start = deepcopy(found[self.leaf.path])
        for snapshot in found.values():
            if snapshot.parent is not None:
                snapshot.ask_queue = at_start
        return found

    # Fence and candidates --------------------------------------------------------------------------------------------

    def fence(self) -> tuple[Queue, dict[str, int]]:
        p, prio = self.ask.priority, {}
        for queue in self.leaf.ancestry():
            p = queue.policies.priority_offset if queue.policies.priority_fence else p + queue.policies.priority_offset
            prio[queue.path] = p
            overflows = self.eff_max(queue) and not ge_ex(self.eff_max(queue), add(queue.allocated, self.wanted))
            if queue.parent is None or queue.policies.preemption == "fence" or overflows:
                return queue, prio
        raise AssertionError

    def eff_max(self, queue: Queue) -> Res:
        return min_u(None if queue.parent is None else self.eff_max(queue.parent), queue.maximum)

    def candidates(self) -> list[Allocation]:
        fence, prio = self.fence()
        return list(self.below(fence, prio, prio[fence.path], fenced=False))

    def below(self, queue: Queue, prio: dict[str, int], p: int, *, fenced: bool) -> list[Allocation]:
        found: list[Allocation] = []
        if queue is not self.leaf and queue.applications:
            found += self.victims_in(queue, p, fenced=fenced)
        for child in queue.children.values():
            offset = child.policies.priority_offset
            if child.path in prio:
                found += self.below(child, prio, prio[child.path], fenced=fenced)
            elif child.policies.priority_fence:
                if offset <= p:
                    found += self.below(child, prio, p, fenced=True)
            else:
                found += self.below(child, prio, p - offset, fenced=fenced)
        return found

    def path_of(self, v: Allocation) -> str:
        return self.state.applications[v.application_id].queue.path

    def victims_in(self, leaf: Queue, p: int, *, fenced: bool) -> list[Allocation]:
        rest = remaining(self.start[leaf.path])
        if leaf.policies.preemption == "disabled" or (rest is not None and ge(rest, {})):
            return []
        return [
            one
            for name in leaf.applications
            for one in self.state.applications[name].allocations.values()
            if match_any(self.wanted, one.resources)
            and not (one.shape.required_node or one.released or one.preempted)
            and (fenced or one.priority <= p)
            and self.path_of(one) not in self.state.preemptions.protected(self.state.now, self.leaf, self.wanted)
        ]

    # Steps -----------------------------------------------------------------------------------------------------------

    def plan(self) -> tuple[str, list[str], list[str]] | str:
        """The node, the victims, the asks whose reservations are cancelled; or why not."""
        all_of_them = self.candidates()
        if not self.is_guaranteed(all_of_them):
            return NO_GUARANTEE
        rest = remaining(self.start[self.leaf.path])
        within = rest is not None and fit_actual(rest, self.wanted)
        failed: list[Node] = []
        reason = NO_HELP
        for usable in self.usable_nodes():
            while len(failed) < 10:
                rest_of_them = [node for node in usable if node not in failed]
                small = chosen = self.choose_node(all_of_them, rest_of_them)
                if within and (small is None or any(self.reluctance(small[1]))):
                    larger = self.choose_larger(all_of_them, rest_of_them, small)
                    if larger is not None:
                        small, chosen = None, larger
                if chosen is None:
                    break
                plan = self.plan_on(*chosen, all_of_them, within=within, is_small=small is not None)
                if not (isinstance(plan, str) and within and chosen[1]):
                    return plan
                failed.append(chosen[0])
                reason = plan
            self.nodes_tried = False  # not those that are reserved
        return reason

    def plan_on(
        self, node: Node, victims: list[Allocation], all_of_them: list[Allocation], *, within: bool, is_small: bool
    ) -> tuple[str, list[str], list[str]] | str:
        cancelled = [key for key in node.reservations if key != self.ask.key]
        if cancelled and not victims and self.lacking([]) is None:
            return node.node_id, [], cancelled
        extra = self.extra(victims, all_of_them)
        if extra is None:
            return NO_HELP
        few = self.with_room_in_queues(victims, all_of_them, within=within)
        if not few:
            return TOO_LITTLE if victims else NO_HELP
        whole = self.for_the_whole_ask(node, victims, extra) if is_small else None
        final = whole if whole and self.lacking(whole) is None else few
        return node.node_id, [v.key for v in final], cancelled

    def for_the_whole_ask(
        self, node: Node, victims: list[Allocation], extra: list[Allocation]
    ) -> list[Allocation] | None:
        total: Resources = {}
        final: list[Allocation] = []
        for v in victims + extra:
            if v.node_id != node.node_id and not fit(node.available, self.wanted):
                continue
            here = [one.resources for one in final if one.node_id == node.node_id]
            missing = not fit(total_of([node.available, *here]), self.wanted)
            is_required = self.manager is not None and v in victims
            if gt_ex(self.wanted, total) or is_required or (v.node_id == node.node_id and missing):
                final.append(v)
                total = add(total, v.resources)
        return None if gt_ex(self.wanted, total) else final

    # As few as needed -------------------------------------------------------------------------------------------------

    def lacking(self, victims: list[Allocation]) -> tuple[Queue, Resources] | None:
        """The lowest queue without room for the ask once these have left, and what it and those above it lack."""
        found: list[Queue] = []
        most: Resources = {}
        for queue in self.leaf.ancestry():
            gone = total_of([queue.preempting, *(v.resources for v in victims if self.is_below(v, queue))])
            after = add(add(sub(queue.allocated, gone), queue.kept), self.wanted)
            for t, n in self.wanted.items():
                excess = after[t] - (queue.maximum or {}).get(t, after[t])
                if n > 0 and excess > 0:
                    found.append(queue)
                    most[t] = max(most.get(t, 0), excess)
        return (found[0], most) if found else None

    def is_below(self, v: Allocation, queue: Queue) -> bool:
        return f"{self.path_of(v)}.".startswith(f"{queue.path}.")

    def with_room_in_queues(
        self, victims: list[Allocation], candidates: list[Allocation], *, within: bool
    ) -> list[Allocation]:
        """These, and others that are needed for room in the queues; nobody if that is impossible."""
        lacking = self.lacking(victims)
        if lacking is None:
            return victims
        queue, missing = lacking
        others = self.sorted([v for v in candidates if v not in victims and self.is_below(v, queue)])
        more = self.small_ones(missing, others, victims)
        if within:
            more = self.larger_ones(missing, others, victims) or more
        return victims + more if more else []

    def frees(self, victims: list[Allocation], missing: Resources) -> bool:
        total = total_of(v.resources for v in victims)
        return all(total.get(t, 0) >= n for t, n in missing.items())

    def small_ones(self, missing: Resources, candidates: list[Allocation], gone: list[Allocation]) -> list[Allocation]:
        """Those that are not too large, until nothing is missing; nobody if all are not enough."""
        taken: list[Allocation] = []
        self.take(missing, candidates, taken, self.without(gone))
        return taken if self.frees(taken, missing) else []

    def without(self, gone: list[Allocation]) -> dict[str, Snapshot]:
        queues = self.snapshots()
        for v in gone:
            queues[self.path_of(v)].change(v.resources, -1)
        return queues

    def take(
        self, missing: Resources, candidates: list[Allocation], taken: list[Allocation], queues: dict[str, Snapshot]
    ) -> list[Allocation]:
        """Add to those that are taken, and return those that are too large at their turn."""
        large: list[Allocation] = []
        ask_queue = queues[self.leaf.path]
        for v in candidates:
            if not self.helps(v, missing, taken, queues):
                continue
            queues[self.path_of(v)].change(v.resources, -1)
            total = total_of(one.resources for one in taken)
            ask_queue.change(total, +1)
            room = remaining(ask_queue)
            ask_queue.change(total, -1)
            if room is None or not fit_actual(room, {t: v.resources[t] for t in missing if v.resources.get(t)}):
                queues[self.path_of(v)].change(v.resources, +1)
                large.append(v)
            else:
                taken.append(v)
        return large

    def helps(self, v: Allocation, missing: Resources, taken: list[Allocation], queues: dict[str, Snapshot]) -> bool:
        """Whether it has what is missing still, and its queue more than its guarantee; those taken have left."""
        r, total = remaining(queues[self.path_of(v)]), total_of(one.resources for one in taken)
        still = [t for t, n in missing.items() if total.get(t, 0) < n]
        return (r is None or self.over(r)) and any(v.resources.get(t, 0) for t in still)

    def larger_ones(self, missing: Resources, candidates: list[Allocation], gone: list[Allocation]) -> list[Allocation]:
        """Those that are too large as well, of each sort behind the others of it; then without those that are not
        needed any more. Or one that is enough alone, if that is better. Nobody if small ones are no worse.
        """
        small, queues, taken = self.small_ones(missing, candidates, gone), self.without(gone), list[Allocation]()
        for sort in ((False, False), (False, True), (True, False), (True, True)):
            large = self.take(missing, [v for v in candidates if self.reluctance([v]) == sort], taken, queues)
            for v in sorted(large, key=lambda v: self.rate([v], missing)):
                if self.helps(v, missing, taken, queues):
                    queues[self.path_of(v)].change(v.resources, -1)
                    taken.append(v)
        start = self.without(gone)
        choices = [[v] for v in candidates if self.frees([v], missing) and self.helps(v, missing, [], start)]
        if self.frees(taken, missing):
            for v in list(taken):
                if self.frees([one for one in taken if one is not v], missing):
                    taken.remove(v)
            choices.append(taken)
        best = min(choices, key=lambda choice: self.rate(choice, missing), default=[])
        return best if best and (not small or self.reluctance(best) < self.reluctance(small)) else []

    def reluctance(self, victims: list[Allocation]) -> tuple[bool, bool]:
        return not all(v.may_be_victim for v in victims), any(v.originator for v in victims)

    def rate(self, victims: list[Allocation], missing: Resources) -> tuple[bool, bool, float, int]:
        """What is preferred, the smallest first."""
        return *self.reluctance(victims), self.size(victims, missing), len(victims)

    def size(self, victims: list[Allocation], missing: Resources) -> float:
        total = total_of(v.resources for v in victims)
        return max(total.get(t, 0) / self.wanted[t] for t in missing)

    def choose_larger(
        self, candidates: list[Allocation], usable: list[Node], small: tuple[Node, list[Allocation]] | None
    ) -> tuple[Node, list[Allocation]] | None:
        options: list[tuple[tuple[bool, bool, float, int], str, Node, list[Allocation]]] = []
        for node in usable:
            missing = {t: n for t, n in self.shortfall(node.available).items() if n}
            here = self.sorted([v for v in candidates if v.node_id == node.node_id])
            taken = self.larger_ones(missing, here, []) if missing else []
            if taken and (small is None or self.reluctance(taken) < self.reluctance(small[1])):
                options.append((self.rate(taken, missing), node.node_id, node, taken))
        for _, name, node, taken in sorted(options, key=lambda option: option[:2]):
            keys = [v.key for v in taken]
            if self.manager is None or not isinstance(self.manager(self.ask.key, name, keys, len(keys) - 1), str):
                return node, taken
        return None

    def over(self, x: Resources) -> bool:
        return any(x.get(t, 0) < 0 for t in self.wanted)

    def is_guaranteed(self, candidates: list[Allocation]) -> bool:
        queues = self.snapshots()
        ask_queue = queues[self.leaf.path]
        rest = remaining(ask_queue)
        if rest is not None and fit_actual(rest, self.wanted):
            return True
        ask_queue.change(self.wanted, +1)
        for v in candidates:
            queues[self.path_of(v)].change(v.resources, -1)
            rest = remaining(ask_queue)
            if rest is not None and not self.over(rest):
                return True
        return False

    def usable_nodes(self) -> tuple[list[Node], list[Node]]:
        """Those that are not reserved for others, and those of which the reservations may end."""
        large = [node for node in self.state.nodes if node.schedulable and fit(node.capacity, self.wanted)]
        free = [node for node in large if not node.reservations or self.ask.key in node.reservations]
        reserved = [node for node in large if node not in free and all(map(self.may_end, node.reservations.values()))]
        return free, reserved

    def may_end(self, reservation: Reservation) -> bool:
        other = reservation.ask
        if other.shape.required_node or other.preemption_triggered:
            return False
        its = Plain(self.state, self.state.applications[other.application_id], other, nodes_tried=True)
        rest = remaining(its.start[its.leaf.path])
        return outranks(self.state, self.ask, other) or rest is None or not fit_actual(rest, its.wanted)

    def sorted(self, candidates: list[Allocation]) -> list[Allocation]:
        return sorted(candidates, key=lambda v: (not v.may_be_victim, v.originator, -v.created_ns))

    def choose_node(self, candidates: list[Allocation], usable: list[Node]) -> tuple[Node, list[Allocation]] | None:
        checks: list[tuple[int, str, Node, list[Allocation]]] = []
        on: dict[str, list[Allocation]] = {}
        for node in usable:
            here = [v for v in candidates if v.node_id == node.node_id]
            on[node.node_id] = self.sorted(here)
            if fit(node.available, self.wanted):
                if not self.nodes_tried:
                    checks.append((-1, node.node_id, node, []))
                continue
            second = self.second_pass(node, self.first_pass(node, on[node.node_id]))
            if second is not None:
                checks.append((second[0], node.node_id, node, second[1]))
        checks.sort(key=lambda check: check[:2])
        best: tuple[int, Node, list[Allocation]] | None = None
        while checks:
            batch, checks = checks[:10], checks[10:]
            for least, name, node, results in batch:
                index = least
                if index >= 0 and self.manager is not None:
                    answer = self.manager(self.ask.key, name, [v.key for v in results], index)
                    if isinstance(answer, str):
                        continue
                    index = answer
                if index >= 0 or self.admits(self.ask, node):
                    score = self.score(index, on[name])
                    if best is None or (score, name) < (best[0], best[1].node_id):
                        best = (score, node, results[: index + 1])
            if best is not None and best[0] < 2**32:
                break
        return None if best is None else best[1:]

    def score(self, index: int, on_node: list[Allocation]) -> int:
        if not on_node:
            return 2**35
        score = 0 if index < 0 else index + 1
        first = on_node[: index + 1]
        score |= 2**33 if any(v.originator for v in first) else 0
        return score | (2**34 if any(not v.may_be_victim for v in first) else 0)

    def first_pass(self, node: Node, candidates: list[Allocation]) -> list[Allocation]:
        queues = self.snapshots()
        ask_queue, free = queues[self.leaf.path], dict(node.available)
        lacked = {t for t, n in self.shortfall(free).items() if n}
        head: list[Allocation] = []
        tail: list[Allocation] = []
        for v in candidates:
            queue = queues[self.path_of(v)]
            r = remaining(queue)
            queue.change(v.resources, -1)
            if r is not None and not self.over(r):
                queue.change(v.resources, +1)
                continue
            room = remaining(ask_queue)
            if room is None or not fit_actual(room, {t: n for t, n in v.resources.items() if t in lacked}):
                queue.change(v.resources, +1)
                continue
            ask_queue.change(v.resources, +1)
            if self.shortfall(add(free, v.resources)) != self.shortfall(free):
                head.append(v)
                free = add(free, v.resources)
            else:
                ask_queue.change(v.resources, -1)
                queue.change(v.resources, +1)
                tail.append(v)
        return head + tail

    def shortfall(self, free: Resources) -> Resources:
        return {t: max(0, n) for t, n in sub(self.wanted, free).items() if t in self.wanted}

    def second_pass(self, node: Node, order: list[Allocation]) -> tuple[int, list[Allocation]] | None:
        queues, free = self.snapshots(), dict(node.available)
        results: list[Allocation] = []
        index: int | None = None
        for v in order:
            queue = queues[self.path_of(v)]
            r = remaining(queue)
            if r is None or self.over(r):
                queue.change(v.resources, -1)
                free = add(free, v.resources)
                results.append(v)
                if index is None and fit(free, self.wanted):
                    index = len(results) - 1
        return None if index is None else (index, results)

    def extra(self, victims: list[Allocation], candidates: list[Allocation]) -> list[Allocation] | None:
        queues = self.snapshots()
        ask_queue = queues[self.leaf.path]
        for v in victims:
            queues[self.path_of(v)].change(v.resources, -1)
        taken: list[Allocation] = []
        for v in self.sorted([v for v in candidates if v not in victims]):
            queue = queues[self.path_of(v)]
            r = remaining(queue)
            queue.change(v.resources, -1)
            if r is not None and not self.over(r):
                queue.change(v.resources, +1)
                continue
            before = remaining(ask_queue)
            if before is None or not fit_actual(before, v.resources):
                queue.change(v.resources, +1)
                break
            ask_queue.change(v.resources, +1)
            if same(before, remaining(ask_queue)):
                ask_queue.change(v.resources, -1)
                queue.change(v.resources, +1)
            else:
                taken.append(v)
        rest = remaining(ask_queue)
        return None if taken and (rest is None or self.over(rest)) else taken
