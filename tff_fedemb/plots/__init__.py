"""Pictures of runs, of privacy and of utility.

Reports, training, features and audits call this package with numbers that were
computed elsewhere; nothing is accounted for or evaluated here.

Read `figures` first: colours, axes, legends, captions and files of all
pictures. Each other file draws one kind of picture: `training_plots` those of a
run, `identification_plots` people in galleries, `privacy_plots` epsilon and
noise, and `utility_plots` accuracy or recall. Functions named `plot_` write a
PNG file; those named `draw_` draw into a panel, except for `draw_svg`.
"""
