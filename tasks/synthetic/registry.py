"""The registry of generators of synthetic data, those of photos among them.

Those are of Google Landmarks v2 and iNaturalist 2017 by user, see `tasks.gld`
and `tasks.inaturalist`. TensorFlow Federated 0.87 writes iNaturalist's users to
`user_120k/` (and looks for them in `USER_120K/`, so that it does not find its
own files on most systems).
"""

from collections.abc import Callable
import functools

from tasks.synthetic import characters
from tasks.synthetic import digiface
from tasks.synthetic import emnist
from tasks.synthetic import photos
from tasks.synthetic import tfrecord_twin

GLD = tfrecord_twin.Twin("gld", {"gld160k": 1.0, "gld23k": 0.5})
INATURALIST = tfrecord_twin.Twin("inaturalist", {"user_120k": 1.0})

# Each is called as `write(output_dir, *, num_users, seed)`, says what it did,
# keeps what it wrote before with the same arguments, and raises
# `errors.DataError` rather than overwrite anything else.
WRITERS: dict[str, Callable[..., object]] = {
  "digiface": digiface.write_digiface,
  "emnist": emnist.write_emnist,
  "emnist_compact": functools.partial(emnist.write_emnist, compact=True),
  "gld": GLD.write,
  "inaturalist": INATURALIST.write,
  "omniglot": characters.write_characters,
  "photos": photos.PEOPLE.write,
  "photos_match": photos.PEOPLE.write_match,
  "photos_writers": photos.WRITERS.write,
  "photos_writers_match": photos.WRITERS.write_match,
}

# Each is called as `contact_sheet(output_dir, output_png)` on what was written,
# and draws one row a class or user.
CONTACT_SHEETS: dict[str, Callable[..., None]] = {
  "digiface": digiface.contact_sheet,
  "emnist": emnist.contact_sheet,
  "emnist_compact": emnist.contact_sheet,
  "gld": GLD.contact_sheet,
  "inaturalist": INATURALIST.contact_sheet,
  "omniglot": characters.contact_sheet,
  "photos": photos.PEOPLE.contact_sheet,
  "photos_match": photos.PEOPLE.contact_sheet,
  "photos_writers": photos.WRITERS.contact_sheet,
  "photos_writers_match": photos.WRITERS.contact_sheet,
}
