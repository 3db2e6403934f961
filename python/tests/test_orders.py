"""Jobs over a subset, and jobs whose order the process gives: torch's samplers determine the order,
the files the bytes."""

import array
import itertools
import os
from pathlib import Path

import pytest
from hdmlp import errors
from hdmlp._batches.source import column
from hdmlp._batches.stream import Stream
from hdmlp._daemon import connecting
from hdmlp._lib import protocol
from hdmlp._lib.arguments import settings

torch = pytest.importorskip("torch")
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    Subset,
    WeightedRandomSampler,
)

SAMPLES = 25
_names = itertools.count()


class Job:
    """One rank's stream over the folder, with a list that comes with OPEN.

    Args:
        lists: what the list holds, one after the other: 32-bit numbers.
        keys: configuration.
        stream: what differs from the usual stream.
    """

    def __init__(
        self,
        folder,
        *lists,
        name=None,
        rank=0,
        world_size=1,
        verify=False,
        transforms=None,
        keys=None,
        fd=None,
        **stream,
    ):
        self.files = [p.read_bytes() for p in sorted(Path(folder).rglob("*.jpg"))]
        fd = memfd(*lists) if fd is None else fd
        request = {
            "job": name or f"orders-{os.getpid()}-{next(_names)}",
            "rank": rank,
            "world_size": world_size,
            "dataset": {"kind": "folder", "path": folder, "options": {}, "view": True},
            "verify": verify,
            "stream": {
                "seed": 7,
                "epochs": 3,
                "global_batch": 4,
                "drop_last": False,
                "shuffle": "torch",
                "scheme": "strided",
                "tail": "pad",
                **stream,
            },
            "transforms": transforms,
            **settings(keys or {}, None),
        }
        client = connecting.connect()
        try:
            self.stream = Stream(client, request, fds=(fd,))
        except BaseException:
            client.close()
            raise
        finally:
            os.close(fd)
        self.opened = self.stream.opened

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stream.close()

    def give(self, epoch, ids):
        fd = memfd(ids)
        try:
            frame = protocol.encode_json(protocol.GIVE, {"epoch": epoch, "entries": len(ids)})
            self.stream._connection.send_fds(frame, [fd])
        finally:
            os.close(fd)

    def batches(self, epoch, start=0):
        """The samples of an epoch's batches, from a step on; their bytes are compared with the
        files'."""
        if self.stream.position != epoch * self.stream.steps + start:
            self.stream.seek(epoch * self.stream.steps + start)
        got, audit = [], 0
        for step in range(start, self.stream.steps):
            taken = self.stream.next(30)
            assert (taken.epoch, taken.step) == (epoch, step)
            ids = column(taken.payload, taken.n, "ids")
            assert [bytes(view) for view in taken.content] == [self.files[i] for i in ids]
            assert protocol.audit_sum(epoch, ids) == taken.audit
            audit = (audit + taken.audit) & (1 << 64) - 1
            self.stream.ack(epoch, step, self.stream.stall, 0, audit)
            got.append(ids)
        return got

    def ends(self):
        """Checks that the daemon has nothing more to send."""
        with pytest.raises(errors.EndError):
            self.stream.next(30)


def memfd(*lists):
    fd = os.memfd_create("list")
    data = b"".join(array.array("i", values).tobytes() for values in lists)
    assert os.write(fd, data) == len(data)
    return fd


def given(batches, *epochs, first=0):
    """What OPEN contains about orders, and its lists."""
    return (batches, *epochs), {
        "shuffle": "given",
        "given": {
            "batches": len(batches),
            "entries": sum(batches),
            "epochs": len(epochs),
            "first": first,
        },
    }


def sampled(subset, epoch, rank, world_size, batch, **arguments):
    """The batches that torch's DistributedSampler over a Subset makes."""
    part = Subset(range(SAMPLES), subset)
    sampler = DistributedSampler(part, num_replicas=world_size, rank=rank, seed=7, **arguments)
    sampler.set_epoch(epoch)
    return [
        [part[p] for p in positions]
        for positions in BatchSampler(sampler, batch, arguments.get("drop_last", False))
    ]


@pytest.mark.parametrize("world_size", [1, 2])
@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("subset", [[3, 24, 0, 7, 19, 20, 11, 5, 6], [4, 4, 9, 4, 1, 9, 24], [13]])
def test_a_subset_is_delivered_as_by_torch(real, folder, world_size, shuffle, subset):
    name = f"subset-{os.getpid()}-{next(_names)}"
    jobs = [
        Job(
            folder,
            subset,
            name=name,
            rank=rank,
            world_size=world_size,
            subset={"count": len(subset)},
            verify=True,
            global_batch=2 * world_size,
            shuffle="torch" if shuffle else "none",
        )
        for rank in range(world_size)
    ]
    for rank, job in enumerate(jobs):
        assert job.opened["positions"] == len(subset)
        assert job.opened["samples"] == SAMPLES
        for epoch in range(3):
            assert job.batches(epoch) == sampled(
                subset, epoch, rank, world_size, 2, shuffle=shuffle
            )
    for job in jobs:
        assert job.stream.call("audit", {"epoch": 2})["complete"]
    report = jobs[0].stream.call("report", {})
    needed = sum(len(jobs[0].files[i]) for i in set(subset))
    assert report["needed_bytes"] == report["bound_bytes"] == report["source"]["bytes"] == needed
    assert [s["ids"] for s in [jobs[-1].stream.call("explain", {"epoch": 1, "step": 0})]] == [
        sampled(subset, 1, world_size - 1, world_size, 2, shuffle=shuffle)[0]
    ]
    for job in jobs:
        job.stream.close()


def test_ranks_with_other_subsets_are_refused(real, folder):
    name = f"subset-{os.getpid()}-{next(_names)}"
    with (
        Job(folder, [1, 2, 3], name=name, world_size=2, subset={"count": 3}),
        pytest.raises(
            errors.MismatchError,
            match=r"rank 1 disagrees with rank 0 of job .*: subset or batches is 3 samples",
        ),
    ):
        Job(folder, [1, 2, 4], name=name, rank=1, world_size=2, subset={"count": 3})


def test_a_weighted_samplers_order_is_delivered(real, folder):
    """Three epochs by GIVE, each drawn after the one before; then from the middle of one."""
    weights = [1.0] * 20 + [20.0] * 5
    torch.manual_seed(3)
    sampler = WeightedRandomSampler(weights, 30, generator=torch.Generator().manual_seed(5))
    drawn = [list(sampler) for _ in range(4)]
    batches = [7, 7, 7, 7, 2]
    lists, stream = given(batches, drawn[0])

    def cut(epoch, step=0):
        return [drawn[epoch][sum(batches[:s]) : sum(batches[: s + 1])] for s in range(step, 5)]

    with Job(folder, *lists, **stream, epochs=0, verify=True) as job:
        assert job.opened["steps"] == 5
        assert job.opened["rank_samples"] == job.opened["positions"] == 30
        assert job.batches(0) == cut(0)
        job.ends()
        assert job.stream.call("audit", {"epoch": 0})["complete"]
        for epoch in (1, 2):
            job.give(epoch, drawn[epoch])
            assert job.batches(epoch) == cut(epoch)
            job.ends()
        job.give(3, drawn[3])
        assert job.batches(3, start=3) == cut(3, 3)
        report = job.stream.call("report", {})
        read = set(sum(drawn[:3], drawn[3][21:]))
        assert (
            report["source"]["bytes"]
            == report["bound_bytes"]
            == sum(len(job.files[i]) for i in read)
        )

    # What is resumed in another job is the same, from the first batch on that is asked for.
    lists, stream = given(batches, drawn[2], drawn[3], first=2)
    with Job(folder, *lists, **stream, epochs=4) as job:
        assert job.batches(2, start=2) == cut(2, 2)
        assert job.batches(3) == cut(3)
        job.ends()


def test_an_epoch_that_is_given_in_time_needs_no_iterate(real, folder):
    lists, stream = given([2, 1], [0, 1, 2])
    with Job(folder, *lists, **stream, epochs=0) as job:
        job.stream.seek(0)
        for epoch in range(50):
            job.give(epoch + 1, [epoch % SAMPLES, 7, 7])
            job.batches(epoch)
            assert job.stream.position == 2 * (epoch + 1)
        assert job.stream._generation == 1
        assert job.batches(50) == [[49 % SAMPLES, 7], [7]]
        job.ends()


def test_batches_of_a_custom_sampler_are_delivered(real, folder):
    """Batches of any sizes, with repeated samples, and with no memory to cache any of them."""
    batches = [[24], [0, 0, 0, 0], [1, 24, 1], list(range(25)), [3, 2]]
    lists, stream = given([len(b) for b in batches], list(itertools.chain.from_iterable(batches)))
    for keys in ({}, {"memory": "0"}, {"memory": "0", "policy": "naive"}, {"memory": "300B"}):
        with Job(folder, *lists, **stream, keys=keys) as job:
            assert job.batches(0) == batches


def test_a_random_samplers_order_is_delivered(real, folder):
    torch.manual_seed(11)
    batches = list(BatchSampler(RandomSampler(range(SAMPLES)), 4, False))
    lists, stream = given([len(b) for b in batches], list(itertools.chain.from_iterable(batches)))
    with Job(folder, *lists, **stream) as job:
        assert job.batches(0) == batches


def test_a_batch_may_be_larger_than_the_dataset(real, folder):
    for size in (26, 1 << 31, 1 << 40):
        lists = [list(range(SAMPLES))]
        with Job(folder, *lists, subset={"count": SAMPLES}, global_batch=size) as job:
            assert job.opened["steps"] == 1
            assert job.batches(0) == [
                list(itertools.chain.from_iterable(sampled(lists[0], 0, 0, 1, 5)))
            ]
            assert job.stream.call("report", {})["ranks"][0]["staging"]["size"] <= 32 << 20
    with pytest.raises(errors.ConfigError, match="nothing would be delivered"):
        Job(folder, [1, 2], subset={"count": 2}, global_batch=3, drop_last=True)


@pytest.mark.parametrize(
    "lists, stream, said",
    [
        ([[0, 25]], {"subset": {"count": 2}}, "sample 25 at index 1; allowed: 0 to 24"),
        ([[0, -1]], {"subset": {"count": 2}}, "sample -1 at index 1"),
        ([[0, 1]], {"subset": {"count": 3}}, "has 8 bytes, and 12 are needed"),
        ([[0, 1]], {"subset": {"count": 1 << 29}}, "at most 268435456 samples"),
        (*given([2], [0, 25]), "epoch 0 is given with sample 25 at index 1"),
        (*given([2], [0, 1], first=3), "epoch 3 is given; there are 3 epochs"),
        (*given([2, 0], [0, 1]), "batch 1 has 0 samples"),
        ([[2], [0]], given([2], [0, 1])[1], "has 8 bytes, and 12 are needed"),
        ([[0]], {"shuffle": "given"}, "stream.given"),
    ],
)
def test_invalid_orders_are_refused(real, folder, lists, stream, said):
    with pytest.raises(errors.ConfigError, match=said):
        Job(folder, *lists, **stream)


def test_invalid_descriptors_of_lists_are_refused(real, folder, tmp_path):
    (tmp_path / "list").write_bytes(bytes(400))
    read, write = os.pipe()
    for fd in (read, os.open(tmp_path, os.O_RDONLY), os.open(tmp_path / "list", os.O_RDONLY)):
        with pytest.raises(errors.ConfigError, match="its descriptor is not a memfd"):
            Job(folder, fd=fd, subset={"count": 2})
    os.close(write)


def test_wrong_orders_are_named(real, folder):
    lists, stream = given([2, 1], [0, 1, 2])
    with Job(folder, *lists, **stream) as job:
        for ids, said in (
            ([1, 2, 30], "epoch 1 is given with sample 30 at index 2; allowed: 0 to 24"),
            ([1, 2], "the order of epoch 1 has 2 samples, but an epoch's batches have 3"),
        ):
            job.give(1, ids)
            with pytest.raises(errors.ConfigError, match=said):
                job.stream.next(30)
        job.stream.seek(3 * 2)
        with pytest.raises(errors.ConfigError, match=r"epoch 3 is|epoch 3 was not given"):
            job.stream.next(30)
        job.stream.seek(1 * 2)
        with pytest.raises(errors.ConfigError, match="epoch 1 was not given"):
            job.stream.next(30)
        assert job.batches(0) == [[0, 1], [2]]


def test_a_substitute_is_in_the_subset(real, folder):
    subset = [12, 3, 20]
    broken = sorted(Path(folder).rglob("*.jpg"))[12]
    with Job(
        folder,
        subset,
        subset={"count": 3},
        keys={"on_error": "substitute", "memory": "0"},
        shuffle="none",
        global_batch=3,
    ) as job:
        broken.unlink()
        assert job.batches(0) == [[20, 3, 20]]
        assert job.stream.call("audit", {"epoch": 0})["complete"]


def test_each_occurrence_of_a_sample_is_augmented_separately(real, tmp_path):
    """As in torch. The first occurrence is as if it were the only one."""
    numpy, image = pytest.importorskip("numpy"), pytest.importorskip("PIL.Image")
    (tmp_path / "data" / "a").mkdir(parents=True)
    random = numpy.random.default_rng(1)
    for i in range(SAMPLES):
        pixels = random.integers(0, 256, (24, 24, 3), dtype=numpy.uint8)
        image.fromarray(pixels).save(tmp_path / "data" / "a" / f"{i:02d}.jpg")
    transforms = [{"name": "RandomResizedCrop", "size": 8}, {"name": "ToTensor"}]

    def made(job):
        job.stream.seek(0)
        taken = job.stream.next(30)
        ids = column(taken.payload, taken.n, "ids")
        return list(zip(ids, map(bytes, job.stream.output.split(taken.content, taken.n))))

    folder = str(tmp_path / "data")
    with Job(folder, [5, 9], subset={"count": 2}, shuffle="none", transforms=transforms) as job:
        once = dict(made(job))
    order = [5, 9, 5, 5, 9, 5]
    lists, stream = given([6], order)
    with Job(folder, *lists, **stream, transforms=transforms) as job:
        repeated = made(job)
        assert [i for i, _ in repeated] == order
        assert repeated[:2] == list(once.items())
        assert len(set(repeated)) == len(order)
    with Job(
        folder, order, subset={"count": 6}, shuffle="none", global_batch=6, transforms=transforms
    ) as job:
        assert made(job) == repeated
