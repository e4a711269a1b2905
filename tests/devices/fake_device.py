"""A device that does not exist, and what is done to it.

No GPU, no CUDA build, no compiler. Three parts of torch together do it:

- a device registered from Python, on which autograd works as on any other;
- `FakeTensorMode`, whose tensors have shape, type and device, but no memory: what mixes devices
  raises, as it would;
- `Watch`, which sees every operator of a step and notes launches, waits of the host, copies between
  host and device and what is computed on the host. It refuses what GPUs refuse or do slowly and
  shapes alone let pass: products of two types of numbers, complex numbers of bfloat16, float64.

The registration is for the whole process and cannot be undone: import it in one of its own.
"""

import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils import backend_registration
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

aten = torch.ops.aten
DEVICE = "fakegpu"
PROJECT = "/lsm_core/"


class _Backend(backend_registration._DummyBackendModule):
    """What torch asks `torch.<device>` for."""

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]


backend_registration._setup_privateuseone_for_python_backend(DEVICE, backend_module=_Backend())

# Mixed precision by CUDA's lists of operators: these in bfloat16, those in float32, of the last
# kind in the widest type given. Out variants are on no list, there as here.
_LOWER = (
    *("mm", "bmm", "addmm", "baddbmm", "mv", "matmul", "linear", "convolution"),
    *("conv1d", "conv2d", "conv3d"),
    *("conv_transpose1d", "conv_transpose2d.input", "conv_transpose3d.input"),
)
_FLOAT32 = (
    *("_softmax", "_log_softmax", "native_layer_norm", "sum", "sum.dim_IntList", "softplus"),
    *("linalg_vector_norm", "pow.Tensor_Scalar", "exp", "log", "cumsum", "rsqrt"),
)
_WIDEST = ("cat", "stack", "addcmul", "addcdiv", "atan2")
_KEY = torch._C.DispatchKey.AutocastPrivateUse1
_others = torch.library.Library("_", "IMPL", "AutocastPrivateUse1")
_others.fallback(torch.library.fallthrough_kernel)
_listed = torch.library.Library("aten", "IMPL", "AutocastPrivateUse1")


def _cast(name: str, to: torch.dtype | None) -> None:
    packet, _, overload = name.partition(".")
    operator = getattr(getattr(aten, packet), overload or "default")

    def kernel(*args: Any, **kwargs: Any) -> Any:
        leaves = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        floats = {t.dtype for t in leaves if t.dtype in (torch.bfloat16, torch.float32)}
        dtype = to or (torch.float32 if torch.float32 in floats else torch.bfloat16)

        def changed(leaf: Any) -> Any:
            is_float = isinstance(leaf, Tensor) and leaf.dtype in floats
            return leaf.to(dtype) if is_float else leaf

        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(_KEY)):
            return operator(*tree_map(changed, args), **tree_map(changed, kwargs))

    _listed.impl(name, kernel)


for _names, _dtype in ((_LOWER, torch.bfloat16), (_FLOAT32, torch.float32), (_WIDEST, None)):
    for _name in _names:
        _cast(_name, _dtype)

_VALUES = {aten._local_scalar_dense.default, aten.nonzero.default, aten.equal.default}
_COPIES = {aten._to_copy.default, aten.copy_.default}
_PRODUCTS = {
    *(aten.mm.default, aten.mm.out, aten.bmm.default, aten.addmm.default, aten.addmm.out),
    *(aten.addmm_.default, aten.baddbmm.default, aten.baddbmm_.default),
    *(aten.convolution.default, aten.convolution_backward.default),
}
_ONE_TYPE = _PRODUCTS | {aten._softmax_backward_data.default}
_NO_KERNEL = {
    *(aten.detach.default, aten.alias.default, aten.empty.memory_format, aten.empty_like.default),
    *(aten.empty_strided.default, aten.new_empty.default, aten.new_empty_strided.default),
    *(aten._unsafe_view.default, aten.lift_fresh.default),
}
_DOUBLE = (torch.float64, torch.complex128)


@dataclass
class Seen:
    """What one step did on the device and beside it; places are lines of the project."""

    launches: int = 0
    waits: Counter[str] = field(default_factory=Counter)
    uploads: Counter[str] = field(default_factory=Counter)
    downloads: Counter[str] = field(default_factory=Counter)
    on_host: Counter[str] = field(default_factory=Counter)
    products: Counter[str] = field(default_factory=Counter)
    """Products of matrices and convolutions by the type of their result."""
    operators: Counter[str] = field(default_factory=Counter)
    """Launches by operator."""
    bytes: int = 0
    """Read and written by all launches, as if there were no cache."""


class Watch(TorchDispatchMode):
    """Notes what is done to tensors. A value that is read is 1."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = Seen()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.prim.device.default:
            return func(*args, **kwargs)
        given = _tensors((args, kwargs))
        if func in _VALUES and any(map(_on_device, given)):
            self.seen.waits[f"{func} {_line()}"] += 1
        if func is aten._local_scalar_dense.default and isinstance(args[0], FakeTensor):
            return 1.0 if args[0].dtype.is_floating_point else 1
        _refuse_mixed_types(func, given)
        result = func(*args, **kwargs)
        self._note(func, args, given, _tensors(result))
        return result

    def _note(self, func: Any, args: Any, given: list[Tensor], made: list[Tensor]) -> None:
        seen = self.seen
        _refuse_double(func, made)
        if func in _COPIES:
            source, target = (args[0], made[0]) if func is aten._to_copy.default else args[1::-1]
            what = f"{tuple(source.shape)} {source.dtype} {_line()}"
            if _on_device(target) and not _on_device(source):
                seen.uploads[what] += 1
            if _on_device(source) and not _on_device(target):
                seen.downloads[what] += 1
        if func.is_view or func in _NO_KERNEL:
            return
        if any(map(_on_device, (*given, *made))):
            seen.launches += 1
            seen.operators[str(func).removeprefix("aten.")] += 1
            if func in _PRODUCTS and made:
                seen.products[str(made[0].dtype).removeprefix("torch.")] += 1
            touched = {id(tensor): tensor for tensor in (*given, *made)}.values()
            seen.bytes += sum(t.numel() * t.element_size() for t in touched if _on_device(t))
        elif made:
            seen.on_host[f"{func} {_line()}"] += 1


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def _refuse_mixed_types(func: Any, given: list[Tensor]) -> None:
    kinds = {t.dtype for t in given if t.dtype.is_floating_point or t.dtype.is_complex}
    if func in _ONE_TYPE and len(kinds) > 1:
        raise TypeError(f"{func} of {' and '.join(sorted(map(str, kinds)))}")
    if func is aten.complex.default and torch.bfloat16 in kinds:
        raise TypeError(f"{func} of torch.bfloat16")


def _refuse_double(func: Any, made: list[Tensor]) -> None:
    """GPUs are slow in float64 or, as Apple's, do not have it."""
    if any(tensor.dtype in _DOUBLE and _on_device(tensor) for tensor in made):
        raise TypeError(f"{func} makes float64 on the device")


def _on_device(tensor: Tensor) -> bool:
    return tensor.device.type == DEVICE


def _line() -> str:
    """Return the innermost lines of the project that led here."""
    frames = [frame for frame in traceback.extract_stack() if PROJECT in frame.filename]
    return " < ".join(
        f"{frame.filename.rpartition(PROJECT)[2]}:{frame.lineno}" for frame in reversed(frames[-3:])
    )


def onto_device(module: nn.Module, *_: Any, **__: Any) -> nn.Module:
    """Stand in for `module.to(device)`, which cannot put a fake tensor in place of a real one.

    As `to` does, it brings parameters and buffers. A tensor that a module keeps as a plain
    attribute stays behind, and the first operator that mixes it in raises.
    """
    for part in module.modules():
        for name, value in part._parameters.items():
            if value is not None:
                part._parameters[name] = nn.Parameter(_moved(value), value.requires_grad)
        for name, value in part._buffers.items():
            if value is not None:
                part._buffers[name] = _moved(value)
    return module


def _moved(value: Tensor) -> Tensor:
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=DEVICE)


@contextmanager
def fake_device() -> Iterator[None]:
    """Let tensors of this block have no memory, and modules move to the device that is none."""
    with ExitStack() as stack:
        # So that torch.tensor(..., device=...) makes a tensor of the host and brings it over.
        stack.enter_context(patch.object(FakeTensorMode, "avoid_device_init", True))
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        stack.enter_context(patch("torch.nn.Module.to", onto_device))
        # torch takes its fused ways for plain tensors only; let fakes count as such.
        for name in ("_has_foreach_support", "_device_has_foreach_support"):
            stack.enter_context(patch(f"torch.nn.utils.clip_grad.{name}", lambda *_: True))
        yield
