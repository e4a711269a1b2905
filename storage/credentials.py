"""User names and passwords in addresses: recognised, and left out of what is shown and kept."""

import re
from urllib.parse import ParseResult, urlparse

_TORN = re.compile(
    r"(?<=://)"
    r"(?!(?:\[[^\]\s]*\]|[^\s:/?#@\[\]]*)(?::\d{1,5})?(?:[/?#\s]|$))"  # a host, perhaps a port
    r"[^\s/?#@:]*:[^\s/?#@]*[/?#]\S*@"
)
"""User and password that hold a / ? or #, so that by the rules of addresses the host ends there."""
_USER = re.compile(r"(?<=://)[^/?#\s@]*(?:@[^/?#\s@]*)*@")
_QUERY = re.compile(r"(?<=[?&])(user|username|password)=[^&#\s]*&?")


def without_credentials(text: str) -> str:
    """Return an address, or a text with addresses, without the names and passwords in them."""
    return _QUERY.sub("", _USER.sub("", _TORN.sub("", text)))


def has_password(address: str) -> bool:
    """Return whether an address holds a password before its host."""
    host = re.split("[/?#]", address.partition("://")[2], maxsplit=1)[0]
    return ":" in host.rpartition("@")[0] or bool(_TORN.search(address))


def split_address(address: str) -> ParseResult:
    """Return the parts of an address; ValueError, which does not show it, if they are torn."""
    try:
        parts = urlparse(address)
        is_torn = "#" in address or "@" in parts.path + parts.query or parts.netloc.count("@") > 1
    except ValueError:
        is_torn = True
    if is_torn:
        # Not `from` the parser's error, which shows what it was given.
        raise ValueError(
            "cannot be read as an address: write the characters / ? # @ [ ] of a user or a "
            "password percent-encoded, as %2F %3F %23 %40 %5B %5D"
        ) from None
    return parts
