"""The nemesis does what its seed draws, and its judge finds what is wrong."""

import argparse
import dataclasses
import os
import random
import signal
import struct
import subprocess
import sys
from types import SimpleNamespace

import pytest

BENCH = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path += [BENCH, os.path.join(BENCH, "faults")]

import preloaded
from soak import group_rounds, schedule, wire


def test_the_schedule_is_a_function_of_the_seed():
    shown = [repr(schedule.round_of(7, n)) for n in range(40)]
    code = "from soak.schedule import *\nfor n in range(40): print(round_of(7, n))"
    again = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": BENCH, "PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert again.stdout.splitlines() == shown
    assert [repr(schedule.round_of(8, n)) for n in range(40)] != shown


def test_all_faults_are_drawn_and_can_be_carried_out():
    rounds = [schedule.round_of(1, n) for n in range(400)]
    assert {fault.kind for the in rounds for fault in the.faults} == set(schedule.KINDS)
    for the in rounds:
        of = schedule.season(1, schedule.season_of(the.number))
        for fault in the.faults:
            assert fault.node < of.nodes
            assert fault.sample < of.samples
            if fault.kind in ("cut one way", "flip bits"):
                assert fault.other != fault.node
        assert all(schedule.GLOBAL_BATCH % (nodes * ranks) == 0 for nodes, ranks in the.launches)


PATHS = [BENCH, os.path.join(BENCH, "faults"), os.path.join(os.path.dirname(BENCH), "python")]
SOAK = {**os.environ, "PYTHONPATH": os.pathsep.join(PATHS)}


def test_a_wrong_command_line_is_refused():
    pytest.importorskip("numpy")
    wrong = [
        *(["--minutes", text] for text in ("0", "-1", "nan", "inf", "x")),
        *(["--rounds", text] for text in ("0", "-3")),
        ["--rounds", "1", "--round", "-3"],
        [],
    ]
    code = (
        "import soak.__main__ as soak\n"
        f"for given in {wrong}:\n"
        "    try:\n        soak.arguments(given)\n"
        "    except SystemExit as e:\n        print(e.code)\n"
    )
    done = subprocess.run(
        [preloaded.PYTHON, "-c", code], env=SOAK, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["2"] * len(wrong)
    for text in ("argument --minutes: 0; allowed are", "argument --round: -3; allowed are"):
        assert text in done.stderr


def test_at_least_one_round_is_played_and_as_many_as_asked_for():
    pytest.importorskip("torch")
    from soak import report

    timed = argparse.Namespace(round=3, rounds=None, minutes=1.0)
    assert [report.over(timed, n, 61) for n in (3, 4)] == [False, True]
    counted = argparse.Namespace(round=3, rounds=2, minutes=None)
    assert [report.over(counted, n, 61) for n in (3, 4, 5)] == [False, False, True]


def test_a_round_is_played_again_alone():
    pytest.importorskip("torch")
    from soak import report

    assert report.again(7, 12) == "make soak SEED=7 ROUND=12 ROUNDS=1"
    assert report.again(7, 12, groups=True) == "make soak GROUPS=1 SEED=7 ROUND=12 ROUNDS=1"


_OUTSIDE = """
import sys
from types import SimpleNamespace
from soak import enclosure
enclosure.GRACE = 1
sys.exit(enclosure.Outside().run(["sh", "-c", "echo started; exec sleep 60"]))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_signals_end_what_is_inside(number):
    code = (  # a shell's background and nohup ignore these
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
        "signal.signal(signal.SIGHUP, signal.SIG_DFL)" + _OUTSIDE
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env=SOAK,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "started\n"
    process.send_signal(number)
    assert process.wait(20) == 128 + number
    assert process.communicate()[1] == ""


def test_make_passes_signals_on():
    root = os.path.dirname(BENCH)
    shown = subprocess.run(
        ["make", "-n", "-C", root, "soak"], capture_output=True, text=True, check=True
    )
    assert "\nexec env PYTHONPATH=" in shown.stdout


def frame(data):
    """A TCP segment with this data in an Ethernet frame, with no checksum yet."""
    tcp = struct.pack("!HHIIBBHHH", 1, 2, 3, 4, 5 << 4, 0, 100, 0, 0) + data
    ip = struct.pack(
        "!BBHHHBBH4s4s", 0x45, 0, 20 + len(tcp), 0, 0, 64, wire.TCP, 0, b"abcd", b"efgh"
    )
    return bytearray(b"\2" * 6 + b"\4" * 6 + struct.pack("!H", wire.IP) + ip + tcp)


@pytest.mark.parametrize("share, bits", [(0.0, 0), (1.0, 1)])
def test_flipped_bits_have_right_checksums(share, bits):
    for n in (1, 2, 1000, 1448):
        data = random.Random(n).randbytes(n)
        segment = frame(data)
        assert wire.mended(segment, random.Random(n), share) == bool(bits)
        differ = int.from_bytes(data, "big") ^ int.from_bytes(segment[54:], "big")
        assert bin(differ).count("1") == bits
        pseudo = segment[26:34] + struct.pack("!BBH", 0, wire.TCP, len(segment) - 34)
        assert wire.checksum(bytes(pseudo + segment[34:])) == 0


pytest.importorskip("torch")
from oracle import Listing
from soak import verdict
from soak.schedule import Fault
from soak.verdict import DIED, ENDED, FAILED, GOT, REFUSED, SILENT, Event, Judge, Launch, Occurrence

WORLD, EPOCHS, SAMPLES = 2, 2, 60


@pytest.fixture(scope="module")
def judge(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    for label in range(2):
        (root / f"class{label}").mkdir()
        for n in range(SAMPLES // 2):
            (root / f"class{label}" / f"{n:03}.jpg").write_bytes(b"%d/%d" % (label, n))
    return Judge(Listing(root), 5, EPOCHS, False)


def history(judge):
    """What two ranks on two nodes observe if nothing goes wrong."""
    launch = Launch(WORLD, 0)
    for rank in range(WORLD):
        stream = judge.stream(rank, WORLD)
        for step, batch in enumerate(stream):
            launch.events.append(Event(GOT, rank, rank, float(step), step, batch))
        launch.events.append(Event(ENDED, rank, rank, 99.0, len(stream)))
    return launch


def at(launch, rank, step):
    """The index of a batch."""
    return next(i for i, e in enumerate(launch.events) if (e.rank, e.step) == (rank, step))


def fails(launch, rank, step, kind=FAILED, **more):
    """Has a rank fail at a step, and observe nothing more."""
    more = {"error": "SampleError", "text": "sample 3 (class0/003.jpg): EIO", **more}
    launch.events = [e for e in launch.events if e.rank != rank or e.step < step]
    launch.events.append(Event(kind, rank, rank, float(step), step, **more))


def occurred(kind, node=0, begin=0.0, end=None, sample=3):
    return Occurrence(Fault(kind, 0, node, sample=sample), begin, end)


def test_the_judge_accepts_what_is_right(judge):
    launch = history(judge)
    assert len(launch.events) == WORLD * (EPOCHS * 3 + 1)  # the last batch of an epoch is short
    assert judge.judge(launch, [], True) == []


def test_a_source_that_is_away_explains_that_a_dataset_cannot_be_opened_again(judge):
    launch = history(judge)
    text = "dataset /d: the source did not answer"
    for rank in range(WORLD):
        fails(launch, rank, 3, error="DatasetError", text=text)
    assert judge.judge(launch, [occurred("source is mounted again")], False) == []
    assert any(
        "an error without a cause" in found
        for found in judge.judge(launch, [occurred("slow link")], False)
    )


def test_the_judge_finds_what_is_wrong(judge):
    def changed(rank, step, **fields):
        launch = history(judge)
        i = at(launch, rank, step)
        launch.events[i] = dataclasses.replace(launch.events[i], **fields)
        return judge.judge(launch, [], True)

    right = judge.stream(1, WORLD)[2]
    digests, labels = right
    (found,) = changed(1, 2, batch=[["0" * 16, *digests[1:]], labels])
    assert "WRONG BATCH: 1 other samples, 1 of bytes" in found
    (found,) = changed(1, 2, batch=[digests[::-1], labels[::-1]])
    assert "WRONG BATCH: another order" in found
    (found,) = changed(1, 2, batch=[digests, [1 - label for label in labels]])
    assert "WRONG BATCH" in found
    (found,) = changed(1, 2, batch=[digests[:-1], labels[:-1]])
    assert "WRONG BATCH" in found
    (found,) = changed(1, 2, batch=judge.stream(0, WORLD)[2])
    assert "WRONG BATCH" in found

    launch = history(judge)
    del launch.events[at(launch, 1, 3)]
    (found,) = judge.judge(launch, [], True)
    assert "batch of step 4 instead of 3" in found

    launch = history(judge)
    launch.events = [e for e in launch.events if e.rank == 0 or e.step < 5]
    (found,) = judge.judge(launch, [], True)
    assert "rank 1 had 5 batches at the end, not 6" in found
    launch.events.append(Event(ENDED, 1, 1, 9.0, 5))
    assert any("the epoch ended before step 5" in f for f in judge.judge(launch, [], False))


@pytest.mark.parametrize(
    "faults, more, found",
    [
        ([], {}, "without a cause"),
        ([occurred("source fails")], {}, ""),
        ([occurred("source fails", begin=50.0)], {}, "without a cause"),
        ([occurred("source fails", begin=-60.0, end=-50.0)], {}, "without a cause"),
        ([occurred("sample is removed")], {}, ""),
        ([occurred("sample is removed", sample=4)], {}, "without a cause"),
        ([occurred("cut")], {}, "without a cause"),
        ([occurred("source fails")], {"ours": False, "error": "KeyError"}, "not one of the pack"),
        ([occurred("kill daemon", 0)], {"error": "DaemonDiedError"}, "died by itself"),
        ([occurred("source fails")], {"kind": SILENT}, "HANG"),
        ([occurred("source fails")], {"kind": DIED}, "process ended"),
        ([], {"kind": REFUSED}, "refused without a fault"),
        ([occurred("cut")], {"kind": REFUSED}, ""),
    ],
)
def test_faults_explain_errors(judge, faults, more, found):
    launch = history(judge)
    for rank in range(WORLD):
        fails(launch, rank, 2, **more)
    said = judge.judge(launch, faults, False)
    assert all(found in one for one in said)
    assert bool(said) == bool(found)


def test_a_daemons_death_explains_the_errors_of_its_node_alone(judge):
    launch = history(judge)
    fails(launch, 1, 2, error="DaemonDiedError")
    assert judge.judge(launch, [occurred("kill daemon", 1, 1.0, 1.0)], False) == []
    assert judge.judge(launch, [occurred("kill daemon", 0, 1.0, 1.0)], False)
    stopped = [occurred("stop daemon", 1, 1.0, 12.0)]
    assert judge.judge(launch, stopped, False)
    launch = history(judge)
    fails(launch, 1, 2, error="DaemonDiedError", text="the daemon did not answer within 10 s")
    assert judge.judge(launch, stopped, False) == []


@pytest.mark.parametrize("step, wrong", [(6, False), (3, True)])
def test_nothing_comes_after_the_last_batch_alone(judge, step, wrong):
    launch = history(judge)
    for rank in range(WORLD):
        fails(launch, rank, step, error="EndError")
    assert bool(judge.judge(launch, [], False)) == wrong


def test_an_error_ends_all_ranks_at_one_step(judge):
    faults = [occurred("sample fails")]
    launch = history(judge)
    fails(launch, 1, 2)
    fails(launch, 0, 3)  # it took the batch of step 2 before the error was known
    assert judge.judge(launch, faults, False) == []
    launch = history(judge)
    fails(launch, 1, 2)
    fails(launch, 0, 4)
    (found,) = judge.judge(launch, faults, False)
    assert "rank 0 got batches after an error of all" in found
    assert judge.judge(launch, [*faults, occurred("cut")], False) == []


def test_the_judge_knows_no_other_faults_than_the_schedule():
    named = {*verdict.PARTING, *verdict.SOURCE, *verdict.OPENING}
    assert named <= set(schedule.KINDS)


def test_groups_are_a_function_of_the_seed_and_have_all_blows():
    rounds = [group_rounds.round_of(3, n) for n in range(200)]
    assert rounds == [group_rounds.round_of(3, n) for n in range(200)]
    assert rounds != [group_rounds.round_of(4, n) for n in range(200)]
    assert {blow.kind for the in rounds for blow in the.blows} == set(group_rounds.KINDS)
    for the in rounds:
        assert the.members[0].after == 0
        for blow in the.blows:
            assert (0 < len(blow.members) < len(the.members)) == ("members" in blow.kind)
            assert max(blow.members, default=0) < len(the.members)


def test_a_daemon_that_ends_while_it_is_measured_has_no_line(tmp_path):
    from soak.resources import Book

    ended = subprocess.Popen(["true"])
    ended.wait()
    machines = SimpleNamespace(count=1, daemon=lambda node: ended, disk=lambda node: tmp_path)
    book = Book(machines)
    assert book.rest() == []
    assert book.lines() == []
