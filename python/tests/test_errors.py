"""How scripts and commands end after an error."""

import os
import pickle
import subprocess
import sys

import hdmlp
import pytest
from hdmlp import errors

WRONG = 'hdmlp.data.Folder("/nowhere")'


def end(*arguments):
    """A Python process's exit status and output."""
    environment = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(errors.__file__))}
    ended = subprocess.run(
        [sys.executable, *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
    )
    return ended.returncode, ended.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    "script, status, said",
    [
        (WRONG, 1, "hdmlp.errors.DatasetNotFoundError: /nowhere: there is no such directory"),
        (
            'raise hdmlp.errors.ConfigError("rank 2 of 2")',
            1,
            "hdmlp.errors.ConfigError: rank 2 of 2",
        ),
        (
            'raise hdmlp.errors.from_answer({"kind": "mismatch", "message": "seed is 7"})',
            1,
            "hdmlp.errors.MismatchError: seed is 7",
        ),
        (
            'raise hdmlp.errors.from_answer({"kind": "busy", "message": "rank 1 is taken"})',
            1,
            "hdmlp.errors.BusyError: rank 1 is taken",
        ),
        (
            'raise hdmlp.errors.from_answer({"kind": "version", "message": "hdmlp 9"})',
            1,
            "hdmlp.errors.VersionError: hdmlp 9",
        ),
        ('raise hdmlp.errors.SampleError("sample 7")', 1, "hdmlp.errors.SampleError: sample 7"),
        (f"try: {WRONG}\nexcept ValueError: pass\nraise ValueError('mine')", 1, "ValueError: mine"),
        (f"try: {WRONG}\nexcept ValueError: pass", 0, ""),
    ],
    ids=["dataset", "config", "mismatch", "busy", "version", "no input", "another later", "caught"],
)
def test_an_uncaught_error_ends_a_script_as_any_other(script, status, said):
    ended, out = end("-c", f"import hdmlp.data, hdmlp.errors\n{script}")
    assert ended == status, out
    assert said in out, out
    assert said != "" or out == "", out
    assert out.count("Traceback") == status


@pytest.mark.slow
@pytest.mark.parametrize(
    "happens", ["pass", f"try: {WRONG}\nexcept ValueError: pass"], ids=["import", "wrong input"]
)
def test_the_hook_for_uncaught_exceptions_is_left_alone(happens):
    assert end(
        "-c",
        f"import sys, hdmlp.data, hdmlp.torch\n{happens}\nassert sys.excepthook is "
        f"sys.__excepthook__",
    ) == (0, "")


def test_wrong_input_ends_the_command_with_status_2():
    status, out = end("-m", "hdmlp", "dataset", "/nowhere")
    assert status == 2, out
    assert "/nowhere" in out, out
    assert end("-m", "hdmlp", "--no-such-flag")[0] == 2
    assert end("-m", "hdmlp", "--help")[0] == 0


@pytest.mark.parametrize(
    "kind",
    [errors.ConfigError, errors.MismatchError, errors.DatasetNotFoundError, errors.SampleError],
)
def test_errors_can_be_pickled(kind):
    error = pickle.loads(pickle.dumps(kind("text", {"key": "seed"})))
    assert type(error) is kind
    assert str(error) == "text"
    assert error.details == {"key": "seed"}


@pytest.mark.parametrize(
    "old, new",
    [
        ("DaemonDied", "DaemonDiedError"),
        ("PermissionError_", "AccessDeniedError"),
        ("StallTimeout", "StallTimeoutError"),
        ("WorkerDied", "WorkerDiedError"),
    ],
)
@pytest.mark.parametrize("module", [hdmlp, errors])
def test_deprecated_names_are_the_same_classes_and_warn(module, old, new):
    with pytest.warns(DeprecationWarning, match=f"hdmlp.errors.{old} is deprecated; use {new}"):
        cls = getattr(module, old)
    assert cls is getattr(module, new)
    assert old not in module.__all__


def test_all_exceptions_are_exported_by_the_package_and_end_in_error():
    assert set(errors.__all__) <= set(hdmlp.__all__)
    assert all(name.endswith("Error") for name in errors.__all__)
    with pytest.raises(AttributeError, match=r"module 'hdmlp.errors' has no attribute 'Nothing'"):
        _ = errors.Nothing
    with pytest.raises(AttributeError, match=r"module 'hdmlp' has no attribute 'Nothing'"):
        _ = hdmlp.Nothing
