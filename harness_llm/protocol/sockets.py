"""What has arrived at a socket."""

from collections.abc import Iterator

import zmq


def arrived(socket: "zmq.Socket[bytes]") -> Iterator[list[bytes]]:
    """The messages that are there, part by part; waits for none.

    To ask first is a third of what it costs to be refused, as pyzmq raises an exception then.
    """
    while int(socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
        yield socket.recv_multipart()
