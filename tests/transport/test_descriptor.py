from __future__ import annotations

import pytest

from stompy.transport.descriptor import DescriptorUse


@pytest.fixture
def released() -> list[str]:
    return []


@pytest.fixture
def use(released: list[str]) -> DescriptorUse:
    return DescriptorUse(lambda: released.append("released"))


def leave(use: DescriptorUse, user: str) -> None:
    use.users.discard(user)
    use.left()


def test_an_idle_descriptor_is_released_at_once(use: DescriptorUse, released: list[str]) -> None:
    use.close()
    assert released == ["released"]


def test_the_last_user_to_leave_releases_it(use: DescriptorUse, released: list[str]) -> None:
    assert use.enter("a")
    assert use.enter("b")
    use.close()
    leave(use, "a")
    assert released == []
    leave(use, "b")
    assert released == ["released"]


def test_an_open_descriptor_is_not_released_by_its_users(use: DescriptorUse, released: list[str]) -> None:
    assert use.enter("a")
    leave(use, "a")
    assert released == []
    assert not use.closed


def test_nobody_enters_a_closed_descriptor(use: DescriptorUse) -> None:
    assert use.enter("a")
    use.close()
    assert use.closed
    assert not use.enter("b")
    leave(use, "a")
    assert not use.enter("b")


def test_it_is_released_once_only(use: DescriptorUse, released: list[str]) -> None:
    use.close()
    use.close()
    assert released == ["released"]
