"""A file system that answers late: what was opened then is closed again."""

import errno
import threading

import pytest
from hdmlp import _view


def test_a_late_result_is_undone():
    """Once; a result in time is not."""
    answers, undone = threading.Event(), []

    def call():
        answers.wait()
        return "late"

    with pytest.raises(OSError, match=r"it has not answered for 0\.01 s") as caught:
        _view.call_with_timeout("/somewhere", call, undone.append, 0.01)
    assert caught.value.errno == errno.ETIMEDOUT
    assert undone == []
    waiting = [thread for thread in threading.enumerate() if thread.name == "hdmlp-open"]
    answers.set()
    for thread in waiting:
        thread.join()
    assert undone == ["late"]
    assert _view.call_with_timeout("/somewhere", lambda: "in time", undone.append, 60) == "in time"
    assert undone == ["late"]


@pytest.mark.parametrize(
    "given, seconds",
    [
        ("60s", 60),
        ("1.5m", 90),
        ("500ms", 0.5),
        ("2h", 7200),
        (30, 30),
        (" 7 s ", 7),
        ("0s", None),
        ("soon", None),
        (None, None),
    ],
)
def test_durations_of_the_configuration_are_parsed(given, seconds):
    assert _view.seconds(given) == seconds
