"""The registry of generators of synthetic data."""

from collections.abc import Callable

from tasks.synthetic import emnist

# Each is called as `write(output_dir, *, num_users, seed)`, says what it did,
# keeps what it wrote before with the same arguments, and raises
# `FileExistsError` rather than overwrite anything else.
WRITERS: dict[str, Callable[..., object]] = {
    "emnist": emnist.write_emnist,
}
