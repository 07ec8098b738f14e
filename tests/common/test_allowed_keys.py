import pytest

from common.curve_keys import KEYS_MAX, AllowedKey, AllowListError, is_key, parse_allow_line, parse_allow_list

KEY = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"
OTHER = "JTKVSB%%)wK0E.X)V>+}o?pNmC{O&4W4b!Ni{Lh6"


def test_a_list_says_which_key_may_speak_for_whom() -> None:
    listed = parse_allow_list(f"# who may\n\n{KEY}  rm-1,test-*  # 2026-11-21 upstairs\n{OTHER}\trm-2\n")
    assert listed.entries[KEY] == AllowedKey(KEY, ("rm-1", "test-*"), comment="upstairs", since="2026-11-21")
    assert listed.entries[OTHER] == AllowedKey(OTHER, ("rm-2",))
    assert [rm for rm in ("rm-1", "test-", "test-7", "rm-2", "rm-11", "atest-1", "") if listed.admits(KEY, rm)] == [
        "rm-1",
        "test-",
        "test-7",
    ]


def test_a_key_that_is_not_listed_speaks_for_nobody() -> None:
    assert not parse_allow_list(f"{KEY} *").admits(OTHER, "rm-1")


def test_a_star_admits_only_what_can_be_an_id() -> None:
    listed = parse_allow_list(f"{KEY} *")
    assert listed.admits(KEY, "x" * 64)
    assert not listed.admits(KEY, "x" * 65)
    assert not listed.admits(KEY, "rm 1")


def test_an_entry_is_written_as_it_is_read() -> None:
    for one in (
        AllowedKey(KEY, ("a", "b-*")),
        AllowedKey(KEY, ("a",), comment="# odd, as comments may be"),
        AllowedKey(KEY, ("a",), since="2026-01-02"),
        AllowedKey(KEY, ("a",), comment="here", since="2026-01-02"),
    ):
        assert parse_allow_line(one.line()) == one


@pytest.mark.parametrize("line", ["", "   ", "# comment", "#comment", f"# {KEY} rm-1", "#" * 40])
def test_a_line_that_says_nothing(line: str) -> None:
    assert parse_allow_line(line) is None


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("rm-1", "line 2: expected a public key of 40 characters, RM ids"),
        (KEY, "line 2: expected a public key of 40 characters, RM ids"),
        (f"{KEY[1:]} rm-1", "line 2: expected a public key of 40 characters, RM ids"),
        (f"{KEY}~ rm-1", "line 2: expected a public key of 40 characters, RM ids"),
        (f"{KEY} rm 1", "line 2: 'rm 1' is no RM id"),
        (f"{KEY} rm-1,,rm-2", "line 2: '' is no RM id"),
        (f"{OTHER} rm-2", "line 2: this key is there already"),
    ],
)
def test_what_is_wrong_is_told_with_the_number_of_its_line(line: str, reason: str) -> None:
    with pytest.raises(AllowListError) as error:
        parse_allow_list(f"{OTHER} rm-1\n{line}\n")
    assert str(error.value).startswith(reason)
    assert KEY not in str(error.value)


def test_a_list_has_an_end() -> None:
    keys = [f"{number:040}" for number in range(KEYS_MAX + 1)]
    with pytest.raises(AllowListError, match=f"at most {KEYS_MAX}"):
        parse_allow_list("\n".join(f"{key} rm" for key in keys))
    assert len(parse_allow_list("\n".join(f"{key} rm" for key in keys[1:])).entries) == KEYS_MAX


def test_not_every_text_of_forty_characters_is_a_key() -> None:
    assert is_key(KEY)
    assert not is_key(KEY[:-1])
    assert not is_key(KEY[:-1] + "~")
    assert not is_key("#" + KEY[1:]), "five digits of Z85 are a number below 2**32, so none begin with the last digit"
