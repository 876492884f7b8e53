"""Package metadata of tff-fedemb."""

import pathlib

import setuptools

_ROOT = pathlib.Path(__file__).parent

setuptools.setup(
  name="tff-fedemb",
  version="0.1.0",
  description=(
    "Image embedding models trained with user-level differential privacy"
    " in TensorFlow Federated (DP-FedEmb)."
  ),
  long_description=(_ROOT / "README.md").read_text(encoding="utf-8"),
  long_description_content_type="text/markdown",
  license="Apache-2.0",
  python_requires=">=3.10,<3.12",
  packages=setuptools.find_packages(
    include=["tff_fedemb*", "tasks*", "binaries*"]
  ),
  package_data={
    "binaries": ["flagfiles/*.flags", "flagfiles/*/*.flags"],
    "tff_fedemb.models.starts": ["*.h5"],
    "tff_fedemb.report": ["template/*"],
    "tff_fedemb.deployment": ["presets/*.yaml"],
  },
  # tensorflow-federated 0.87.0 pins a jaxlib that is no longer published, so
  # no resolver can satisfy it unaided: requirements.txt is the complete set
  # that works, and [tool.uv] in pyproject.toml repairs the pin for uv.
  install_requires=[
    "absl-py>=1.4,<2",
    "dp-accounting==0.4.3",
    "docstring-parser>=0.15",
    "etils[epy]>=1.9",
    # Later ones need NumPy 2.
    "faiss-cpu>=1.8,<=1.10",
    "jinja2>=3.1",
    "markupsafe>=2",
    "matplotlib>=3.8",
    "numpy>=1.25,<2",
    "pandas>=2.1",
    "pillow>=10",
    "psutil>=5.9",
    "pyarrow>=14",
    "pyyaml>=6",
    "scikit-learn>=1.4",
    # TensorBoard 2.14 needs pkg_resources, which later ones lack.
    "setuptools<81",
    "tensorboard>=2.14,<2.15",
    "tensorflow>=2.14,<2.15",
    "tensorflow-datasets>=4.9",
    "tensorflow-federated==0.87.0",
    "tensorflow-privacy==0.9.0",
    "tqdm>=4.64",
  ],
  extras_require={
    "dev": [
      # mypy 1.11 asks for typing-extensions newer than TFF allows.
      "mypy>=1.10,<1.11",
      "mkdocs-material>=9",
      "mkdocstrings-python>=2",
      "pytest>=8",
      "pytest-xdist>=3.6",
      "ruff>=0.6",
    ],
    # requirements-ray.txt and its like have what these need, pinned.
    "ray": ["ray==2.52.1"],
    "lite": ["ai-edge-litert==2.3.0"],
    "onnx": ["onnx==1.16.2", "onnxruntime==1.18.1", "tf2onnx==1.16.1"],
  },
)
