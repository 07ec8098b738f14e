from common.control_messages import Hello
from common.messages import Header
from common.rm_messages import Received
from common.wire import NEVER, Outgoing, encode_body, make_outgoing


def test_a_message_is_sent_under_its_class_name() -> None:
    assert make_outgoing("broker", Hello(role="worker")) == Outgoing(
        "broker", Header(kind="Hello"), encode_body(Hello(role="worker"))
    )


def test_a_header_may_say_more() -> None:
    header = Header(kind="Received", rm="rm-1", ack=7)
    assert make_outgoing("rmproxy", Received(), header) == Outgoing("rmproxy", header, b"\x80")


def test_never_is_later_than_any_time() -> None:
    assert NEVER > 1e18
