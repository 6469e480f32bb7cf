"""What a service manager is told: datagrams to the socket in NOTIFY_SOCKET, as by sd_notify(3)."""

import logging
import socket
from collections.abc import Mapping

logger = logging.getLogger(__name__)
VARIABLE = "NOTIFY_SOCKET"


class ServiceManager:
    """Whoever started this process and wants to know how it is; nobody, without an address."""

    def __init__(self, env: Mapping[str, str]) -> None:
        address = env.get(VARIABLE, "")
        self._address = "\0" + address[1:] if address.startswith("@") else address  # abstract

    def tell(self, **facts: str) -> None:
        """Such as READY="1", STATUS="serving", WATCHDOG="1". A failure is logged, no more."""
        if not self._address:
            return
        lines = "\n".join(f"{name}={value}" for name, value in facts.items())
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.setblocking(False)
                sender.sendto(lines.encode(), self._address)
        except OSError as error:
            logger.warning("the service manager could not be told %s: %s", ", ".join(facts), error)
