"""A proxy between a controller and a replica that can be cut: a network that fails, with both ends alive."""

import socket
import threading
from contextlib import suppress


class Proxy:
    """Passes bytes on to ``target`` while it is whole."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._whole = threading.Event()
        self._whole.set()
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Ends every connection and refuses new ones."""
        self._whole.clear()
        with self._lock:
            ending, self._open = self._open, set()
        for one in ending:
            _end(one)

    def heal(self) -> None:
        self._whole.set()

    def close(self) -> None:
        self.cut()
        _end(self._listener)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            if not self._whole.is_set():
                _end(near)
                continue
            try:
                far = socket.create_connection(self._target)
            except OSError:
                _end(near)
                continue
            with self._lock:
                self._open |= {near, far}
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=_pass_on, args=(source, sink), daemon=True).start()


def _pass_on(source: socket.socket, sink: socket.socket) -> None:
    try:
        while heard := source.recv(65536):
            sink.sendall(heard)
    except OSError:
        pass
    finally:
        _end(source)
        _end(sink)


def _end(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
