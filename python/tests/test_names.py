"""Names of files and jobs are escaped in messages and logs, so that they do nothing to
terminals."""

import os
import subprocess

import hdmlp.data as data
import pytest
from hdmlp import errors
from hdmlp._daemon import connecting

EVIL = "z\x1b]0;title\a\x1b[31m\nERROR forged line\n"
SAID = r"z\x1b]0;title\a\x1b[31m\nERROR forged line\n"


def test_unprintable_names_of_samples_are_escaped(real, folder):
    path = os.path.join(folder, "cat", EVIL + ".jpg")
    open(path, "w").close()
    with data.DataLoader(data.Folder(folder), batch_size=5, epochs=1, shuffle=False) as loader:
        with pytest.raises(errors.SampleError) as caught:
            list(loader)
    assert caught.value.path == path
    assert f'("{folder}/cat/{SAID}.jpg")' in str(caught.value)
    assert str(caught.value).isprintable()


def test_unprintable_names_of_datasets_are_escaped(real, tmp_path):
    root = tmp_path / EVIL
    (root / "class").mkdir(parents=True)
    with pytest.raises(errors.DatasetError) as caught:
        len(data.Folder(str(root)))
    assert caught.value.details["path"] == str(root)
    assert f'"{tmp_path}/{SAID}"' in str(caught.value)
    assert str(caught.value).isprintable()


def test_unprintable_names_of_jobs_are_escaped(real, folder):
    open(os.path.join(folder, "cat", EVIL + ".jpg"), "w").close()
    with data.DataLoader(
        data.Folder(folder), batch_size=5, epochs=1, name=EVIL, on_error="skip"
    ) as loader:
        list(loader)
        for command in ("stats", "stats --job title", "top --once --interval 100ms"):
            shown = subprocess.run(
                [connecting.find_binary(), *command.split()],
                capture_output=True,
                text=True,
                timeout=60,
                check=True,
            ).stdout
            assert f'/{SAID}"' in shown, command
            assert 'job "' in shown, command
            assert all(line.isprintable() for line in shown.split("\n")), command
