"""Pictures of runs, of privacy and of utility.

Reports, training, features and audits call this package with numbers that were
computed elsewhere; nothing is accounted for or evaluated here.

Read `figures` first: colours, axes, legends, captions and files of all
pictures. Each other file draws one kind: `training_plots` draws those of a run,
and `identification_plots`, `privacy_plots` and `utility_plots` draw what their
names say.
"""
