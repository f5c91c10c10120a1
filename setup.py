"""What setup.cfg cannot say: a wheel has the presets of flags/ too, as data of tfbert."""

import pathlib
import shutil

from setuptools import setup
from setuptools.command.build_py import build_py

PRESETS = pathlib.Path("flags", "presets")


class BuildWithPresets(build_py):
    """Copies the presets into the built package. A clone has them in flags/, so an editable install needs no copy."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            for source, target in self._presets():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, target)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        return [*super().get_outputs(include_bytecode), *(str(target) for _, target in self._presets())]

    def get_source_files(self) -> list[str]:
        return [*super().get_source_files(), *(str(source) for source, _ in self._presets())]

    def _presets(self) -> list[tuple[pathlib.Path, pathlib.Path]]:
        target = pathlib.Path(self.build_lib, "tfbert", "presets")
        return [(path, target / path.relative_to(PRESETS)) for path in sorted(PRESETS.rglob("*.flags"))]


setup(cmdclass={"build_py": BuildWithPresets})
