"""A Python toolchain of the interpreter in .venv, which `make` sets up."""

_BUILD = """
load("@bazel_tools//tools/python:toolchain.bzl", "py_runtime_pair")

py_runtime(
    name = "runtime",
    interpreter_path = "{interpreter}",
    python_version = "PY3",
)

py_runtime_pair(
    name = "runtimes",
    py3_runtime = ":runtime",
)

toolchain(
    name = "toolchain",
    toolchain = ":runtimes",
    toolchain_type = "@bazel_tools//tools/python:toolchain_type",
)
"""

def _create_toolchain(repository):
    root = repository.path(Label("//:WORKSPACE")).dirname
    interpreter = "{}/.venv/bin/python".format(root)
    repository.file("BUILD", _BUILD.format(interpreter = interpreter))

venv_toolchain = repository_rule(implementation = _create_toolchain)
