"""A test that is to be alone is."""

from threading import Event, Thread

import pytest
import workers


@pytest.mark.skipif(workers.fcntl is None, reason="needs locks of POSIX")
@pytest.mark.parametrize(("first", "second"), [(False, True), (True, False), (True, True)])
def test_a_turn_alone_has_nothing_beside_it(tmp_path, first, second):
    inside = Event()

    def wait():
        with workers.turn(tmp_path, alone=second):
            inside.set()

    with workers.turn(tmp_path, alone=first):
        other = Thread(target=wait)
        other.start()
        assert not inside.wait(0.1)
    other.join(10)
    assert inside.is_set()


@pytest.mark.skipif(workers.fcntl is None, reason="needs locks of POSIX")
def test_other_turns_are_taken_side_by_side(tmp_path):
    with workers.turn(tmp_path, alone=False), workers.turn(tmp_path, alone=False):
        pass
