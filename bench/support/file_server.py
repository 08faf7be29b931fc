"""Shows the files of one folder to this machine's browser, and nothing else to nobody else."""

from __future__ import annotations

import http.server
import os
from http import HTTPStatus
from typing import Any

OWN_NAMES = ("127.0.0.1", "localhost")


class FilesOfFolder(http.server.SimpleHTTPRequestHandler):
    """Answers only to this machine's own name, and follows no symbolic link.

    A page from elsewhere whose host name is made to point here would otherwise read everything that is served.
    """

    def send_head(self) -> Any:
        if not self._asked_for_here():
            self.send_error(HTTPStatus.MISDIRECTED_REQUEST, "this server answers to 127.0.0.1 and localhost only")
            return None
        path = os.path.abspath(self.translate_path(self.path))
        if os.path.realpath(path) != path:
            self.send_error(HTTPStatus.NOT_FOUND, "File not found")
            return None
        return super().send_head()

    def _asked_for_here(self) -> bool:
        port = self.server.server_address[1]  # type: ignore[index]
        return self.headers.get("Host") in {f"{name}{end}" for name in OWN_NAMES for end in ("", f":{port}")}
