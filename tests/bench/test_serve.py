"""What `bench serve` answers: the files of its folder, to this machine, under this machine's own name."""

from __future__ import annotations

import functools
import http.client
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.support.file_server import FilesOfFolder


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    folder = tmp_path / "site"
    (folder / "pages").mkdir(parents=True)
    (folder / "index.html").write_text("the page")
    (folder / "pages" / "one.html").write_text("another")
    (tmp_path / "secret.txt").write_text("secret")
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    (folder / "up").symlink_to(tmp_path)
    handler = functools.partial(FilesOfFolder, directory=str(folder.resolve()))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def answer(port: int, path: str, host: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", path, headers={"Host": host})
    response = connection.getresponse()
    return response.status, response.read().decode()


@pytest.mark.parametrize("path", ["/", "/index.html", "/pages/one.html"])
@pytest.mark.parametrize("host", ["127.0.0.1:{port}", "localhost:{port}"])
def test_files_are_shown_to_this_machine(port: int, path: str, host: str) -> None:
    assert answer(port, path, host.format(port=port))[0] == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1.evil.example", "", "127.0.0.1:1"])
def test_other_host_names_get_nothing(port: int, host: str) -> None:
    status, text = answer(port, "/index.html", host.format(port=port))
    assert status == 421
    assert "the page" not in text


@pytest.mark.parametrize("path", ["/link.txt", "/up/secret.txt", "/up/", "/../secret.txt", "/%2e%2e/secret.txt"])
def test_nothing_outside_the_folder_is_shown(port: int, path: str) -> None:
    status, text = answer(port, path, f"127.0.0.1:{port}")
    assert status == 404
    assert "secret" not in text
