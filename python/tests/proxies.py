"""A proxy that answers for a host that does not exist, and tunnels to it by TLS."""

import contextlib
import http.client
import http.server
import os
import shutil
import socket
import ssl
import subprocess
import threading
import urllib.parse


class Proxy:
    """A context in which requests for any host get what a server answers.

    Args:
        url: The server's URL.
        certificate: A file with a certificate and its key, which tunnels end with; None: there are
            no tunnels.

    Attributes:
        url: The proxy's URL.
        asked: For what it was asked, as ``GET http://host`` or ``CONNECT host:443``.
    """

    def __init__(self, url, certificate=None):
        self.asked, self._target = [], urllib.parse.urlsplit(url).netloc
        self._tls = None
        if certificate:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.load_cert_chain(certificate)
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                proxy._forward(self)

            do_HEAD = do_GET

            def do_CONNECT(self):
                proxy._tunnel(self)

            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()

    def _forward(self, request):
        asked = urllib.parse.urlsplit(request.path)
        self.asked.append(f"{request.command} {asked.scheme}://{asked.netloc}")
        server = http.client.HTTPConnection(self._target)
        path = urllib.parse.urlunsplit(("", "", *asked[2:]))
        server.request(request.command, path, headers=dict(request.headers))
        answer = server.getresponse()
        body = answer.read()
        request.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "content-length", "connection"):
                request.send_header(name, value)
        length = answer.getheader("Content-Length") if request.command == "HEAD" else len(body)
        request.send_header("Content-Length", str(length))
        request.end_headers()
        request.wfile.write(body)
        server.close()

    def _tunnel(self, request):
        self.asked.append(f"CONNECT {request.path}")
        request.send_response_only(200)
        request.end_headers()
        request.close_connection = True
        host, _, port = self._target.partition(":")
        with contextlib.suppress(OSError, ssl.SSLError):
            client = self._tls.wrap_socket(request.connection, server_side=True)
            with socket.create_connection((host, int(port))) as server:
                back = threading.Thread(target=_copy, args=(server, client), daemon=True)
                back.start()
                _copy(client, server)
                back.join()


def _copy(source, sink):
    with contextlib.suppress(OSError, ssl.SSLError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


def certificate(directory, host):
    """Returns a file with a certificate of its own for a host, and its key; None: no openssl."""
    if shutil.which("openssl") is None:
        return None
    key, crt = os.path.join(directory, "key.pem"), os.path.join(directory, "crt.pem")
    made = [
        *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
        *("-nodes", "-days", "2", "-subj", f"/CN={host}", "-addext", f"subjectAltName=DNS:{host}"),
        *("-keyout", key, "-out", crt),
    ]
    subprocess.run(made, check=True, capture_output=True)
    both = os.path.join(directory, "both.pem")
    with open(both, "w") as file:
        for path in (crt, key):
            with open(path) as part:
                file.write(part.read())
    return both
