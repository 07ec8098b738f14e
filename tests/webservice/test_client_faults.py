import logging

import h11

from webservice.client_faults import LINES_MAX, ClientFaults


def said(faults: ClientFaults, text: str, at: float, error: Exception | None = None) -> str:
    """What comes into the log; empty for nothing."""
    info = (type(error), error, None) if error else None
    record = logging.LogRecord("uvicorn.error", logging.WARNING, "", 1, text, (), info)
    record.created = at
    if not faults.filter(record):
        return ""
    return record.getMessage() + (" with a traceback" if record.exc_info else "")


def test_a_few_lines_a_minute_and_then_how_many_there_were() -> None:
    faults = ClientFaults()
    lines = [said(faults, "100 % wrong", 1000.0) for _ in range(LINES_MAX + 7)]
    assert lines == [*["100 % wrong"] * LINES_MAX, *[""] * 7]
    assert said(faults, "100 % wrong", 1060.0) == "100 % wrong (and 7 more)"
    assert said(faults, "100 % wrong", 1060.0) == "100 % wrong"


def test_a_client_that_breaks_the_protocol_costs_one_line() -> None:
    error = h11.LocalProtocolError("too late")
    assert said(ClientFaults(), "Exception in ASGI application\n", 1.0, error) == "an answer cannot be given: too late"


def test_a_defect_of_ours_is_always_logged_whole() -> None:
    faults = ClientFaults()
    for _ in range(LINES_MAX + 1):
        assert said(faults, "Exception", 1.0, KeyError("x")) == "Exception with a traceback"
