-- Small rows by key that are not facts about a call. A record that is put again is a new row: its number is its
-- generation, and AUTOINCREMENT gives none twice, whatever was removed.
CREATE TABLE records (
    generation INTEGER PRIMARY KEY AUTOINCREMENT,
    space      INTEGER NOT NULL,
    owner      INTEGER NOT NULL,        -- the session; 0: the whole store
    key        TEXT    NOT NULL,
    value      BLOB    NOT NULL,
    seal       INTEGER NOT NULL,        -- a hash of all of this
    UNIQUE (space, owner, key)
) STRICT;
