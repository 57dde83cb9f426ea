-- Runs of a session's journal rows that expired. No two of a session touch. The row after a run still points to its last row, and
-- is chained to that row's link.
CREATE TABLE gaps (
    session  INTEGER NOT NULL,
    first    INTEGER NOT NULL,          -- number of the first entry that expired
    count    INTEGER NOT NULL,
    last_row INTEGER NOT NULL,          -- the key of the last row that expired
    link     BLOB    NOT NULL,          -- its link
    prev     INTEGER,                   -- the session's row before the run
    before   BLOB    NOT NULL,          -- the link of that row
    seal     INTEGER NOT NULL,          -- a hash of all of this
    PRIMARY KEY (session, first)
) STRICT, WITHOUT ROWID;
