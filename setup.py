"""Which packages an installation has; pyproject.toml has the rest.

`tasks`, `binaries` and `benchmarks` are names that other projects use too. In a
checkout they stand at the top. An installation has them in `tff_fedemb/side`,
and not among the packages of everybody; `tff_fedemb.imports` finds them there.

Beside the packages goes `tff_fedemb.pth`, for scripts that import TensorFlow
Federated first. An editable installation does not build, so that the Makefile
copies the file.
"""

import pathlib

import setuptools
from setuptools.command import build_py

_SIDE = ("tasks", "binaries", "benchmarks")
_FOUND = setuptools.find_packages(include=[f"{name}*" for name in _SIDE])


class _BuildPy(build_py.build_py):
  """Also puts a file beside the packages."""

  def run(self):
    super().run()
    self.copy_file(
      "tff_fedemb/first.pth", pathlib.Path(self.build_lib, "tff_fedemb.pth")
    )


setuptools.setup(
  cmdclass={"build_py": _BuildPy},
  packages=[
    *setuptools.find_packages(include=["tff_fedemb*"]),
    *[f"tff_fedemb.side.{name}" for name in _FOUND],
  ],
  package_dir={f"tff_fedemb.side.{name}": name for name in _SIDE},
  package_data={
    "tff_fedemb": ["py.typed"],
    "tff_fedemb.deployment": ["presets/*.yaml"],
    "tff_fedemb.models.starts": ["*.h5"],
    "tff_fedemb.report": ["template/*"],
    "tff_fedemb.serving": ["*.html"],
    "tff_fedemb.side.benchmarks": ["*.csv"],
    "tff_fedemb.side.binaries": [
      "flagfiles/*.flags",
      "flagfiles/*.json",
      "flagfiles/*/*.flags",
    ],
  },
)
