"""Examples of users: where they lie, how they are read and checked.

Tasks call this room, and clients' computations read their examples by it.
It knows files of images, photos in folders and tables, TFRecord files, SQLite
files and arrays, and nothing of models, rounds or privacy.

Read `population` first: users, virtual clients and their identifiers. Then
`pipelines` has the parts of a client's input pipeline. `bad_examples` says what
happens to input that cannot be used; files that begin with `photo_` find,
check and index photos.
"""
