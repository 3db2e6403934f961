"""TLS between the nodes of a job: real daemons in network namespaces of their own."""

import subprocess

import pytest
from joining import BASE, IP, check, start
from nodes import Nodes, alone, binary, folder, streams  # noqa: F401

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "zero, one, one_says, zero_says",
    [
        (
            "on",
            "off",
            "that node uses TLS, this one does not: set tls to the same value",
            "this node uses TLS, that one does not",
        ),
        (
            "off",
            "on",
            "this node uses TLS, that one does not: set tls to the same value",
            "that node uses TLS, this one does not",
        ),
    ],
)
def test_tls_on_one_side_only_is_refused(binary, folder, tmp_path, zero, one, one_says, zero_says):
    said = start(
        binary,
        folder,
        tmp_path,
        2,
        {},
        {0: {"tls": zero}, 1: {"tls": one, "start_timeout": "60s"}},
        [0, 1],
    )
    check(
        said[1],
        "ConfigError",
        rf"TLS handshake of node 1 with node 0 \({IP}:29510\) failed: {one_says}",
    )
    check(
        said[0],
        "ConfigError",
        rf"node 1 of 2 did not join within 4s; .*refused: {IP}:\d+ was refused during the TLS "
        rf"handshake: {zero_says}",
    )


@pytest.fixture(scope="module")
def authorities(tmp_path_factory):
    """By authority, the files of a node whose certificate it signed."""
    root = tmp_path_factory.mktemp("certificates")

    def openssl(*words):
        subprocess.run(["openssl", *words], check=True, capture_output=True, cwd=root)

    for name in ("ours", "theirs"):
        openssl(
            "req",
            "-x509",
            "-newkey",
            "ed25519",
            "-nodes",
            "-keyout",
            f"{name}-ca.key",
            "-out",
            f"{name}-ca.pem",
            "-subj",
            f"/CN={name}",
            "-days",
            "1",
        )
        openssl(
            "req",
            "-newkey",
            "ed25519",
            "-nodes",
            "-keyout",
            f"{name}.key",
            "-out",
            f"{name}.csr",
            "-subj",
            "/CN=a node",
        )
        openssl(
            "x509",
            "-req",
            "-in",
            f"{name}.csr",
            "-CA",
            f"{name}-ca.pem",
            "-CAkey",
            f"{name}-ca.key",
            "-CAcreateserial",
            "-out",
            f"{name}.pem",
            "-days",
            "1",
        )
    return {
        name: {
            "tls": "on",
            "tls_cert": str(root / f"{name}.pem"),
            "tls_key": str(root / f"{name}.key"),
            "tls_ca": str(root / f"{name}-ca.pem"),
        }
        for name in ("ours", "theirs")
    }


def test_nodes_with_certificates_of_one_authority_form_a_job(
    binary, folder, alone, tmp_path, authorities
):
    run = Nodes(
        binary,
        folder,
        3,
        {**BASE, "epochs": 3, "start_timeout": "60s", **authorities["ours"]},
        1,
        tmp_path,
    )
    said, status = run.end()
    assert status == 0, "".join(run.other)
    assert streams(said) == alone, "".join(run.other)
    assert all(value["tiers"]["peer"] > 0 for value in said.values())


def test_a_certificate_of_another_authority_is_refused(binary, folder, tmp_path, authorities):
    said = start(
        binary,
        folder,
        tmp_path,
        2,
        {},
        {0: authorities["ours"], 1: {**authorities["theirs"], "start_timeout": "60s"}},
        [0, 1],
    )
    check(
        said[1],
        "ConfigError",
        r"failed: that node's certificate was rejected: x509: certificate signed by unknown "
        r"authority",
    )
    check(
        said[0],
        "ConfigError",
        rf"refused: {IP}:\d+ was refused during the TLS handshake: that node rejected this one's "
        rf"certificate \(tls: bad certificate\)",
    )


def test_a_certificate_that_ones_own_authority_did_not_sign_is_refused(
    binary, folder, tmp_path, authorities
):
    """The error is raised before the node contacts any other."""
    options = {**BASE, **authorities["ours"], "tls_ca": authorities["theirs"]["tls_ca"]}
    run = Nodes(binary, folder, 2, options, 1, tmp_path)
    said, status = run.end()
    assert status == 1
    for value in said.values():
        check(
            value,
            "ConfigError",
            r'tls_cert = ".*/ours\.pem" is not trusted by tls_ca = ".*/theirs-ca\.pem": x509',
        )
