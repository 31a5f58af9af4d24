"""With TILEWIRE_TORCH=1, puts tilewire behind PyTorch's fused operators, without changes to the program.

PyTorch calls `autoload` at the end of `import torch` (entry point torch.backends). It installs an import hook for the
module that registers the operators. An earlier override would make that module's import fail.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Sequence
from types import ModuleType

_MODULE = "torch.distributed._symmetric_memory"


class _ThenEnable(importlib.abc.Loader):
    """A loader that enables tilewire after the module has been loaded."""

    def __init__(self, loader: importlib.abc.Loader) -> None:
        self._loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        _enable()


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the module by the usual path, and wraps its loader."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _ThenEnable(spec.loader)
        return spec


def _enable() -> None:
    try:
        import tilewire.torch

        tilewire.torch.enable()
    except Exception as error:  # noqa: BLE001 - must never break the program's import
        print(f"tilewire: not behind torch.ops.symm_mem: {error}", file=sys.stderr)


def autoload() -> None:
    """Entry point that `import torch` calls."""
    if os.environ.get("TILEWIRE_TORCH") != "1":
        return
    if _MODULE in sys.modules:
        _enable()
    else:
        sys.meta_path.insert(0, _Finder())
