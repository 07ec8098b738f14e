"""The screen of `yunishard top`: totals, a table in each tab, a filter, and details with the explanation of a row.

Only the visible tab is polled. Requests block, so they run in threads; the screen is changed in the event loop. Words
and characters carry all information, so that it also works without colours.
"""

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from typing import ClassVar, Final

import msgspec
from rich.text import Text as RichText
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Input, Static, TabbedContent, TabPane

from yunishard.cli.commands.display import (
    BAD,
    GOOD,
    QUIET,
    STRONG,
    WARNING,
    Cell,
    Screen,
    Text,
    draw_amounts,
    draw_bar,
    draw_facts,
)
from yunishard.cli.commands.explanation import draw_explanation, wrap
from yunishard.cli.commands.listing import Column, Frame, Row, as_amount, as_text
from yunishard.cli.commands.partition_tables import Facts, draw_object
from yunishard.cli.commands.rest import Answer, RequestFailed, Rest
from yunishard.cli.commands.status import Health, Partition
from yunishard.cli.main import CommandFailed
from yunishard.cli.top.polling import PERIOD_S, Poll
from yunishard.cli.top.views import NARROW, TABLES, Listing, Path, TableSpec, decode_events, decode_table
from yunishard.common.process.terminal import clean
from yunishard.common.rest.explain import ExplanationView
from yunishard.common.text_formats import format_figure, format_percent, list_kinds

SUMMARY_PERIOD_S: Final = 5.0
"""Seconds between two requests of the totals and of the health check."""

EVENTS_MAX: Final = 300
"""The newest events that the tab of events shows, before the filter."""

_STYLES: Final = {GOOD: "green", BAD: "bold red", WARNING: "yellow", QUIET: "dim", STRONG: "bold"}

_HELP: Final = """\
1 2 3 4, Tab   another tab             Enter   details, and why it waits
s              next sort order         r       reverse the order
/              filter by text          Esc     remove the filter
p              pause, and continue     n       next partition
q              quit                    ?       this help

A table has the first 300 rows that match, in the chosen order. A bar shows what is used of the maximum, then
what is pending; the mark in it is at the guaranteed amount. Rows are requested again every 2 s, and less often
while answers are slow."""

MakeRest = Callable[[], Rest]


def to_rich(text: Text) -> RichText:
    """Convert a cell for the terminal."""
    if isinstance(text, Cell):
        return RichText(clean(text.text), style=_STYLES.get(text.colour, ""))
    return RichText(clean(text))


def has_blocks() -> bool:
    """Whether the terminal shows block characters: its locale is UTF-8."""
    locale = next((os.environ[name] for name in ("LC_ALL", "LC_CTYPE", "LANG") if os.environ.get(name)), "")
    return locale.lower().replace("-", "").endswith("utf8")


# Tables ---------------------------------------------------------------------------------------------------------------


class TablePane(Vertical):
    """A table that is polled while its tab is visible."""

    app: "TopApp"

    def __init__(self, spec: TableSpec, rest: Rest, period_s: float) -> None:
        super().__init__()
        self.spec = spec
        self.text = ""
        """The filter."""
        self.sort_index = 0
        self.is_reversed = False
        self.listing = Listing([], 0, [])
        self._poll = Poll(rest, period_s=period_s)
        self._wake = asyncio.Event()
        self._keys: list[str] = []
        """Of the rows on the screen."""
        self._cells: list[list[RichText]] = []
        self._headings: list[str] = []

    def compose(self) -> ComposeResult:
        """Build the table and the line below it."""
        yield DataTable[RichText](cursor_type="row", zebra_stripes=False)
        yield Static("", classes="state")

    def on_mount(self) -> None:
        """Begin to poll."""
        self.run_worker(self._follow(), name=self.spec.title)

    @property
    def table(self) -> DataTable[RichText]:
        """The table."""
        return self.query_one(DataTable)

    @property
    def sort(self) -> str:
        """The sort order, as the API takes it."""
        order = self.spec.sorts[self.sort_index]
        if not self.is_reversed or not order:
            return order
        return order[1:] if order.startswith("-") else f"-{order}"

    def refresh_now(self) -> None:
        """Request the rows at once."""
        self._wake.set()

    async def _follow(self) -> None:
        """Poll until the end."""
        while True:
            self._wake.clear()
            if self.app.is_polled(self):
                await self._update()
            try:
                async with asyncio.timeout(self._poll.wait_s or SUMMARY_PERIOD_S):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _update(self) -> None:
        partition, wanted = self.app.partition, (self.sort, self.text)
        if not partition:
            self.show_state("no resource manager has registered a partition yet")
            return
        try:
            found = await asyncio.to_thread(self._request, partition, *wanted)
        except CommandFailed as failed:
            self.show_state(str(failed), is_failure=True)
            return
        if not self.app.is_open:
            return
        if (self.sort, self.text) != wanted or self.app.partition != partition:
            self._wake.set()  # it was changed meanwhile
            return
        if found is not None:
            self.listing = found
        self.show_listing()

    def _request(self, partition: str, sort: str, text: str) -> Listing | None:
        """Request the rows; None if they have not changed. Blocks."""
        if self.spec.name:
            path, query = self.spec.make_request(partition, sort=sort, text=text)
            answer = self._poll.request(path, query)
            return decode_table(answer) if answer else None
        path = ("events", "batch")
        newest = self._poll.request(path, {"partition": partition, "count": "1"})
        if newest is None:
            return None
        known = newest.decode(_Range)
        start = max(known.LowestID, known.HighestID - EVENTS_MAX + 1)
        answer = self.app.rest.get(*path, partition=partition, start=str(start), count=str(EVENTS_MAX))
        return decode_events(answer, text)

    # On the screen

    def show_listing(self) -> None:
        """Show the rows: only changed cells are drawn again, and the cursor stays at its row."""
        frame = Frame(self.app.text_screen, time.time_ns(), self.listing.resources)
        columns = self.spec.columns(self.listing, frame, self.sort)
        keys = [as_text(row.get(self.spec.key)) for row in self.listing.rows]
        texts = [column.show(self.listing.rows, frame) for column in columns]
        cells = [list(map(to_rich, row)) for row in zip(*texts, strict=True)]
        if [clean(one.title) for one in columns] != self._headings or keys != self._keys:
            self._replace_rows(columns, keys, cells)
        else:
            self._change_cells(cells)
        self._keys, self._cells = keys, cells
        shown = f"{len(keys):,} of {self.listing.total:,}" if self.listing.total > len(keys) else f"{len(keys):,}"
        noun = self.spec.title.lower()
        facts = [f"{shown} {noun if self.listing.total != 1 else noun.removesuffix('s')}"]
        facts += [f"sorted by {self.sort}"] if self.sort else []
        facts += [f"filter {self.text!r} (Esc removes it)"] if self.text else []
        self.show_state(" · ".join(facts))

    def _replace_rows(self, columns: Sequence[Column], keys: list[str], cells: list[list[RichText]]) -> None:
        table, at = self.table, self.selected_key
        top = table.scroll_y
        headings = [clean(one.title) for one in columns]
        table.clear(columns=headings != self._headings)
        if headings != self._headings:
            self._headings = headings
            table.add_columns(*map(RichText, headings))  # a string may contain markup
        for key, row in zip(keys, cells, strict=True):
            table.add_row(*row, key=key)
        for number, column in enumerate(table.columns.values()):  # at once: measuring them later may not happen
            column.content_width = max([len(headings[number]), *(row[number].cell_len for row in cells)])
        if at in keys:
            table.move_cursor(row=keys.index(at), scroll=False)
            table.scroll_to(y=top, animate=False)

    def _change_cells(self, cells: list[list[RichText]]) -> None:
        for number, (before, after) in enumerate(zip(self._cells, cells, strict=True)):
            for column, (old, new) in enumerate(zip(before, after, strict=True)):
                if old != new:
                    self.table.update_cell_at((number, column), new, update_width=True)  # type: ignore[arg-type]

    def show_state(self, text: str, *, is_failure: bool = False) -> None:
        """Show a line below the table."""
        style = "bold red" if is_failure else "dim"
        for line in self.query(".state").results(Static):  # there is none while the screen closes
            line.update(RichText(clean(text), style=style))

    @property
    def selected_key(self) -> str:
        """The key of the row at the cursor; empty if there is none."""
        row = self.table.cursor_row
        return self._keys[row] if 0 <= row < len(self._keys) else ""

    def find_selected(self) -> Row | None:
        """Return the row at the cursor."""
        key = self.selected_key
        return next((row for row in self.listing.rows if as_text(row.get(self.spec.key)) == key), None)


class _Range(msgspec.Struct):
    """The part in use of an answer with events: which there are."""

    LowestID: int = 0
    HighestID: int = 0


# Details --------------------------------------------------------------------------------------------------------------


class TextScreen(ModalScreen[None]):
    """A text above the tables, until a key closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter", "dismiss", "Close"),
        Binding("up,k", "scroll(-1)", show=False),
        Binding("down,j", "scroll(1)", show=False),
    ]

    def __init__(self, title: str, lines: Sequence[str] = ()) -> None:
        super().__init__()
        self._title = title
        self.lines = list(lines)

    def compose(self) -> ComposeResult:
        """Build the frame and the text."""
        with VerticalScroll() as box:
            box.border_title = RichText(clean(self._title)).plain.replace("[", "(").replace("]", ")")
            box.border_subtitle = "Esc closes, arrows scroll"
            yield Static("", id="text")

    def on_mount(self) -> None:
        """Show what there is."""
        self.query_one(VerticalScroll).focus()
        self.show_lines(self.lines)

    def action_scroll(self, lines: int) -> None:
        """Scroll by some lines."""
        self.query_one(VerticalScroll).scroll_relative(y=lines, animate=False)

    def show_lines(self, lines: Sequence[str]) -> None:
        """Replace the text. Lines may have the colours of `display.py`."""
        self.lines = list(lines)
        for text in self.query("#text").results(Static):  # there is none while the screen closes
            text.update(RichText.from_ansi("\n".join(lines)))


class DetailScreen(TextScreen):
    """A row in full, and the explanation of its object, which is requested again and again."""

    app: "TopApp"

    def __init__(self, pane: TablePane, row: Row) -> None:
        super().__init__(as_text(row.get(pane.spec.key)) if pane.spec.kind else "event")
        self._pane = pane
        self._row = row

    def on_mount(self) -> None:
        """Show the row at once, and the explanation when it arrives."""
        super().on_mount()
        self.show_lines(self._draw_row())
        if self._pane.spec.kind:
            self.run_worker(self._follow())

    def _draw_row(self) -> list[str]:
        screen, name = self.app.text_screen, self._pane.spec.name
        if name is not None:
            return draw_object(screen, name, self._row)
        facts: Facts = [
            (key, as_text(value))
            for key, value in self._row.items()
            if isinstance(value, str) and value and key != self._pane.spec.key
        ]
        return [
            *draw_facts(screen, facts),
            "",
            *draw_amounts(screen, [("amounts", as_amount(self._row.get("amounts")))]),
        ]

    async def _follow(self) -> None:
        kind, name = self._pane.spec.kind, as_text(self._row.get(self._pane.spec.key))
        path: Path = ("partition", self.app.partition, kind, name, "explain")
        poll = Poll(self.app.make_rest(), period_s=SUMMARY_PERIOD_S)
        while True:
            try:
                answer = await asyncio.to_thread(poll.request, path, {})
                if answer is not None:
                    self.show_lines([*self._explain(answer), "", *self._draw_row()])
            except CommandFailed as failed:
                self.show_lines([*wrap(self.app.text_screen, str(failed), colour=BAD), "", *self._draw_row()])
                if isinstance(failed, RequestFailed):
                    return  # it has ended, or the caller may not see it
            await asyncio.sleep(poll.wait_s)

    def _explain(self, answer: Answer) -> list[str]:
        return draw_explanation(self.app.text_screen, answer.decode(ExplanationView), time.time_ns())


# The screen -----------------------------------------------------------------------------------------------------------


class TopApp(App[None]):
    """The application."""

    TITLE = "yunishard top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #title { height: 1; text-style: bold; }
    #totals { height: 1; }
    TabbedContent { height: 1fr; }
    TabPane { padding: 0; }
    TablePane { height: 1fr; }
    DataTable { height: 1fr; }
    .state { height: 1; }
    #filter { display: none; height: 3; }
    #filter.shown { display: block; }
    TextScreen { align: center middle; }
    TextScreen VerticalScroll { width: 100%; height: 100%; border: round $primary; background: $background; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "show_details", "Details", priority=False),
        Binding("s", "sort", "Sort"),
        Binding("r", "reverse", "Reverse"),
        Binding("slash", "filter", "Filter"),
        Binding("escape", "clear_filter", show=False),
        Binding("p", "pause", "Pause"),
        Binding("n", "next_partition", "Partition", show=False),
        Binding("question_mark", "help", "Help"),
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c", "quit", show=False, priority=True),
        *(Binding(str(number), f"show_tab({number})", show=False) for number in range(1, len(TABLES) + 1)),
        Binding("tab", "next_tab", show=False, priority=True),
    ]

    def __init__(self, make_rest: MakeRest, partition: str = "", *, period_s: float = PERIOD_S) -> None:
        super().__init__()
        self.animation_level = "none"
        self.make_rest = make_rest
        self.rest = make_rest()
        self.partition = partition
        """The name of the partition; empty while there is none."""
        self.partitions: list[Partition] = []
        self.is_paused = False
        self._period_s = period_s
        self._problems = 0
        """Health checks that fail."""
        self._failure = ""
        self._panes = [TablePane(spec, make_rest(), period_s) for spec in TABLES]

    def compose(self) -> ComposeResult:
        """Build the screen."""
        yield Static("", id="title")
        yield Static("", id="totals")
        with TabbedContent():
            for number, pane in enumerate(self._panes, 1):
                with TabPane(f"{number} {pane.spec.title}", id=f"tab-{number}"):
                    yield pane
        yield Input(placeholder="text to filter by; Enter applies, Esc removes", id="filter")
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Begin to poll the totals."""
        self.run_worker(self._follow_totals())
        self.set_interval(1.0, self._show_title)
        self._show_title()
        self.pane.table.focus()

    @property
    def text_screen(self) -> Screen:
        """The terminal, for the functions that draw text."""
        width = max(20, self.size.width - 4)
        return Screen(is_terminal=True, has_colours=True, has_blocks=has_blocks(), width=width, height=self.size.height)

    @property
    def pane(self) -> TablePane:
        """The visible table."""
        active = self.query_one(TabbedContent).active or "tab-1"
        return self._panes[int(active.removeprefix("tab-")) - 1]

    def is_polled(self, pane: TablePane) -> bool:
        """Whether a table is requested again: it is visible, and nothing is paused."""
        return self.is_open and not self.is_paused and pane is self.pane

    @property
    def is_open(self) -> bool:
        """Whether the screen has its parts; an answer may arrive while it closes."""
        return bool(self.query("TablePane DataTable") and self.query("#title") and self.query("#totals"))

    # Totals

    async def _follow_totals(self) -> None:
        totals = Poll(self.make_rest(), period_s=SUMMARY_PERIOD_S)
        health = Poll(self.make_rest(), period_s=SUMMARY_PERIOD_S)
        while True:
            if not self.is_paused:
                try:
                    await self._update_totals(totals, health)
                    self._failure = ""
                except CommandFailed as failed:
                    self._failure = str(failed)
                self._show_title()
            await asyncio.sleep(max(totals.wait_s, health.wait_s, self._period_s))

    async def _update_totals(self, totals: Poll, health: Poll) -> None:
        found = await asyncio.to_thread(totals.request, ("partitions",), {})
        if found is not None:
            self.partitions = found.decode(list[Partition])
        if not self.partition and self.partitions:
            self.partition = self.partitions[0].name
            for pane in self._panes:
                pane.refresh_now()
        checks = await asyncio.to_thread(health.request, ("scheduler", "healthcheck"), {})
        if checks is not None:
            self._problems = sum(not one.succeeded for one in checks.decode(Health).health_checks)

    def _show_title(self) -> None:
        if not self.is_open:
            return
        several = f" (of {len(self.partitions)}, n: next)" if len(self.partitions) > 1 else ""
        facts = [f"yunishard top · {self.partition or 'no partition'}{several}", self.rest.url]
        title = RichText(clean(" · ".join([*facts, time.strftime("%H:%M:%S")])))
        if self.is_paused:
            title.append("  PAUSED", style="bold yellow")
        if self._failure:
            title = RichText(clean(f"NO ANSWER: {self._failure}"), style="bold red")
        self.query_one("#title", Static).update(title)
        one = next((one for one in self.partitions if one.name == self.partition), None)
        self.query_one("#totals", Static).update(self._draw_totals(one) if one else "")

    def _draw_totals(self, one: Partition) -> RichText:
        line = RichText(f"{one.total_nodes:,} nodes  {one.running:,} running  {one.waiting:,} waiting")
        for kind in list_kinds(one.capacity.capacity)[:2]:
            total, used = one.capacity.capacity[kind], one.capacity.used_capacity.get(kind, 0)
            line.append(f"  {kind} ").append_text(to_rich(draw_bar(self.text_screen, used, total, cells=8)))
            line.append(f" {format_percent(used, total).replace(' ', '')}")
            if self.size.width >= NARROW:
                line.append(f" of {format_figure(kind, total)}")
        if self._problems:
            line.append(f"  {self._problems} health problems", style="bold red")
        return line

    # Keys

    def on_tabbed_content_tab_activated(self, _: TabbedContent.TabActivated) -> None:
        """Request the rows of a tab that becomes visible."""
        self.pane.refresh_now()
        self.pane.table.focus()

    def on_data_table_row_selected(self, _: DataTable.RowSelected) -> None:
        """Enter, or a click on the row at the cursor."""
        self.action_show_details()

    def on_resize(self) -> None:
        """Choose the columns for the new width."""
        if self.query(TablePane):
            self.pane.show_listing()

    def action_show_details(self) -> None:
        """Show the row at the cursor in full, with its explanation."""
        row = self.pane.find_selected()
        if row is not None:
            self.push_screen(DetailScreen(self.pane, row))

    def action_help(self) -> None:
        """Show the keys."""
        self.push_screen(TextScreen("keys", _HELP.splitlines()))

    def action_show_tab(self, number: int) -> None:
        """Show a tab."""
        self.query_one(TabbedContent).active = f"tab-{number}"

    def action_next_tab(self) -> None:
        """Show the next tab."""
        self.action_show_tab(self._panes.index(self.pane) % 4 + 1)

    def action_sort(self) -> None:
        """Use the next sort order."""
        self.pane.sort_index = (self.pane.sort_index + 1) % len(self.pane.spec.sorts)
        self.pane.is_reversed = False
        self.pane.refresh_now()

    def action_reverse(self) -> None:
        """Reverse the sort order."""
        self.pane.is_reversed = not self.pane.is_reversed
        self.pane.refresh_now()

    def action_pause(self) -> None:
        """Stop polling, or continue."""
        self.is_paused = not self.is_paused
        self._show_title()
        if not self.is_paused:
            self.pane.refresh_now()

    def action_next_partition(self) -> None:
        """Show the next partition."""
        names = [one.name for one in self.partitions]
        if len(names) > 1:
            self.partition = names[(names.index(self.partition) + 1) % len(names) if self.partition in names else 0]
            self._show_title()
            self.pane.refresh_now()

    def action_filter(self) -> None:
        """Ask for a text to filter by."""
        field = self.query_one("#filter", Input)
        field.value = self.pane.text
        field.add_class("shown")
        field.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Apply the filter."""
        self._set_filter(event.value.strip())

    def action_clear_filter(self) -> None:
        """Remove the filter."""
        self._set_filter("")

    def _set_filter(self, text: str) -> None:
        self.query_one("#filter", Input).remove_class("shown")
        self.pane.text = text
        self.pane.table.focus()
        self.pane.refresh_now()
