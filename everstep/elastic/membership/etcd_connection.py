"""Connections to etcd: addresses, TLS, and sockets that detect a dead peer."""

import contextlib
import http.client
import socket
import ssl
from dataclasses import dataclass, field
from pathlib import Path

from everstep.catalog.addresses import etcd_address
from everstep.errors import EverstepError


@dataclass(frozen=True, kw_only=True)
class EtcdOptions:
    """Address of etcd, credentials and timeout.

    Attributes:
        endpoints: `host:port` of one or more members or of a service in front of them.
        tls: whether to use TLS even without a CA certificate.
        certificate_authority: path of a PEM file; also enables TLS.
        certificate: path of the client's certificate; also enables TLS.
        key: path of the certificate's private key.
        user: name for etcd's own authentication.
        password_file: path of a file with the password of that user.
        retry_seconds: time for which a call is retried before it raises.
    """

    endpoints: tuple[str, ...]
    tls: bool = False
    certificate_authority: str | None = None
    certificate: str | None = None
    key: str | None = field(default=None, repr=False)
    user: str | None = None
    password_file: str | None = None
    retry_seconds: float = 600.0


@dataclass(frozen=True)
class EtcdAddress:
    """One address that may respond; `name` is the host name that its certificate must match."""

    name: str
    address: str
    port: int


_KEEPALIVE = {
    socket.TCP_USER_TIMEOUT: 5000,  # milliseconds
    socket.TCP_KEEPIDLE: 2,  # seconds
    socket.TCP_KEEPINTVL: 1,
    socket.TCP_KEEPCNT: 3,
}


class Connection(http.client.HTTPConnection):
    """An HTTP connection to a resolved address that detects a dead peer."""

    def __init__(self, target: EtcdAddress, context: ssl.SSLContext | None, timeout: float) -> None:
        super().__init__(target.address, target.port, timeout=timeout)
        self._target, self._context = target, context

    def connect(self) -> None:
        """Open the socket, with TLS if configured.

        The socket is wrapped before it connects: if a connected socket is reset during the wrapping, `ssl.SSLSocket`
        raises before it is returned, and the caller could not close it.
        """
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        self.sock = socket.socket(family, socket.SOCK_STREAM)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        # A watch only receives: without these options it would not detect a dead peer.
        for option, value in _KEEPALIVE.items():
            self.sock.setsockopt(socket.IPPROTO_TCP, option, value)
        if self._context:
            self.sock = self._context.wrap_socket(self.sock, server_hostname=self._target.name)
        self.sock.settimeout(self.timeout)
        self.sock.connect((self.host, self.port))

    def interrupt(self) -> None:
        """End a pending read in another thread, as if the peer had closed the connection."""
        if sock := self.sock:  # read once: the other thread may close the connection at any moment
            with contextlib.suppress(OSError):  # it is closed already
                sock.shutdown(socket.SHUT_RDWR)


def check_files(options: EtcdOptions) -> None:
    """Check the files of the options: an error in a later call would count as an etcd that does not respond.

    Raises:
        EverstepError: the certificates, the key or the password cannot be used.
    """
    try:
        tls_context(options)
    except OSError as error:
        paths = filter(None, (options.certificate_authority, options.certificate, options.key))
        raise EverstepError(
            f"the TLS files for etcd cannot be used: {', '.join(paths)}: {error}",
            "Use readable PEM files, with the private key of the certificate.",
        ) from error
    try:
        password(options)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise EverstepError(
            f"the password for etcd cannot be read from {options.password_file}: {reason}",
            "Write the password to that file as text that this user can read.",
        ) from None  # the other error quotes a byte of the password


def password(options: EtcdOptions) -> str:
    """Return the current password of the options, empty without a file; it may be replaced while a run continues.

    Raises:
        OSError: the file cannot be read.
        UnicodeDecodeError: the file is not UTF-8 text.
    """
    if not options.password_file:
        return ""
    return Path(options.password_file).read_text(encoding="utf-8").strip()


def tls_context(options: EtcdOptions) -> ssl.SSLContext | None:
    """Return the TLS context of the options, with the current content of the files; None without TLS.

    Raises:
        OSError: a file cannot be read, is not PEM, or the key does not belong to the certificate.
    """
    if not (options.tls or options.certificate_authority or options.certificate):
        return None
    context = ssl.create_default_context(cafile=options.certificate_authority)
    if options.certificate:
        context.load_cert_chain(options.certificate, options.key)
    return context


def resolve(endpoints: tuple[str, ...]) -> tuple[EtcdAddress, ...]:
    """Return every address of the endpoints.

    Raises:
        OSError: no endpoint has an address.
    """
    targets: list[EtcdAddress] = []
    failure: OSError | None = None
    for endpoint in endpoints:
        host, port = etcd_address(endpoint)
        try:
            addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            failure = failure or error
            continue
        targets += [
            EtcdAddress(host, str(address[0]), int(address[1])) for *_, address in addresses
        ]
    if not targets:
        raise failure or OSError(f"no address for {endpoints}")
    return tuple(dict.fromkeys(targets))
