"""In a leaf that is aware of states one application at a time begins, and none waits while nobody does; whatever is
asked for, released, killed, moved or configured.
"""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import apps, asks, gone, nodes, released
from tests.trial import Trial
from yunishard.partition_worker.engine.application import AppState

AWARE, FIFO = "application.sort.policy=stateaware", "application.sort.policy=fifo"
NAMES = [f"app-{number}" for number in range(5)]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["ask", "ask", "ask", "release", "wait", "end", "kill", "move", "configure"]),
        st.sampled_from(NAMES),
        st.integers(0, 3),
    ),
    max_size=30,
)


def step(trial: Trial, what: str, name: str, number: int, count: int) -> None:
    leaf = f"root.{'ab'[number % 2]}"
    if name not in trial.partition.applications:
        trial.does(apps(f"{name} {leaf}"))
    match what:
        case "ask":
            trial.does(asks(*(f"{name} {name}-{count}-{one} memory=1 priority={number}" for one in range(number))))
        case "release":
            trial.does(*(released(f"{name} {key}") for key in list(trial.app(name).allocations)[:number]))
        case "wait":
            trial.waits(number * 100)
        case "end":
            trial.does(gone(name))
        case "kill":
            trial.kills(name)
        case "move" if trial.app(name).queue.path != leaf and trial.app(name).state is not AppState.COMPLETING:
            trial.moves(name, leaf)
        case "configure":
            trial.reconfigures(f"root.a {(AWARE, FIFO)[number % 2]}; root.b {(AWARE, FIFO)[number // 2]}")


@settings(max_examples=150)
@given(STEPS)
def test_one_begins_at_a_time_and_nobody_waits_for_nothing(steps: list[tuple[str, str, int]]) -> None:
    trial = Trial(f"root.a {AWARE}; root.b {FIFO}").does(nodes("n1 memory=1000"))
    moved = False
    for count, (what, name, number) in enumerate(steps):
        step(trial, what, name, number, count)
        moved = moved or what == "move"
        for path in ("root.a", "root.b"):
            here = [trial.app(name) for name in trial.queue(path).applications]
            starting = [one for one in here if one.state is AppState.STARTING]
            waiting = [one for one in here if one.state is AppState.ACCEPTED and one.requests]
            assert len(starting) <= 1 or moved, (path, starting)
            assert bool(starting) or not waiting, (path, waiting)
            assert trial.queue(path).state_aware or not starting, (path, starting)
            assert not any(one.requests for one in here if one.state is AppState.RUNNING), path
