"""The numbers of a user's groups are those that the system says."""

import os
import pwd

import pytest

from yunishard.common.group_ids import group_ids

USERS = [entry for entry in pwd.getpwall() if entry.pw_uid == os.getuid() or entry.pw_uid < 10]


@pytest.mark.parametrize("entry", USERS, ids=lambda entry: entry.pw_name)
def test_they_are_those_of_the_system(entry: pwd.struct_passwd) -> None:
    found = group_ids(entry.pw_name, entry.pw_gid)
    assert sorted(found) == sorted(os.getgrouplist(entry.pw_name, entry.pw_gid))
    assert found[0] == entry.pw_gid


def test_a_user_that_the_system_does_not_know_has_only_the_primary_one() -> None:
    assert group_ids("nobody-is-called-this", 12_345) == [12_345]
