"""No password of a database URL is printed or stored: what may be, in its place."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from urllib.parse import unquote, unquote_plus

import sqlalchemy as sa
from sqlalchemy.engine import make_url

HIDDEN = "***"
LEFT_OUT = (
    "the driver's words are left out, part of the password may be among them; write @ : / ? # & and the like in a "
    "password as %40 %3A %2F %3F %23 %26"
)
_COLON, _AT = re.compile(":|%3a", re.IGNORECASE), re.compile("@|%40")
_NO_PORT = re.compile(r"[^/?:\[]*:(?!\d+(?:[/?]|$))([^/?]+)")  # what stands where a port would, and is no number
_OPTION = re.compile(r"(?:^|[?&\s])([^=&?\s]*)=")
_SECRET_OPTIONS = ("pass", "secret", "token")
_SHORT = 4  # a word this short is in any message, and replacing it would only point at it


def redacted(text: str) -> str:
    """A path or URL as it may be printed and stored: without its password.

    It goes by the characters, not by a parser, which would take the end of a password with an @ in it for a host.
    """
    parts, last = [], 0
    for start, stop in _secrets(text):
        parts += [text[last:start], HIDDEN]
        last = stop
    return "".join([*parts, text[last:]])


def redacted_arguments(arguments: Sequence[str]) -> list[str]:
    """The arguments of a command without the passwords of the URLs among them."""
    before = ["", *arguments]
    return [
        redacted(own) if "://" in own or own.startswith("--db=") or previous == "--db" else own
        for previous, own in zip(before, arguments, strict=False)
    ]


def redacted_command(command: str) -> str:
    """A command line, quoted for a shell, without the passwords in it; where there is none, as it is."""
    try:
        arguments = shlex.split(command)
    except ValueError:
        return redacted(command) if "://" in command or "--db" in command else command
    safe = redacted_arguments(arguments)
    return command if safe == arguments else shlex.join(safe)


def without_passwords(text: str, arguments: Sequence[str]) -> str:
    """Some text, such as an error or a traceback, without the passwords of the URLs among a command's arguments."""
    for given, safe in zip(arguments, redacted_arguments(arguments), strict=True):
        if given != safe:
            for form in (given, repr(given)[1:-1]):
                text = text.replace(form, safe)
            for form in _forms(given):
                text = text.replace(form, HIDDEN)
    return text


def reason_of(error: BaseException, text: str) -> str:
    """The first line of what a driver says about the database at `text`, without its password."""
    if not _read_as_written(text):
        return LEFT_OUT
    said = str(getattr(error, "orig", None) or error)
    for form in _forms(text):
        said = said.replace(form, HIDDEN)
    return (said.strip() or type(error).__name__).splitlines()[0]


def cause_of(error: BaseException, text: str) -> BaseException | None:
    """The error itself, for a traceback, unless the password of the database at `text` may be in its words."""
    return error if _read_as_written(text) and not any(form in str(error) for form in _forms(text)) else None


def _forms(text: str) -> list[str]:
    """The ways in which a driver may write the password, the longest first."""
    secrets = [text[start:stop] for start, stop in _secrets(text)]
    forms = {form for secret in secrets for form in (secret, unquote(secret), unquote_plus(secret))}
    forms |= {repr(form)[1:-1] for form in forms}
    return sorted((form for form in forms if len(form) >= _SHORT and form not in redacted(text)), key=len, reverse=True)


def _read_as_written(text: str) -> bool:
    """Whether a driver is given the password that stands in the URL: else it may quote part of it as something else."""
    secrets = [text[start:stop] for start, stop in _secrets(text)]
    if not secrets:
        return True
    try:
        url = make_url(text)
    except (sa.exc.ArgumentError, ValueError):
        return False
    given = [url.password, *url.query.values()]
    return len(secrets) == 1 and (unquote(secrets[0]) == url.password or unquote_plus(secrets[0]) in given)


def _secrets(text: str) -> list[tuple[int, int]]:
    """Where passwords stand: from the first colon of the user part to the last @, and from ?password= on."""
    first = text.find(":")
    user_part = first + 3 if text[first:].startswith("://") else 0
    colons = [found.end() for found in _COLON.finditer(text, user_part)]
    ends = [found.start() for found in _AT.finditer(text, user_part)]
    no_port = _NO_PORT.match(text, user_part) if user_part and not ends else None
    if colons and ends and colons[0] < ends[-1]:
        found = [(colons[0], ends[-1])]
    else:
        found = [(no_port.start(1), len(text))] if no_port else []
    for option in _OPTION.finditer(text):
        if any(word in unquote_plus(option[1]).lower() for word in _SECRET_OPTIONS) and option.end() < len(text):
            if found and option.end() <= found[0][1]:
                return [(min(found[0][0], option.end()), len(text))]
            return [*found, (option.end(), len(text))]
    return found
