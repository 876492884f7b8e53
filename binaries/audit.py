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

from absl import flags
from etils import epy

from binaries import command_line
from binaries import config_flags
from binaries import run_federated
from binaries import smoke
from binaries import training_flags
from tff_fedemb import errors
from tff_fedemb.report import account_output
from tff_fedemb.training import audit_settings

with epy.lazy_imports():
  from tff_fedemb.training import audit as audit_run

_CONFIG = config_flags.ConfigFlags(audit_settings.AuditConfig)

flags.adopt_module_key_flags(run_federated)


def _scores(config: audit_settings.AuditConfig) -> None:
  delta = flags.FLAGS.delta
  if delta is None:
    raise errors.FieldError("delta", "be given", "nothing")
  account_output.check_output(config.output_json)
  values, text = audit_settings.bound_files(config, delta)
  account_output.write(config.output_json, values)
  print(text)


def _run(config: audit_settings.AuditConfig) -> None:
  config.require("output_dir")
  settings = run_federated.read_settings(run_dir=config.output_dir)
  task = training_flags.create_task(settings)
  is_sgd = flags.FLAGS.server_optimizer == "sgd"
  result = audit_run.execute(
    config,
    settings,
    task,
    run_federated.create_experiment,
    clip_norm=flags.FLAGS.clip_norm,
    momentum=flags.FLAGS.server_momentum if is_sgd else 0.0,
  )
  print(audit_run.to_text(result))
  print(f"Written to {config.output_dir}: audit.json, audit.png.")


_COMMANDS = {"scores": _scores, "run": _run}


def main(command: str) -> None:
  """Does what the command is for."""
  _COMMANDS[command](_CONFIG.create())


if __name__ == "__main__":
  command_line.run(main, commands=tuple(_COMMANDS), expand=smoke.expand)
