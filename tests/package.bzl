"""`package_tests()`: a test for each file of a folder below tests/."""

# Folders whose builders other folders' tests use.
_BUILDERS = [
    "//tests/{}:shared".format(folder)
    for folder in [
        "accounting",
        "algorithms",
        "binaries",
        "data",
        "evaluation",
        "features",
        "mechanisms",
        "participation",
        "phones",
        "plots",
        "records",
        "report",
        "rounds",
        "runtime",
        "serving",
        "spec",
        "tasks",
        "tasks/prepare",
        "training",
    ]
]

def package_tests():
    """Makes a py_test of each *_test.py, and a library of what they share."""
    native.package(default_visibility = ["//visibility:public"])
    folder = native.package_name()
    native.py_library(
        name = "shared",
        testonly = True,
        srcs = native.glob(["*.py"]),
    )
    for path in native.glob(["*_test.py"]):
        native.py_test(
            name = path[:-len(".py")],
            size = "large",
            srcs = ["//tests:run_one.py"],
            args = ["{}/{}".format(folder, path)],
            main = "//tests:run_one.py",
            deps = [
                label
                for label in _BUILDERS
                if label != "//{}:shared".format(folder)
            ] + ["//tests:shared", ":shared"],
        )
