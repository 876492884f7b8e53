"""Which packages an installation has; pyproject.toml has the rest.

`tasks`, `binaries` and `benchmarks` are names that other projects use too. In a
checkout they stand at the top. An installation has them in `tff_fedemb/side`,
and not among the packages of everybody; `tff_fedemb.imports` finds them there.
"""

import setuptools

_SIDE = ("tasks", "binaries", "benchmarks")
_FOUND = setuptools.find_packages(include=[f"{name}*" for name in _SIDE])

setuptools.setup(
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
    "tff_fedemb.side.benchmarks": ["*.csv"],
    "tff_fedemb.side.binaries": [
      "flagfiles/*.flags",
      "flagfiles/*.json",
      "flagfiles/*/*.flags",
    ],
  },
)
