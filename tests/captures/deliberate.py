"""Where our answers differ from the recorded ones on purpose: each place, what we give there, and why.

The reasons for those who use it stand in `docs/compatibility.md`. Whatever is not here is the same.
"""

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from tests.captures.canon import Document
from tests.captures.compare import ABSENT, Difference
from yunishard.webservice import metrics


class Deliberate(NamedTuple):
    """A difference that is meant. Patterns are those of file names."""

    requests: str
    """Group and name, with a minus between."""
    path: str
    """In the document of status, headers and body."""
    given: "Document | Callable[[Document], bool]"
    """What stands there, or what is true of it."""
    reason: str

    def covers(self, request: str, found: Difference) -> bool:
        """Whether this is it."""
        if not (fnmatchcase(request, self.requests) and fnmatchcase(found.path, self.path)):
            return False
        return self.given(found.given) if callable(self.given) else self.given == found.given


INSIDE: Final = "partitions are called <rm-id>_<name>, without the brackets that break paths and metrics"
ASIDE: Final = "what nothing can be done for is set aside, and is not tried again before something has changed"
OUR_OWN: Final = "a field or check of our own"
LANDING: Final = "a page of links is at the root"
NOT_KEPT: Final = "an application that ended counts against nothing any more"
AT_ONCE: Final = "series that the reference makes with its first record of history are there at once"
REMOVED: Final = "an application that is removed is in no state any more"
OF_MANAGER: Final = "errors of a resource manager are named, and no failure of the scheduler"
NOT_NEW: Final = "a rejected application never was a new one of its queue"
NOT_TIMED: Final = "the engine reads no clock, and sorts nothing"
RUNS: Final = "an application that runs is not told of as one that cannot, so there is one event less"
LIMITS: Final = "a limit that goes is told of once, not for each user, and its group is unlinked"
PARSER: Final = "what a parser says of a text is its own"
BY_ANY_NAME: Final = "a partition is found by each of its names"
CONSECUTIVE: Final = "an answer has no more events than is configured, and they follow each other"
PROCESS: Final = "what a process looks like inside is its own, and was not kept of the reference"
TEXT_ONLY: Final = "metrics are text, in whatever other form a scraper would take them as well"
OPENMETRICS: Final = "metrics are OpenMetrics for who takes it, where the name of a counter has no `_total`"


def _is_time(given: Document) -> bool:
    return isinstance(given, int) and given > 0


def _is_check(name: str) -> Callable[[Document], bool]:
    return lambda given: isinstance(given, dict) and given["Name"] == name and given["Succeeded"] is True


def _is_root(given: Document) -> bool:
    return isinstance(given, str) and given.startswith('{"queuename":"root"')


def _is_cause(given: Document) -> bool:
    """Whether it is an entry of the allocation log in the words of an explanation."""
    return isinstance(given, dict) and "code" in given


def _is_text(given: Document) -> bool:
    return isinstance(given, str) and bool(given.strip())


def _names_errors(given: Document) -> bool:
    """Whether it is YuniKorn's text, with whose errors they are."""
    text = "There were 3 scheduling errors logged in the metrics, by resource managers within the last 10 minutes: ["
    return isinstance(given, str) and given.startswith(text)


def _is_kind_of_counter(given: Document) -> bool:
    return given in ("counter", "unknown")


def _anything(_given: Document) -> bool:
    return True


_ALREADY: Final = "adding application app-running to partition rm-golden_default, but application already existed"
_SCHEDULER: Final = "/body/yunikorn_scheduler"

OWN_CHECKS: Final = (
    *("Audit", "Partitions", "Journals", "Resource managers"),
    *("Workers", "Disk space", "Broker record", "Audit log", "History", "Poison messages"),
    *("Disk speed", "Configuration", "Clock", "Memory", "Hosts"),
)
"""The health checks that the reference does not have."""

DELIBERATE: Final = (
    Deliberate("*-clusters", "/body/0/rmId", "rm-golden", OUR_OWN),
    Deliberate("*-fullstatedump*", "/body/clusterInfo/0/rmId", "rm-golden", OUR_OWN),
    Deliberate("main-gzip-small", "/body/0/rmId", "rm-golden", OUR_OWN),
    *(
        Deliberate("*-healthcheck", f"/body/HealthChecks/{number}", _is_check(name), OUR_OWN)
        for number, name in enumerate(OWN_CHECKS, 9)
    ),
    Deliberate("unhealthy-healthcheck", "/body/HealthChecks/0/Succeeded", True, OF_MANAGER),
    Deliberate("unhealthy-healthcheck", "/body/HealthChecks/0/DiagnosisMessage", _names_errors, OF_MANAGER),
    Deliberate("unhealthy-healthcheck", "/body/HealthChecks/?/NextStep", _is_text, OUR_OWN),
    *(Deliberate("main-err-notfound-root", path, _anything, LANDING) for path in ("/status", "/headers/vary", "/body")),
    Deliberate("updated-*", "*/root.retired/drainingApplications", 1, OUR_OWN),
    Deliberate("updated-*", "*/root.retired/drainingSince", _is_time, OUR_OWN),
    # names
    Deliberate("*", "*/attributes/si/node-partition", "rm-golden_default", INSIDE),
    Deliberate("main-applications-rejected", "/body/app-running/rejectedMessage", _ALREADY, INSIDE),
    Deliberate("*-fullstatedump*", "/body/applications/28/rejectedMessage", _ALREADY, INSIDE),
    Deliberate("main-events-batch*", "/body/EventRecords/273/message", _ALREADY, INSIDE),
    Deliberate("main-err-partition-normalised", "/status", 200, BY_ANY_NAME),
    Deliberate("main-err-partition-normalised", "/body", _is_root, BY_ANY_NAME),
    # what is tried, and what counts
    Deliberate("*", "*/allocationLog/?/count", 1, ASIDE),
    Deliberate("*", "*/allocationLog/?", _is_cause, OUR_OWN),
    Deliberate("*", "*/allocationLog", lambda given: isinstance(given, list) and all(map(_is_cause, given)), OUR_OWN),
    Deliberate("*", "*/allocatingAcceptedApps/2", ABSENT, NOT_KEPT),
    # events
    Deliberate("main-events-batch*", "/body/EventRecords/51", ABSENT, RUNS),
    Deliberate("main-events-*", "*/HighestID", 361, RUNS),
    Deliberate("updated-events-*", "/body/LowestID", 291, LIMITS),
    Deliberate("updated-events-*", "/body/HighestID", 390, LIMITS),
    Deliberate("updated-events-batch-count100", "/body/EventRecords/*", _anything, CONSECUTIVE),
    # metrics
    Deliberate("*metrics*", '/body/yunikorn_queue_app{queue="",state="new"}', ABSENT, NOT_NEW),
    Deliberate("*metrics*", '/body/yunikorn_queue_app{queue="*",state="new"}', 0, NOT_NEW),
    Deliberate(
        "*metrics*", '/body/yunikorn_queue_app{queue="root.production.services",state="completing"}', 1, REMOVED
    ),
    Deliberate("*metrics*", f'{_SCHEDULER}_application_total{{state="completing"}}', 1, REMOVED),
    Deliberate("empty-metrics", f"{_SCHEDULER}_application_total", "gauge", AT_ONCE),
    Deliberate("empty-metrics", f'{_SCHEDULER}_*{{state="*"}}', 0, AT_ONCE),
    Deliberate("*metrics*", f'{_SCHEDULER}_node_sorting_latency_milliseconds_count{{level="*"}}', 0, NOT_TIMED),
    Deliberate("*metrics*", f"{_SCHEDULER}_trynode_*_milliseconds_count", 0, NOT_TIMED),
    Deliberate("main-metrics-openmetrics-accept", "/headers/content-type", metrics.OPENMETRICS_TYPE, OPENMETRICS),
    Deliberate("main-metrics-openmetrics-accept", "/body/yunikorn_*_total", ABSENT, OPENMETRICS),
    Deliberate("main-metrics-openmetrics-accept", "/body/yunikorn_*", _is_kind_of_counter, OPENMETRICS),
    Deliberate("main-metrics-protobuf-accept", "/headers/content-type", metrics.TEXT_TYPE, TEXT_ONLY),
    # texts
    Deliberate("main-debug-stack", "/body", _is_text, PROCESS),
    Deliberate("main-pprof-index-noslash", "/body", '<a href="/debug/pprof/">Moved Permanently</a>.\n\n', PROCESS),
    *(
        Deliberate(f"main-pprof-{page}", "/body", _is_text, PROCESS)
        for page in ("index", "cmdline", "symbol", "goroutine-debug1", "heap")
    ),
    Deliberate("main-validate-type-error", "/body/reason", "'wrong_text' is not a mapping", PARSER),
    Deliberate("main-validate-unknown-field", "/body/reason", "unknown key 'bogus'", PARSER),
    Deliberate(
        "main-validate-not-yaml",
        "/body/reason",
        "this is not YAML: while scanning for the next token found character that cannot start any token",
        PARSER,
    ),
)
