"""Examples of users: where they lie, how they are read and checked.

Tasks call this room, and clients' computations use it to read their examples.
It handles files of images, photos in folders and tables, TFRecord files, SQLite
files and arrays, and knows nothing of models, rounds or privacy.

Read `population` first: users, virtual clients and their identifiers. Then
`pipelines` has the parts of a client's input pipeline. `bad_examples` says what
happens to input that cannot be used; files that begin with `photo_` find,
check and index photos.
"""
