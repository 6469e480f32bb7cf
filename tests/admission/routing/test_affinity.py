"""Where prompts belong: alike ones together, spread evenly, and few of them move."""

from collections import Counter

from surgetank.admission.routing.affinity import preference, prefix_key

NAMES = ["a:8000", "b:8000", "c:8000"]
KEYS = [prefix_key(f"You are clerk {number}. ") for number in range(3000)]


def test_keys_are_spread_evenly() -> None:
    homes = Counter(preference(key, NAMES)[0] for key in KEYS)
    assert all(900 < homes[at] < 1100 for at in range(3))


def test_only_what_a_lost_engine_had_moves_and_to_its_second_choice() -> None:
    for key in KEYS[:200]:
        before = [NAMES[at] for at in preference(key, NAMES)]
        left = [name for name in NAMES if name != "b:8000"]
        after = [left[at] for at in preference(key, left)]
        assert after == [name for name in before if name != "b:8000"]


def test_the_order_of_the_names_does_not_matter() -> None:
    for key in KEYS[:50]:
        turned = NAMES[::-1]
        assert [NAMES[at] for at in preference(key, NAMES)] == [
            turned[at] for at in preference(key, turned)
        ]


def test_equal_beginnings_have_one_key() -> None:
    assert prefix_key("ab\ud800") == prefix_key("ab\ud800")  # even such as no encoding has
    assert prefix_key("ab") != prefix_key("ac")
