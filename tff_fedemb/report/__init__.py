"""Finished runs, for those who did not make them: pages, tables and words.

The programs `report`, `tabulate`, `plot_privacy` and `account` call this room,
and training at its end.

Read `measured_runs` first: finished runs from their files. `account`
recomputes a run's privacy from what it left, without data. `page` makes one
HTML file, of the pictures and tables in the other files; `templates` renders
it, and `words` says how strong a guarantee is. `account_output` is what program
`account` tells.

`finished_run` reads one run's files when they are needed. `training_report` has
the figures and closing lines of a training, `held_out_pictures` chooses images
for a page, and `privacy_pictures` draws the cost of privacy.
"""
