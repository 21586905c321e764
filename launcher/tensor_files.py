"""Tensors in safetensors files of bounded size: written one after another, read one at a time."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from launcher.disk import writing
from launcher.errors import CheckpointError, SaveError
from launcher.units import MIB

if TYPE_CHECKING:
    from torch import Tensor

# What a file holds at most, if no single tensor is larger: the host's memory that writing takes.
FILE_BYTES = 256 * MIB


class TensorWriter:
    """Writes NAME-00001.safetensors and so on; holds a file's worth of copies on the host, and one tensor more.

    What cannot be written is kept for `close` to raise: other processes go on gathering until then, and need this one.
    """

    def __init__(self, folder: Path, stem: str) -> None:
        self.folder = folder
        self.stem = stem
        self.files: list[str] = []
        self.bytes = 0
        self._held: dict[str, Tensor] = {}
        self._held_bytes = 0
        self._error: SaveError | None = None

    def add(self, name: str, tensor: Tensor) -> None:
        size = tensor.numel() * tensor.element_size()
        if self._held and self._held_bytes + size > FILE_BYTES:
            self._write()
        # A copy also on the host: tensors that share memory are refused, and training goes on in some of them.
        self._held[name] = tensor.detach().to("cpu", copy=True).contiguous()
        self._held_bytes += size

    def close(self) -> None:
        """SaveError where anything could not be written."""
        if self._held:
            self._write()
        if self._error is not None:
            raise self._error

    def _write(self) -> None:
        from safetensors.torch import save_file

        name = f"{self.stem}-{len(self.files) + 1:05d}.safetensors"
        if self._error is None:
            try:
                with writing(self.folder, self._held_bytes):
                    save_file(self._held, self.folder / name)
            except SaveError as error:
                self._error = error
        self.files.append(name)
        self.bytes += self._held_bytes
        self._held, self._held_bytes = {}, 0


class TensorReader:
    """Tensors by name; nothing but names and shapes is read before a tensor is asked for."""

    def __init__(self, folder: Path, files: Sequence[str]) -> None:
        """CheckpointError names every file that is missing or is not what was written."""
        from safetensors import SafetensorError, safe_open

        self._files = ExitStack()
        self._places = {}
        problems = []
        for file in files:
            try:
                opened = self._files.enter_context(safe_open(folder / file, framework="pt"))
            except (OSError, SafetensorError) as error:
                problems.append(f"{file}: {error}")
                continue
            self._places.update(dict.fromkeys(opened.keys(), opened))
        if problems:
            self.close()
            raise CheckpointError(str(folder), problems)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: tuple(file.get_slice(name).get_shape()) for name, file in self._places.items()}

    def __getitem__(self, name: str) -> Tensor:
        """On the host."""
        tensor: Tensor = self._places[name].get_tensor(name)
        return tensor

    def close(self) -> None:
        self._files.close()
