"""The server of ``preloaded.py``: forks a process with torch for each request of a client,
``preloaded_python``, which becomes what the client was asked to be.

A connection is one request. It is answered with the process ID and later with the status. If the
client ends before the process, the process is killed, and what else is in its group.
"""

import array
import atexit
import contextlib
import ctypes
import faulthandler
import fcntl
import gc
import importlib
import json
import multiprocessing.spawn
import os
import runpy
import select
import signal
import socket
import sys
import threading
import types

HERE = os.path.dirname(os.path.abspath(__file__))
LIBC = ctypes.CDLL(None, use_errno=True)
PR_SET_PDEATHSIG = 1


def end_with_parent():
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Server:
    """Forks, and waits for the ends of processes and of their clients."""

    def __init__(self, listener, modules):
        self._listener, self._modules = listener, modules
        self._running = {}  # file descriptors of connections and processes to both, and the ID
        self._poll = select.poll()
        self._poll.register(listener, select.POLLIN)

    def request(self):
        """Returns in new processes only: what a client asks for, and its open files."""
        while True:
            for number, _ in self._poll.poll():
                if number in self._running:
                    self._end(number)
                elif number == self._listener.fileno() and (found := self._fork()) is not None:
                    return found

    def _fork(self):
        connection, _ = self._listener.accept()
        request, files = received(connection)
        if request is None:
            connection.close()
            return None
        preload(self._modules)
        pid = os.fork()
        if pid == 0:
            end_with_parent()
            for each in {self._listener, connection, *(c for c, _, _ in self._running.values())}:
                each.detach()
            return request, files
        for number in files:
            os.close(number)
        end = os.pidfd_open(pid)
        answer(connection, pid)
        for number in (end, connection.fileno()):
            self._poll.register(number, select.POLLIN)
            self._running[number] = connection, end, pid
        return None

    def _end(self, number):
        connection, end, pid = self._running[number]
        if number != end:
            for kill in (os.killpg, os.kill):  # before it has a group, and with it
                with contextlib.suppress(ProcessLookupError):
                    kill(pid, signal.SIGKILL)
        answer(connection, os.waitpid(pid, 0)[1])
        for each in (end, connection.fileno()):
            self._poll.unregister(each)
            del self._running[each]
        os.close(end)
        connection.close()


def received(connection):
    """A request, and the open files that came with it; None if the client has ended."""
    head, ancillary, *_ = connection.recvmsg(8, socket.CMSG_SPACE(253 * 4))
    files = array.array("i")
    for _, _, data in ancillary:
        files.frombytes(data)
    data = connection.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL)
    return json.loads(data) if data else None, list(files)


def answer(connection, number):
    with contextlib.suppress(OSError):  # the client has been killed
        connection.sendall(number.to_bytes(4, "big"))


def preload(modules):
    if modules and modules[-1] not in sys.modules:
        for name in modules:
            importlib.import_module(name)
        gc.collect()
        gc.freeze()  # or else each process would look through it all, and so have a copy of it


def install(files, numbers):
    """Has files under the numbers that the client has them under, and no others."""
    above = max(*numbers, *files) + 1
    moved = [fcntl.fcntl(number, fcntl.F_DUPFD, above) for number in files]
    os.closerange(0, above)
    for source, number in zip(moved, numbers):
        os.dup2(source, number)
        os.close(source)


def enter_namespaces(client):
    """Enters those of another process that differ."""
    for kind in ("net", "uts", "mnt"):
        theirs = f"/proc/{client}/ns/{kind}"
        if os.readlink(theirs) != os.readlink(f"/proc/self/ns/{kind}"):
            namespace = os.open(theirs, os.O_RDONLY | os.O_CLOEXEC)
            if LIBC.setns(namespace, 0):
                raise OSError(ctypes.get_errno(), theirs)
            os.close(namespace)


def become(request, files):
    """Makes this process what the client was asked to be, but for what it runs."""
    install(files, request["files"])
    enter_namespaces(request["client"])
    os.setsid()
    os.chdir(request["directory"])
    os.umask(request["umask"])
    for number in request["ignored"]:
        signal.signal(number, signal.SIG_IGN)
    os.environ.clear()
    os.environ.update(request["environment"])
    if os.environ.get("PYTHONFAULTHANDLER"):
        faulthandler.enable()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()  # others' are seeded by fork, or by a constant
    multiprocessing.spawn.set_executable(os.path.join(HERE, "preloaded_python"))


def run(arguments):
    """Runs Python's command line."""
    sys.orig_argv = [sys.executable, *arguments]
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    while arguments[0] in ("-u", "-B", "-X"):
        unbuffered |= arguments[0] == "-u"
        del arguments[: 2 if arguments[0] == "-X" else 1]
    sys.stdout.reconfigure(write_through=unbuffered)
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    if arguments[0] == "-c":
        code, sys.argv, start = (
            compile(arguments[1], "<string>", "exec"),
            ["-c", *arguments[2:]],
            "",
        )
    elif arguments[0] == "-m":
        code, sys.argv, start = None, arguments[1:], os.getcwd()
    else:
        main.__file__ = arguments[0]
        with open(main.__file__, "rb") as file:
            code = compile(file.read(), main.__file__, "exec")
        sys.argv, start = arguments, os.path.dirname(os.path.abspath(main.__file__))
    own = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = [start, *filter(None, own), *(path for path in sys.path if path != HERE)]
    sys.modules.pop("sitecustomize", None)
    with contextlib.suppress(ImportError):
        importlib.import_module("sitecustomize")
    if code is None:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        exec(code, main.__dict__)


def status_of(arguments):
    """Runs Python's command line; returns the exit status."""
    try:
        run(arguments)
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return error.code or 0
        print(error.code, file=sys.stderr)
        return 1
    except BaseException as error:
        sys.last_type, sys.last_value, sys.last_traceback = sys.exc_info()
        sys.excepthook(*sys.exc_info())
        if isinstance(error, KeyboardInterrupt):
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        return 1
    return 0


def leave(status):
    """Ends the process as Python does, but does not take down all modules, for a second or more."""
    threading._shutdown()
    atexit._run_exitfuncs()
    for file in (sys.stdout, sys.stderr):
        if not file.closed:
            file.flush()
    os._exit(status)


if __name__ == "__main__":
    end_with_parent()
    request, files = Server(socket.socket(fileno=int(sys.argv[1])), sys.argv[2:]).request()
    become(request, files)
    leave(status_of(request["argv"][1:]))
