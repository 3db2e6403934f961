"""What a script ends with that does not catch an error."""

import os
import pickle
import subprocess
import sys

import pytest

from hdmlp import errors

WRONG = 'hdmlp.data.Folder("/nowhere")'
FRAME = """
import sys
import hdmlp.data, hdmlp.errors
def before(*error): print("another hook saw it", file=sys.stderr); sys.__excepthook__(*error)
def after(*error): before_that(*error); print("another hook saw it", file=sys.stderr)
"""


def end(script, *options):
    """The exit status of a script, and what it wrote."""
    environment = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(errors.__file__))}
    ended = subprocess.run([sys.executable, *options, "-c", FRAME + script], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, text=True, timeout=60)
    return ended.returncode, ended.stdout


@pytest.mark.parametrize("script, status, said", [
    (WRONG, 2, "hdmlp.errors.DatasetNotFoundError: /nowhere: there is no such directory"),
    ('raise hdmlp.errors.ConfigError("rank 2 of 2")', 2, "hdmlp.errors.ConfigError: rank 2 of 2"),
    ('raise hdmlp.errors.from_answer({"kind": "mismatch", "message": "seed is 7"})', 2, "hdmlp.errors.MismatchError: seed is 7"),
    ('raise hdmlp.errors.from_answer({"kind": "busy", "message": "rank 1 is taken"})', 2, "hdmlp.errors.BusyError: rank 1 is taken"),
    ('raise hdmlp.errors.from_answer({"kind": "version", "message": "hdmlp 9"})', 2, "hdmlp.errors.VersionError: hdmlp 9"),
    ('raise hdmlp.errors.SampleError("sample 7")', 1, "hdmlp.errors.SampleError: sample 7"),
    (f"try: {WRONG}\nexcept ValueError: pass\nraise ValueError('mine')", 1, "ValueError: mine"),
    (f"try: {WRONG}\nexcept ValueError: pass", 0, ""),
    (f"sys.excepthook = before\n{WRONG}", 2, "another hook saw it"),
    (f"try: {WRONG}\nexcept ValueError: before_that, sys.excepthook = sys.excepthook, after\nprint(1 / 0)", 1, "another hook saw it"),
    (f"error = hdmlp.errors.ConfigError('this')\nbefore_that, sys.excepthook = sys.excepthook, after\nraise error", 1,
     "hdmlp.errors.ConfigError: this\nanother hook saw it"),
], ids=["dataset", "config", "mismatch", "busy", "version", "no input", "another later", "caught", "hook before", "hook after", "hook after, same error"])
def test_exit_status(script, status, said):
    ended, out = end(script)
    assert ended == status and said in out and (said != "" or out == ""), out
    assert status != 2 or out.count("Traceback") == 1


def test_an_interactive_session_goes_on():
    assert end(f"try: {WRONG}\nexcept ValueError: pass\nsys.ps1 = '> '\nraise hdmlp.errors.ConfigError('this')")[0] == 1


def test_nothing_is_changed_where_there_is_no_error():
    assert end("assert sys.excepthook is sys.__excepthook__")[0] == 0


@pytest.mark.parametrize("kind", [errors.ConfigError, errors.MismatchError, errors.DatasetNotFoundError, errors.SampleError])
def test_errors_travel_between_processes(kind):
    error = pickle.loads(pickle.dumps(kind("text", {"key": "seed"})))
    assert type(error) is kind and str(error) == "text" and error.details == {"key": "seed"}
