"""A CUDA driver without a GPU: memory is host memory, and launches are written down.

Where the emulator and numba-cuda are there, kernels run in it as well: then whole calls can be
tried, from the public function to the bits of the result.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

_SPACING = 2**32  # an address tells its device


class Launch(NamedTuple):
    variant: Any
    grid: int
    block: int
    shared: int
    stream: int
    addresses: tuple[int, ...]


class FakeDriver(types.ModuleType):
    """Has the functions of `numba_gradops.cuda._driver`."""

    def __init__(self, devices: int = 2, execute: Callable[..., None] | None = None) -> None:
        super().__init__("numba_gradops.cuda._driver")
        self.devices = devices
        self.execute = execute
        self.memory: dict[int, np.ndarray] = {}
        self.stack = [0]
        self.log: list[tuple[Any, ...]] = []
        self.launches: list[Launch] = []
        self.functions: list[Any] = []
        self.pools = True
        self.is_done = True  # what events say
        self.uploads: list[tuple[int, weakref.ref[np.ndarray]]] = []
        self.largest = 2**28
        self._next = dict.fromkeys(range(devices), 0x1000)

    def count(self) -> int:
        return self.devices

    def capability(self, device: int) -> tuple[int, int]:  # noqa: ARG002 - as the driver's
        return (9, 0)

    def current(self) -> int:
        return self.stack[-1]

    @contextmanager
    def using(self, device: int):
        self.stack.append(device)
        try:
            yield
        finally:
            self.stack.pop()

    def owner(self, address: int) -> int:
        return address // _SPACING - 1

    def allocate(self, size: int) -> int:
        if size > self.largest:
            raise MemoryError("out of memory")
        device = self.stack[-1]
        address = (device + 1) * _SPACING + self._next[device]
        self._next[device] += -(-size // 256) * 256 + 4096
        self.memory[address] = np.full(size, 0xFF, np.uint8)
        return address

    def free(self, address: int) -> None:
        del self.memory[address]

    def allocate_on(self, stream: int, size: int) -> int:
        self.log.append(("allocate", stream))
        return self.allocate(size)

    def free_on(self, stream: int, address: int) -> None:
        self.log.append(("free", stream))
        self.free(address)

    def has_pools(self, device: int) -> bool:  # noqa: ARG002 - as the driver's
        return self.pools

    def bytes_at(self, address: int, size: int | None = None) -> np.ndarray:
        """Find the memory of an address; memory on another device than the one in use is none."""
        for start, content in self.memory.items():
            if start <= address < start + max(content.size, 1):
                at = address - start
                return content[at : None if size is None else at + size]
        raise AssertionError(f"no memory at {address:#x}")

    def upload(self, address: int, array: np.ndarray, stream: int) -> None:
        assert array.flags.c_contiguous
        self.log.append(("upload", stream))
        self.uploads.append((stream, weakref.ref(array)))
        self.bytes_at(address, array.nbytes)[:] = np.frombuffer(array.tobytes(), np.uint8)

    def finish_uploads(self, stream: int) -> None:
        """Do what a stream may do late: read the host's arrays."""
        for of, array in self.uploads:
            assert of != stream or array() is not None, "freed before the stream had copied it"
        self.uploads = [upload for upload in self.uploads if upload[0] != stream]

    def download(self, array: np.ndarray, address: int, stream: int) -> None:
        assert array.flags.c_contiguous
        self.log.append(("download", stream))
        content = self.bytes_at(address, array.nbytes)
        array.reshape(-1).view(np.uint8)[:] = content

    def own_stream(self, device: int) -> int:
        return 1000 + device

    def synchronize(self, stream: int) -> None:
        self.log.append(("synchronize", stream))
        self.finish_uploads(stream)

    def synchronize_all(self) -> None:
        self.log.append(("synchronize all",))

    def wait(self, stream: int, other: int) -> None:
        self.log.append(("wait", stream, other))

    def record(self, stream: int) -> Any:
        self.log.append(("record", stream))
        return ("event", stream)

    def has_happened(self, event: Any) -> bool:
        if self.is_done:
            self.finish_uploads(event[1])
        return self.is_done

    def load(self, image: Any, name: str) -> int:  # noqa: ARG002 - as the driver's
        self.functions.append(image)
        return len(self.functions) - 1

    def launch(self, function, grid, block, shared, stream, addresses) -> None:
        for address in addresses:
            assert self.owner(address) == self.stack[-1], "memory of another device"
        made = Launch(self.functions[function], grid, block, shared, stream, tuple(addresses))
        self.log.append(("launch", stream))
        self.launches.append(made)
        if self.execute is not None:
            self.execute(made, [self.bytes_at(address) for address in addresses])


class FakeArray:
    """An array in a fake device's memory, with `__cuda_array_interface__` alone."""

    def __init__(self, driver, content, device=0, stream=None, read_only=False, offset=0) -> None:
        content = np.ascontiguousarray(content)
        with driver.using(device):
            self.address = driver.allocate(content.nbytes + offset + 16) + offset
        self.driver, self.shape, self.dtype = driver, content.shape, content.dtype
        self.stream, self.read_only, self.strides = stream, read_only, None
        driver.bytes_at(self.address, content.nbytes)[:] = content.reshape(-1).view(np.uint8)

    @property
    def __cuda_array_interface__(self):
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.address, self.read_only),
            "strides": self.strides,
            "stream": self.stream,
            "version": 3,
        }

    def __array__(self, *_, **__):
        raise AssertionError("an array on a device was copied to the host")

    def to_host(self) -> np.ndarray:
        size = self.dtype.itemsize * int(np.prod(self.shape))
        return self.driver.bytes_at(self.address, size).copy().view(self.dtype).reshape(self.shape)
