"""Which pages of a private mapping were written to, as the kernel reports it in two ways."""

import ctypes
import mmap
import os

import pytest
from hdmlp._lib.pages import Pages

PAGE = mmap.PAGESIZE


@pytest.fixture
def private():
    fd = os.memfd_create("pages")
    os.write(fd, b"x" * (8 * PAGE))
    memory = mmap.mmap(fd, 8 * PAGE, mmap.MAP_PRIVATE)
    os.close(fd)
    return memory


@pytest.fixture(params=["the newest way", "the way of older kernels"])
def pages(private, request):
    made = Pages(ctypes.addressof(ctypes.c_char.from_buffer(private)))
    made._scans = request.param == "the newest way"
    return made


def test_only_pages_that_were_written_to_are_own(private, pages):
    assert not pages.may_be_written(0, 7)
    assert private[:] == b"x" * len(private)
    assert not pages.may_be_written(0, 7)
    private[3 * PAGE] = 1
    assert [pages.may_be_written(n, n) for n in range(8)] == [n == 3 for n in range(8)]
    assert pages.may_be_written(0, 7)
    assert not pages.may_be_written(4, 7)
    private.madvise(mmap.MADV_DONTNEED)
    assert not pages.may_be_written(0, 7)


def test_what_cannot_be_found_out_may_be(private, monkeypatch):
    def refuse(*_):
        raise FileNotFoundError  # there is no /proc

    monkeypatch.setattr("os.open", refuse)
    pages = Pages(ctypes.addressof(ctypes.c_char.from_buffer(private)))
    monkeypatch.undo()
    assert pages.may_be_written(0, 7)


def test_a_kernel_that_cannot_scan_is_asked_once(private, monkeypatch):
    pages = Pages(ctypes.addressof(ctypes.c_char.from_buffer(private)))
    asked = []

    def refuse(*of):
        asked.append(of)
        raise OSError

    monkeypatch.setattr("fcntl.ioctl", refuse)
    private[0] = 1
    assert pages.may_be_written(0, 0)
    assert not pages.may_be_written(1, 7)
    assert len(asked) == 1
