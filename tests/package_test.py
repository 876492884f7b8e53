"""Tests of the top level, and of the package as others install it."""

import os
import pathlib
import subprocess
import sys
import zipfile

import pytest

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_SIDE = ("tasks", "binaries", "benchmarks")


@pytest.mark.parametrize(
  "name",
  [
    "setup.py",
    "README.md",
    "WORKSPACE",
    "tff_fedemb/__init__.py",
    "tasks/__init__.py",
    "binaries/__init__.py",
    "tests/conftest.py",
  ],
)
def test_top_level_has_what_was_asked_for(name):
  assert (_ROOT / name).is_file()


def _pip(*arguments):
  subprocess.run([sys.executable, "-m", "pip", *arguments], check=True)


@pytest.fixture(name="installed", scope="module")
def _installed(tmp_path_factory):
  """Calls Python in another directory, where the wheel is unpacked alone."""
  folder = tmp_path_factory.mktemp("package")
  source = folder / "source"
  for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
    source.mkdir(exist_ok=True)
    (source / name).write_bytes((_ROOT / name).read_bytes())
  for name in ("tff_fedemb", *_SIDE):
    (source / name).symlink_to(_ROOT / name)
  options = ("--quiet", "--no-deps", "--no-build-isolation")
  _pip("wheel", *options, f"--wheel-dir={folder}", str(source))
  (wheel,) = folder.glob("*.whl")
  site = folder / "site"
  zipfile.ZipFile(wheel).extractall(site)
  elsewhere = folder / "elsewhere"
  elsewhere.mkdir()

  def call(*arguments):
    environ = os.environ | {"PYTHONPATH": str(site)}
    return subprocess.run(
      [sys.executable, *arguments],
      cwd=elsewhere,
      env=environ,
      capture_output=True,
      text=True,
    )

  call.site = site
  return call


@pytest.mark.slow
class TestInstalled:
  def test_takes_no_names_that_others_use(self, installed):
    names = {path.name for path in installed.site.iterdir()}
    found = {name for name in names if "dist-info" not in name}
    assert found == {"tff_fedemb", "tff_fedemb.pth"}
    assert (installed.site / "tff_fedemb" / "py.typed").exists()

  def test_finds_its_own_tasks(self, installed):
    code = "import tff_fedemb as fe, tasks; print(tasks.__file__, fe.FedEmb())"
    ended = installed("-c", code)
    assert str(installed.site / "tff_fedemb" / "side") in ended.stdout

  def test_a_package_of_the_users_own_wins(self, installed):
    code = "import sys; sys.path.insert(0, '.'); import tff_fedemb, tasks"
    (installed.site.parent / "elsewhere" / "tasks.py").write_text(
      "print('own')"
    )
    try:
      assert installed("-c", code).stdout == "own\n"
    finally:
      (installed.site.parent / "elsewhere" / "tasks.py").unlink()

  def test_flagfiles_work_elsewhere(self, installed):
    ended = installed(
      *("-m", "tff_fedemb", "train", "--flagfile=handwriting_banded.flags"),
      "--dry_run",
    )
    assert ended.returncode == 0, ended.stderr
    assert "epsilon" in ended.stdout

  def test_a_program_that_is_unknown(self, installed):
    ended = installed("-m", "tff_fedemb", "trian")
    assert ended.returncode == 1
    assert ended.stderr.startswith("error: program must be one of train, ")
    assert len(ended.stderr.splitlines()) == 1
