"""The options `--config` and `--diff` of `yunishard journal replay`: print what another configuration decides."""

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from yunishard.common.process.terminal import clean, print_table, write
from yunishard.common.text_formats import format_count, format_seconds
from yunishard.journal_tools.inspection import print_json, print_rows, print_state
from yunishard.journal_tools.other_config import (
    Difference,
    RunOutcome,
    RunSummary,
    compare_runs,
    describe_assumptions,
    list_recorded,
    load_config,
    measure_agreement,
    play,
    summarize_run,
)
from yunishard.journal_tools.recorded_inputs import RecordedInputs, collect_inputs
from yunishard.journal_tools.replay import replay_until, restore
from yunishard.journal_tools.views import VIEWS, Replay, Source, format_time
from yunishard.partition_worker.engine.recording import list_everything
from yunishard.partition_worker.recovery import Recovery

QUEUES_SHOWN: Final = 20
"""Queues with other figures that `--diff` prints without --limit."""

DIFFERENCES_SHOWN: Final = 100
"""Differing asks that `--diff` prints without --limit."""

_RECORDED: Final = "recorded"
_REPLAYED: Final = "replayed"


def replay_with_config(source: Source, args: argparse.Namespace) -> None:
    """Play the rest of the journal under another configuration, and print the state at its end, or the differences.

    Raises:
        JournalDamaged, OSError: the journal or the configuration cannot be used.
    """
    replay = replay_until(source, until=args.until, step=args.step)
    session = replay.recovery.session
    path = Path(args.config)
    config = load_config(path, source.partition, session.rm if session is not None else "")
    step, began = replay.recovery.last, replay.recovery.at
    partition = restore(replay.recovery, source.partition)
    inputs = collect_inputs(replay)
    after = play(partition, inputs, config)
    if args.diff:
        earlier = replay_until(source, step=step)
        before = play(restore(earlier.recovery, source.partition), inputs, None)
        _print_diff(_Comparison(path.name, step, began, inputs, before, after), args)
        return
    ended = Recovery()
    ended.image.apply(list_everything(partition))
    ended.last, ended.at, ended.session = step, inputs.end, session
    shown = Replay(source, lambda _: None)
    shown.recovery = ended
    if args.view is None and not args.json:
        write(f"{source.partition} at {format_time(inputs.end)}, if {path.name} were in force from step {step} on\n")
    print_state(shown, args)
    if args.view is None and not args.json:
        write("")
        view, columns = VIEWS["queues"]
        print_rows("queues", columns, list(view(ended.image)), args)
        _print_assumptions(inputs)


class _Comparison:
    """The runs that are compared."""

    def __init__(
        self,
        name: str,
        step: int,
        began: float,
        inputs: RecordedInputs,
        before: RunOutcome,
        after: RunOutcome,
    ) -> None:
        self.name, self.step, self.began, self.inputs = name, step, began, inputs
        self.before, self.after = before, after
        self.recorded = list_recorded(inputs)
        self.differences, self.moved = compare_runs(before, after, inputs)
        self.agreement = measure_agreement(self.recorded, before, inputs)
        self.assumptions = describe_assumptions(inputs, ignores_configs=True)

    def summarize(self, queue: str | None = None) -> Mapping[str, RunSummary]:
        """The figures of each run; those of a queue without the journal, which does not have the queues of asks."""
        runs = {_RECORDED: self.recorded, _REPLAYED: self.before, self.name: self.after}
        return {
            name: summarize_run(run, self.inputs, queue)
            for name, run in runs.items()
            if queue is None or run is not self.recorded
        }

    def list_queues(self) -> dict[str, Mapping[str, RunSummary]]:
        """The figures of the queues whose figures differ."""
        runs = (self.before, self.after)
        queues = sorted({one.queue for run in runs for one in run.asks.values() if one.queue})
        found = {queue: self.summarize(queue) for queue in queues}
        return {queue: runs for queue, runs in found.items() if runs[_REPLAYED] != runs[self.name]}


def _print_diff(found: _Comparison, args: argparse.Namespace) -> None:
    if args.json:
        same, total = found.agreement
        print_json(
            {
                "step": found.step,
                "from": found.began,
                "until": found.inputs.end,
                "summary": found.summarize(),
                "queues": found.list_queues(),
                "agreement": {"same": same, "asks": total},
                "differences": found.differences,
                "onlyOnAnotherNode": found.moved,
                "assumptions": found.assumptions,
            }
        )
        return
    length = format_seconds(found.inputs.end - found.began)
    write(f"from step {found.step}, {format_time(found.began)}, for {length} until the end of the journal\n")
    print_table(("run", *_COLUMNS), [(name, *_format_summary(one)) for name, one in found.summarize().items()])
    queues = found.list_queues()
    shown = list(queues)[: (QUEUES_SHOWN if args.limit is None else args.limit) or len(queues)]
    if shown:
        write("")
        rows = [(queue, name, *_format_summary(one)) for queue in shown for name, one in queues[queue].items()]
        print_table(("queue", "run", *_COLUMNS), rows)
    if len(shown) < len(queues):
        write(f"and {len(queues) - len(shown)} more queues (--limit 0 prints all)")
    same, total = found.agreement
    if total:
        write(f"\nThe replay of the recorded configuration agrees with the journal for {same} of {total} asks.")
    _print_differences(found.differences, args.limit)
    if found.moved:
        write(
            f"{format_count(found.moved, 'other ask')}: only on another node, which often follows from earlier starts."
        )
    _print_assumptions(found.inputs)


_COLUMNS: Final = ("asks", "started", "mean wait", "waiting", "rejected", "evicted")


def _format_summary(one: RunSummary) -> Iterator[str]:
    wait = "-" if one.mean_wait_s is None else format_seconds(one.mean_wait_s)
    yield from (str(one.asks), str(one.started), wait, str(one.waiting), str(one.rejected), str(one.evicted))


def _print_differences(differences: list[Difference], limit: int | None) -> None:
    if not differences:
        write("\nNo ask differs.")
        return
    shown = differences[: (DIFFERENCES_SHOWN if limit is None else limit) or len(differences)]
    is_one = len(differences) == 1
    write(f"\n{format_count(len(differences), 'ask')} {'differs' if is_one else 'differ'}:\n")
    rows = [(clean(one.ask), clean(one.application), clean(one.text)) for one in shown]
    print_table(("ask", "application", "with the other configuration"), rows)
    if len(shown) < len(differences):
        write(f"and {len(differences) - len(shown)} more (--limit 0 prints all)")


def _print_assumptions(inputs: RecordedInputs) -> None:
    write("\nAssumed:")
    for text in describe_assumptions(inputs, ignores_configs=True):
        write(f"- {text}")
