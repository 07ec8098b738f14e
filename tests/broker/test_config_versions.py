"""Configuration versions: which text counts, and which versions are removed at each limit."""

import pytest

from tests.machines import RM
from yunishard.broker.config_versions import (
    AUTHOR_CHARS_MAX,
    ENTRY_BYTES,
    FORMER_BYTES_MAX,
    REMOVED_BYTES_MAX,
    RMS_MAX,
    VERSIONS_BYTES_MAX,
    VERSIONS_MAX,
    ConfigVersions,
    Removal,
    VersionHistory,
)
from yunishard.common.config.model import compute_checksum
from yunishard.common.config.parse import TEXT_BYTES_MAX
from yunishard.common.messages.control_messages import ConfigVersion, VersionEntry

OWN, CHANGED, OTHER = "own", "changed", "other"
MIB = 1 << 20
PLENTY = 1 << 40


def added(versions: ConfigVersions, text: str, *, base: str, rm: str = RM, origin: str = "api") -> ConfigVersion:
    own, checksum = compute_checksum(base), compute_checksum(text)
    version = versions.build_next(rm, text, checksum=checksum, at_ns=7, author="alice", origin=origin, base=own)
    versions.add_version(rm, version)
    return version


def changed(versions: ConfigVersions, own_text: str, rm: str = RM) -> str | None:
    """Checksum of the text that an RM gets in place of its own one."""
    found = versions.find_changed(rm, compute_checksum(own_text))
    return found.checksum if found is not None else None


def test_a_new_rm_gets_the_text_of_its_owner() -> None:
    versions = ConfigVersions()
    assert changed(versions, OWN) is None
    assert versions.history(RM).latest is None


@pytest.mark.parametrize(
    ("origins", "expected"),
    [
        ([], False),
        (["file"], True),
        (["registration", "file", "api", "rollback to 1"], True),
        (["file", "registration", "api"], False),
        (["file", "update"], False),
        (["registration", *["api"] * VERSIONS_MAX], True),
    ],
)
def test_the_latest_version_is_from_the_file_if_its_owner_s_was_or_nothing_says_otherwise(
    origins: list[str], expected: bool
) -> None:
    versions = ConfigVersions()
    for origin in origins:
        added(versions, OWN, base=OWN, origin=origin)
    versions.plan_removals([RM], PLENTY)
    assert versions.history(RM).from_file == expected


def test_versions_count_from_one_and_are_held_without_their_texts() -> None:
    versions = ConfigVersions()
    assert added(versions, OWN, base=OWN).number == 1
    second = added(versions, CHANGED, base=OWN)
    fields = {
        "number": 2,
        "checksum": compute_checksum(CHANGED),
        "at_ns": 7,
        "author": "alice",
        "origin": "api",
        "base": compute_checksum(OWN),
        "size": len(CHANGED),
    }
    assert second == ConfigVersion(**fields, config=CHANGED)
    assert versions.history(RM).latest == VersionEntry(**fields)
    assert {type(one) for one in versions.history(RM).entries} == {VersionEntry}


def test_a_version_that_was_not_added_does_not_count() -> None:
    versions = ConfigVersions()
    for _ in range(2):
        assert versions.build_next(RM, OWN, checksum="", at_ns=7, author="", origin="api", base="").number == 1
    assert versions.history(RM).latest is None


def test_a_long_name_of_an_author_is_cut_off() -> None:
    version = ConfigVersions().build_next(RM, OWN, checksum="", at_ns=7, author="a" * 999, origin="o" * 999, base="")
    assert (len(version.author), len(version.origin)) == (AUTHOR_CHARS_MAX, AUTHOR_CHARS_MAX)


def test_a_change_of_the_owner_s_text_counts_until_the_owner_has_another_text() -> None:
    versions = ConfigVersions()
    added(versions, OWN, base=OWN, origin="registration")
    assert changed(versions, OWN) is None, "it is the same text"
    added(versions, CHANGED, base=OWN)
    assert [changed(versions, text) for text in (OWN, OTHER)] == [compute_checksum(CHANGED), None]
    added(versions, OTHER, base=OTHER, origin="registration")
    assert changed(versions, OWN) is None


def test_changes_of_one_rm_do_not_count_for_another() -> None:
    versions = ConfigVersions()
    added(versions, CHANGED, base=OWN)
    assert changed(versions, OWN, "rm-2") is None


def test_the_owner_may_get_the_text_that_is_in_force_already() -> None:
    versions = ConfigVersions()
    assert not versions.rebase(RM, compute_checksum(OWN))
    added(versions, CHANGED, base=OWN)
    assert not versions.rebase(RM, compute_checksum(OWN))
    assert versions.rebase(RM, compute_checksum(CHANGED))
    assert [changed(versions, text) for text in (OWN, CHANGED)] == [None, None]


# Limits ---------------------------------------------------------------------------------------------------------------


def entries(*mebibytes: int, texts: str = "", at_ns: int = 1) -> VersionHistory:
    """Versions with texts of these sizes, each another one, or those that the letters name."""
    found = []
    for number, size in enumerate(mebibytes, 1):
        text = texts[number - 1] if texts else f"text {number}"
        found.append(
            VersionEntry(number=number, checksum=text, at_ns=at_ns, author="", origin="api", base="", size=size * MIB)
        )
    return VersionHistory(found)


def numbers(versions: ConfigVersions, rm: str = RM) -> list[int]:
    return [one.number for one in versions.history(rm).entries]


@pytest.mark.parametrize(
    ("history", "kept", "removed"),
    [
        pytest.param(entries(*[0] * VERSIONS_MAX), VERSIONS_MAX, [], id="as many as allowed"),
        pytest.param(entries(*[0] * (VERSIONS_MAX + 3)), VERSIONS_MAX, [3], id="too many"),
        pytest.param(entries(15, 15, 15, 15), 4, [], id="as large as allowed"),
        pytest.param(entries(15, 15, 15, 15, 15), 4, [1], id="too large"),
        pytest.param(entries(15, 15, 15, 15, 15, 15, 15, 15, 15), 4, [2, 4, 5], id="in steps"),
        pytest.param(entries(*[15] * 50, texts="ab" * 25), 50, [], id="two texts that are stored once"),
        pytest.param(entries(1, 900, 900), 2, [1], id="the latest two stay however large they are"),
        pytest.param(entries(900), 1, [], id="so does the only one"),
    ],
)
def test_the_oldest_versions_of_an_rm_are_removed_first(history: VersionHistory, kept: int, removed: list[int]) -> None:
    last = history.entries[-1].number
    versions = ConfigVersions({RM: history})
    assert versions.plan_removals([RM], PLENTY) == [Removal(RM, up_to) for up_to in removed]
    assert numbers(versions) == list(range(last - kept + 1, last + 1))
    assert not versions.may_exceed
    assert versions.plan_removals([RM], PLENTY) == []


def test_one_removal_has_a_bounded_size() -> None:
    versions = ConfigVersions({RM: entries(*[1] * 90, 62, 1)})
    sizes = [one.size for one in versions.history(RM).entries]
    removed = [one.up_to for one in versions.plan_removals([RM], PLENTY)]
    assert removed[-1] == 90
    steps = [sum(sizes[first:last]) for first, last in zip([0, *removed], removed, strict=False)]
    assert max(steps) <= REMOVED_BYTES_MAX
    assert len(steps) == 3


def test_the_largest_texts_fit_with_the_latest_two_versions() -> None:
    assert 2 * (TEXT_BYTES_MAX + ENTRY_BYTES) < VERSIONS_BYTES_MAX


@pytest.mark.parametrize("count", [RMS_MAX, RMS_MAX + 2])
def test_the_former_rm_whose_configuration_changed_longest_ago_is_removed_first(count: int) -> None:
    versions = ConfigVersions({f"rm-{number}": entries(0, 0, at_ns=10**6 - number) for number in range(count)})
    removed = versions.plan_removals([], PLENTY)
    assert removed == [Removal(f"rm-{number}", 2) for number in range(count - 1, RMS_MAX - 1, -1)]
    assert len(versions) == RMS_MAX


def test_former_rms_have_a_limit_in_bytes_and_registered_ones_do_not_count() -> None:
    count = FORMER_BYTES_MAX // (16 * MIB)
    versions = ConfigVersions({f"rm-{number:02}": entries(16, at_ns=number) for number in range(count + 5)})
    kept = [f"rm-{number:02}" for number in range(3)]
    removed = versions.plan_removals(kept, PLENTY)
    assert [one.rm for one in removed] == ["rm-03", "rm-04", "rm-05"], "each has some bytes beyond its text"


def test_the_whole_record_has_a_limit_and_the_largest_history_gives_room_first() -> None:
    versions = ConfigVersions(
        {"gone": entries(9), "a": entries(5, 5, 5), "b": entries(10, 10, 10, 10), "c": entries(6, 6)}
    )
    assert versions.plan_removals("abc", 60 * MIB) == [Removal("gone", 1), Removal("b", 1)]
    assert (numbers(versions, "a"), numbers(versions, "b")) == ([1, 2, 3], [2, 3, 4])
    assert versions.plan_removals("abc", 1) == [Removal("b", 2), Removal("a", 1)]
    assert [len(numbers(versions, rm)) for rm in "abc"] == [2, 2, 2], "these always stay"


@pytest.mark.parametrize(("size", "limit", "is_refused"), [(10, 51, False), (10, 50, True), (12, 51, True)])
def test_a_version_needs_room_beside_what_always_stays(size: int, limit: int, is_refused: bool) -> None:
    versions = ConfigVersions({"gone": entries(90), RM: entries(7, 20), "other": entries(80, 10, 10)})
    assert (versions.find_shortage(RM, size * MIB, [RM, "other"], limit * MIB) > 0) == is_refused


def test_a_check_of_the_limits_does_not_measure_histories_again(monkeypatch: pytest.MonkeyPatch) -> None:
    histories = {f"rm-{number}": entries(*[0] * 50, at_ns=number) for number in range(500)}
    versions = ConfigVersions(histories)
    measured = []
    monkeypatch.setattr(VersionHistory, "measure", lambda self: measured.append(self) or 0)
    assert versions.plan_removals([*histories], PLENTY) == []
    assert measured == []
