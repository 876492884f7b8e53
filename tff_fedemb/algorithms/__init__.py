"""Learning processes, one algorithm per file: from clients to a TFF process.

A run builds its process here from a task's examples, a backbone, a mechanism
and a server optimizer.

Read `fedemb` first, which is DP-FedEmb in few lines, then `algorithm`, its base
class. `learning_process` composes TFF's four parts of a learning process;
`local_training` has the settings of a client's training and `local_steps` its
computation. `fedavg`, `centralized` and `contrastive` are baselines;
`registry` maps names to all of them.
"""
