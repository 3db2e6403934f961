"""A file system that answers late: what was opened then is closed again."""

import errno
import os
import threading

import pytest
from hdmlp._daemon import view as _view
from hdmlp.errors import LimitError


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


def test_a_view_that_is_not_complete_leaves_no_descriptor(tmp_path, monkeypatch):
    """The dataset's root could be opened, and / could not."""
    opened, system = [], os.open

    def limited(path, *rest):
        if path == "/":
            raise OSError(errno.EMFILE, "Too many open files")
        opened.append(system(path, *rest))
        return opened[-1]

    monkeypatch.setattr(os, "open", limited)
    with pytest.raises(LimitError, match="RLIMIT_NOFILE"):
        _view.View(str(tmp_path))
    (root,) = opened
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(root)


def test_a_view_closes_its_descriptors(tmp_path):
    with _view.View(str(tmp_path)) as view:
        root, top = view.fds
        assert os.path.samestat(os.fstat(root), os.stat(tmp_path))
        assert os.path.samestat(os.fstat(top), os.stat("/"))
    for fd in root, top:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)
