"""Ranks of a synchronous round: none goes on before all have come, and none waits for one that has
ended.
"""

import threading

import pytest
from barrier import Barrier, Member


def test_all_go_on_together(tmp_path):
    steps, lock = [0, 0, 0], threading.Lock()
    wrong = []

    def rank(number, path):
        member = Member(path)
        for step in range(1, 21):
            with lock:
                steps[number] = step
            member.wait()
            with lock:
                if min(steps) < step:
                    wrong.append((number, step, list(steps)))
        member.wait()

    with Barrier(str(tmp_path), 3) as barrier:
        ranks = [threading.Thread(target=rank, args=(n, barrier.path)) for n in range(3)]
        for thread in ranks:
            thread.start()
        for thread in ranks:
            thread.join()
    assert steps == [20, 20, 20]
    assert not wrong


def test_one_that_ends_is_not_waited_for(tmp_path):
    with Barrier(str(tmp_path), 2) as barrier:
        stays, ends = Member(barrier.path), Member(barrier.path)
        ends.close()
        with pytest.raises(ConnectionError):
            stays.wait()
        stays.close()


def test_left_before_all_have_come(tmp_path):
    with Barrier(str(tmp_path), 2) as barrier:
        member = Member(barrier.path)
    with pytest.raises(ConnectionError):
        member.wait()
    member.close()
