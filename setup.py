"""What setup.cfg cannot say: the presets of flags/ are in the wheel too, as data of tfbert."""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["tfbert", "tfbert.*"]), "tfbert.presets"],
    package_dir={"tfbert.presets": "flags/presets"},
    package_data={"tfbert.presets": ["*.flags", "*/*.flags"], "tfbert.report": ["templates/*.html"]},
)
