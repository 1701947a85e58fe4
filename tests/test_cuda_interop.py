"""Arrays of PyTorch, CuPy and JAX on a device, played by classes that answer as theirs do.

They have the libraries' own words, and none that the libraries lack: a call that asks for anything
else fails.
"""

import sys
import types
from contextlib import contextmanager

import numpy as np
import pytest
from fake_driver import FakeArray
from fake_gpu import LEGACY, WEIGHTS, convolve, emulator, gradient, pool

from numba_gradops._warmup import dtype_named


class Tensor(FakeArray):
    """Answers as a CUDA tensor of PyTorch that requires a gradient does."""

    __module__ = "torch"

    def __init__(self, driver, content, device=0):
        super().__init__(driver, content, device)
        self.device = types.SimpleNamespace(index=device)
        self.numpy_dtype = self.dtype
        self.dtype = f"torch.{self.numpy_dtype.name}"

    @property
    def __cuda_array_interface__(self):
        raise RuntimeError("Can't get __cuda_array_interface__ on Variable that requires grad.")

    def __dlpack_device__(self):
        return (2, self.device.index)

    def data_ptr(self):
        return self.address

    def stride(self):
        return tuple(int(np.prod(self.shape[i + 1 :])) for i in range(len(self.shape)))

    def to_host(self):
        self.dtype = self.numpy_dtype
        return super().to_host()


# FakeArray's initialiser needs the interface of the class it is for.
Tensor.dtype = None


@pytest.mark.nvvm
@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_pytorch_tensors_give_a_tensor_on_their_current_stream(name, driver, monkeypatch):
    driver.execute = emulator()
    dtype = dtype_named(name)

    def empty(shape, dtype, device):
        assert dtype == f"torch.{name}"
        return Tensor(driver, np.zeros(shape, dtype_named(name)), device.index)

    def current_stream(device):
        return types.SimpleNamespace(cuda_stream=40 + device)

    torch = types.SimpleNamespace(
        empty=empty, cuda=types.SimpleNamespace(current_stream=current_stream)
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    result = pool(Tensor(driver, gradient(dtype), device=1))
    assert type(result) is Tensor
    assert driver.launches[-1].stream == 41
    assert (result.to_host() == pool(gradient(dtype))).all()
    with pytest.raises(ValueError, match="out_backprop must be a host array for device='cpu'"):
        pool(Tensor(driver, gradient(dtype)), device="cpu")


class Ndarray(FakeArray):
    """Answers as an array of CuPy does."""

    __module__ = "cupy"

    def __init__(self, driver, content, device=0):
        super().__init__(driver, content, device)
        self.device = types.SimpleNamespace(id=device)
        self.data = types.SimpleNamespace(ptr=self.address)
        self.itemsize = self.dtype.itemsize
        self.strides = np.empty(self.shape, self.dtype).strides

    def __dlpack_device__(self):
        return (2, self.device.id)

    def __dlpack__(self, **_):
        raise AssertionError("CuPy's own words say more: its current stream")


@pytest.fixture
def cupy(driver, monkeypatch):
    """Give the part of CuPy that is needed: its current device, and a stream of each device."""
    now = [0]

    @contextmanager
    def device(number):
        now.append(number)
        yield
        now.pop()

    def current_stream():
        return types.SimpleNamespace(ptr=60 + now[-1])

    def empty(shape, dtype):
        return Ndarray(driver, np.full(shape, -77).astype(dtype), now[-1])

    cuda = types.SimpleNamespace(Device=device, get_current_stream=current_stream)
    monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace(cuda=cuda, empty=empty))


@pytest.mark.nvvm
@pytest.mark.usefixtures("cupy")
def test_cupy_arrays_give_one_on_the_current_stream_of_their_device(driver):
    driver.execute = emulator()
    result = pool(Ndarray(driver, gradient(), 1))
    assert type(result) is Ndarray
    assert result.device.id == 1
    assert driver.launches[-1].stream == 61
    assert (result.to_host() == pool(gradient())).all()
    waits = [entry for entry in driver.log if entry[0] in {"wait", "synchronize", "download"}]
    assert not waits


@pytest.mark.nvvm
@pytest.mark.usefixtures("cupy")
def test_out_of_cupy_is_written_in_place_and_views_are_refused(driver):
    driver.execute = emulator()
    array = Ndarray(driver, gradient())
    out = Ndarray(driver, np.zeros((2, 6, 6, 4), np.float32))
    assert pool(array, out=out) is out
    assert (out.to_host() == pool(gradient())).all()
    array.strides = array.strides[::-1]
    with pytest.raises(ValueError, match="out_backprop must be contiguous"):
        pool(array)


@pytest.mark.nvvm
@pytest.mark.usefixtures("cupy")
def test_arrays_of_two_libraries_wait_for_each_other_on_the_device(driver):
    driver.execute = emulator()
    result = convolve(FakeArray(driver, WEIGHTS, stream=9), Ndarray(driver, gradient()))
    assert type(result) is Ndarray
    assert (result.to_host() == convolve(WEIGHTS, gradient())).all()
    assert ("wait", 60, 9) in driver.log
    assert ("wait", 9, 60) in driver.log
    assert ("synchronize", 60) not in driver.log


class ArrayImpl(FakeArray):
    """Answers as an array of JAX does: it is immutable, and knows no stream of its own."""

    __module__ = "jaxlib._jax"

    def __dlpack_device__(self):
        return (2, self.driver.owner(self.address))

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        assert stream == LEGACY, "JAX has this stream wait for the array"
        assert max_version is dl_device is copy is None
        from numba_gradops.cuda import _dlpack

        exporter = _dlpack.Exporter(
            self, self.address, self.shape, self.dtype.name, self.__dlpack_device__()
        )
        return exporter.__dlpack__()


@pytest.fixture
def jax(driver, monkeypatch):
    """Give the part of JAX that is needed, and note what it takes over."""
    taken = []

    def from_dlpack(external):
        from numba_gradops.cuda import _dlpack

        assert external.__dlpack_device__()[0] == 2
        facts = _dlpack.read(external.__dlpack__(stream=LEGACY))
        # What JAX takes over is complete: it orders nothing behind the stream of others.
        assert driver.log[-1] == ("synchronize", LEGACY)
        taken.append(facts)
        made = ArrayImpl.__new__(ArrayImpl)
        made.driver, made.address, made.shape = driver, facts.address, facts.shape
        made.dtype, made.stream, made.read_only, made.strides = (
            dtype_named(facts.dtype), None, True, None
        )  # fmt: skip
        made.owner = external
        return made

    module = types.SimpleNamespace(dlpack=types.SimpleNamespace(from_dlpack=from_dlpack))
    monkeypatch.setitem(sys.modules, "jax", module)
    return taken


@pytest.mark.nvvm
@pytest.mark.parametrize("name", ["float32", "bfloat16", "int64"])
def test_jax_arrays_give_one_that_is_complete(name, driver, jax):
    driver.execute = emulator()
    dtype = dtype_named(name)
    result = pool(ArrayImpl(driver, gradient(dtype), 1))
    assert type(result) is ArrayImpl
    assert [(facts.shape, facts.dtype, facts.device) for facts in jax] == [((2, 6, 6, 4), name, 1)]
    assert driver.launches[-1].stream == LEGACY
    assert (result.to_host() == pool(gradient(dtype))).all()


@pytest.mark.usefixtures("jax")
def test_jax_arrays_are_not_written(driver):
    array = ArrayImpl(driver, gradient())
    out = ArrayImpl(driver, np.zeros((2, 6, 6, 4), np.float32))
    with pytest.raises(ValueError, match="out must be writeable, got a read-only array"):
        pool(array, out=out)
    assert not driver.launches


@pytest.mark.usefixtures("jax")
def test_an_array_that_cannot_be_exported_is_a_type_error_that_says_why(driver, monkeypatch):
    def refuse(*_, **__):
        raise BufferError(
            "to_dlpack can only pack a dlpack tensor from an array on a singular device"
        )

    monkeypatch.setattr(ArrayImpl, "__dlpack__", refuse)
    with pytest.raises(TypeError, match=r"out_backprop could not be read.*singular device"):
        pool(ArrayImpl(driver, gradient()))


@pytest.mark.usefixtures("jax")
@pytest.mark.parametrize(
    ("code", "bits", "lanes", "named"),
    [
        (2, 8, 1, "type 2 of 8 bits"),
        (0, 4, 1, "type 0 of 4 bits"),
        (9, 8, 1, "type 9 of 8 bits"),
        (2, 32, 4, "32 bits and 4 lanes"),
        (5, 64, 1, "complex64"),
        (6, 8, 1, "bool"),
    ],
)
def test_a_type_that_only_dlpack_knows_is_named(driver, monkeypatch, code, bits, lanes, named):
    from numba_gradops.cuda import _dlpack

    export = ArrayImpl.__dlpack__

    def export_another(self, **options):
        capsule = export(self, **options)
        address = _dlpack._get_pointer(capsule, b"dltensor")
        _dlpack._Managed.from_address(address).tensor.dtype = _dlpack._DataType(code, bits, lanes)
        return capsule

    monkeypatch.setattr(ArrayImpl, "__dlpack__", export_another)
    with pytest.raises(TypeError, match=f"out_backprop must .*{named}"):
        pool(ArrayImpl(driver, gradient()))
