"""The registry of generators of synthetic data."""

from collections.abc import Callable

from tasks.synthetic import digiface
from tasks.synthetic import emnist
from tasks.synthetic import gld
from tasks.synthetic import inaturalist

# Each is called as `write(output_dir, *, num_users, seed)`, says what it did,
# keeps what it wrote before with the same arguments, and raises
# `errors.DataError` rather than overwrite anything else.
WRITERS: dict[str, Callable[..., object]] = {
  "digiface": digiface.write_digiface,
  "emnist": emnist.write_emnist,
  "gld": gld.TWIN.write,
  "inaturalist": inaturalist.TWIN.write,
}

# Each is called as `contact_sheet(output_dir, output_png)` and draws one row a
# class or user.
CONTACT_SHEETS: dict[str, Callable[..., None]] = {
  "digiface": digiface.contact_sheet,
  "emnist": emnist.contact_sheet,
  "gld": gld.TWIN.contact_sheet,
  "inaturalist": inaturalist.TWIN.contact_sheet,
}
