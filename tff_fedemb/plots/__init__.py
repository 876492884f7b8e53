"""Pictures of figures, of privacy and of utility.

Report, training, features and audits call this room with figures that were
computed elsewhere; nothing is accounted for or evaluated here.

Read `figures` first: colours, axes, legends, captions and files of all
pictures. Each other file draws one kind: `training_plots` those of a run,
`identification_plots`, `privacy_plots` and `utility_plots` those of their
names.
"""
