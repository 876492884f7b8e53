r"""Attacks a claimed epsilon: bounds it from below, with confidence.

  python -m binaries.audit scores --in_scores=A.npy --out_scores=B.npy \
    --delta=1e-5 --method=one_run --output_json=bound.json
  python -m binaries.audit run --data_dir=data --output_dir=audits/first \
    --flagfile=binaries/flagfiles/audit_emnist.flags

scores: from scores of canaries that were included in a computation, and of
others that were not, whatever made them. run: trains as run_federated does,
whose flags these are but for --run_dir, with canaries among the users, attacks
the models that are released and writes audit.json and audit.png. A lower bound
above the claim refutes it; one below proves nothing.
"""

from collections.abc import Sequence

from etils import epy

from binaries import command_line
from binaries import config_flags
from binaries import training_flags
from tff_fedemb import errors
from tff_fedemb.records import output_files
from tff_fedemb.training import audit_settings

with epy.lazy_imports():
  from tff_fedemb.training import audit


def main(argv: Sequence[str]) -> None:
  """Does what the command is for."""
  with config_flags.Parser(argv, __doc__) as parser:
    flags = parser.add(audit_settings.AuditConfig)
    spec_flags = training_flags.SpecFlags(parser)
    (command,) = parser.parse(("scores", "run"))
    config = flags.create()
    if command == "scores":
      delta = parser.value("delta")
      if delta is None:
        raise errors.FieldError("delta", "be given", "nothing")
      path = config.output_json
      files = ("in_scores", "out_scores")
      config.require(*files)
      inputs = {name: [getattr(config, name)] for name in files}
      output_files.check({"output_json": path}, overwrite=True, inputs=inputs)
      values, text = audit_settings.bound_files(config, delta)
      output_files.write_json(path, values)
      print(text)
      return
    config.require("output_dir")
    spec, task = training_flags.open_spec(spec_flags)
    print(audit.to_text(audit.audit(config, spec, task=task), config))


if __name__ == "__main__":
  command_line.run(main)
