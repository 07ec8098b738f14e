"""Replies with versions, ages and links to the next page, and the names of partitions."""

import pytest
from msgspec.structs import replace

from tests.webservice.fakes import FakeLink, partition, request
from yunishard.common.messages.query_messages import (
    NOT_MODIFIED,
    Answer,
    ManagerEntry,
    PartitionEntry,
    PartitionList,
    Query,
)
from yunishard.webservice.calls import PartitionNames, default_rm, select_rm
from yunishard.webservice.views import RequestError

NODES = "/ws/v1/partition/default/nodes"


def link(more: str = "") -> FakeLink:
    def worker(query: Query) -> Answer:
        if query.known == "7-a":
            return Answer(status=NOT_MODIFIED, body=b"", version="7-a")
        return Answer(status=200, body=b"[]\n", version="7-a", next=more)

    return FakeLink(partition(), worker=worker)


def test_a_list_has_a_version() -> None:
    response = request(link(), NODES)
    assert (response.status_code, response.headers["ETag"]) == (200, 'W/"7-a"')
    assert not {"Age", "Link", "Cache-Control"} & {name.title() for name in response.headers}


@pytest.mark.parametrize("condition", ['W/"7-a"', '"7-a"', 'W/"6-a", W/"7-a"', "*"])
def test_a_client_with_the_current_version_gets_304(condition: str) -> None:
    response = request(link(), NODES, headers={"If-None-Match": condition})
    assert (response.status_code, response.content, response.headers["ETag"]) == (304, b"", 'W/"7-a"')


@pytest.mark.parametrize("condition", ['W/"6-a"', "7-a", ""])
def test_a_client_that_has_another_one_gets_it(condition: str) -> None:
    response = request(link(), NODES, headers={"If-None-Match": condition})
    assert (response.status_code, response.content) == (200, b"[]\n")


def test_a_page_links_to_the_next_one() -> None:
    response = request(link(more="n 2"), NODES + "?limit=2&after=n%200")
    assert response.headers["Link"] == f'<{NODES}?limit=2&after=n%202>; rel="next"'
    assert response.links["next"]["url"] == f"{NODES}?limit=2&after=n%202"


def test_what_else_was_asked_for_is_in_the_link_too() -> None:
    path = "/ws/v1/partition/default/queue/root.a%2540b/applications/active"
    response = request(link(more="a2"), path + "?status=running&limit=1")
    assert response.headers["Link"] == f'<{path}?status=running&limit=1&after=a2>; rel="next"'


def test_an_error_has_no_version() -> None:
    refusing = FakeLink(partition(), worker=lambda _: Answer(status=404, body=b"Node not found", version="7-a"))
    response = request(refusing, "/ws/v1/partition/default/node/n1")
    assert response.status_code == 404
    assert "ETag" not in response.headers


# Names of partitions --------------------------------------------------------------------------------------------------


def test_a_name_that_one_partition_has_leads_there() -> None:
    one = partition("rm-1", "gpu")
    directory = PartitionNames([one, partition("rm-1", "default")])
    assert directory.find("gpu") == one
    assert directory.find("rm-1_gpu") == one
    assert directory.find("[rm-1]gpu") == one
    assert directory.show(one).shown == "gpu"


def test_two_partitions_with_one_usual_name_have_different_shown_names() -> None:
    first = PartitionEntry(full_name="a_b_default", name="default", rm_id="a_b")
    second = PartitionEntry(full_name="a_b_default~1", name="b_default", rm_id="a")
    directory = PartitionNames([first, second])
    for entry in (first, second):
        for name in (entry.full_name, entry.name, f"[{entry.rm_id}]{entry.name}", directory.show(entry).shown):
            assert directory.find(name) is entry


def test_an_unknown_name_leads_nowhere() -> None:
    directory = PartitionNames([partition()])
    assert directory.find("") is None
    assert directory.find("Default") is None
    assert directory.find("rm-2_default") is None


def test_a_plain_name_means_the_partition_that_was_registered_first() -> None:
    first, second = partition("b"), partition("a")
    directory = PartitionNames([first, second])
    assert directory.find("default") is first
    assert directory.all() == [("default", first), ("a_default", second)]


def test_a_plain_name_means_the_partition_of_the_preferred_rm_where_it_has_one() -> None:
    first, gpu, second = partition("b"), partition("b", "gpu"), partition("a")
    directory = PartitionNames([first, gpu, second], "a")
    assert (directory.find("default"), directory.find("gpu")) == (second, gpu)
    assert directory.all() == [("b_default", first), ("gpu", gpu), ("default", second)]
    assert PartitionNames([first, gpu], "a").find("default") is first


def test_partitions_are_listed_in_the_order_of_registration() -> None:
    names = ["zeta", "alpha", "default"]
    assert [shown for shown, _ in PartitionNames([partition(name=one) for one in names]).all()] == names


def test_a_plain_name_that_looks_like_an_inner_one_does_not_hide_it() -> None:
    plain, odd = partition("a", "default"), partition("b", "a_default")
    directory = PartitionNames([plain, odd])
    assert directory.find("a_default") == plain
    assert directory.show(odd).shown == "b_a_default"


@pytest.mark.parametrize("names", [[("a", "x"), ("b", "x"), ("a", "y"), ("c", "a_x")], [("a", "x"), ("x", "a_x")]])
def test_what_is_shown_leads_back(names: list[tuple[str, str]]) -> None:
    directory = PartitionNames([partition(rm_id, name) for rm_id, name in names])
    assert len(directory.all()) == len(names)
    assert all(directory.find(shown) is entry for shown, entry in directory.all())


def listing(*entries: PartitionEntry, away: str = "rm-3") -> PartitionList:
    managers = [ManagerEntry(rm_id=rm_id) for rm_id in sorted({*(one.rm_id for one in entries), away})]
    builds = {one.rm_id: {"version": one.rm_id} for one in managers}
    return PartitionList(partitions=list(entries), build_information=builds, started_ns=7, managers=managers)


def test_select_rm_returns_the_part_of_one_rm() -> None:
    first, second = partition("rm-1"), partition("rm-2")
    assert select_rm(listing(first, second), "rm-2") == PartitionList(
        partitions=[second],
        build_information={"rm-2": {"version": "rm-2"}},
        started_ns=7,
        managers=[ManagerEntry(rm_id="rm-2")],
    )


def test_a_manager_without_partitions_is_known_all_the_same() -> None:
    assert select_rm(listing(partition("rm-1")), "rm-3").partitions == []


def test_an_unknown_rm_is_an_error_with_the_registered_ones() -> None:
    with pytest.raises(RequestError, match="RM 'RM-1' is not registered, those that are: rm-1, rm-3"):
        select_rm(listing(partition("rm-1")), "RM-1")
    with pytest.raises(RequestError, match="those that are: none") as refused:
        select_rm(PartitionList(partitions=[], build_information={}, started_ns=7), "x" * 5000)
    assert len(str(refused.value)) < 150


def test_the_default_rm_is_the_preferred_one_or_that_which_registered_first() -> None:
    known = listing(partition("rm-2"), partition("rm-1"))
    known = replace(known, build_information={"rm-2": {}, "rm-1": {}})
    assert [default_rm(known, preferred) for preferred in ("", "rm-1", "rm-9")] == ["rm-2", "rm-1", "rm-2"]
    assert default_rm(PartitionList(partitions=[], build_information={}, started_ns=7), "rm-1") == ""
