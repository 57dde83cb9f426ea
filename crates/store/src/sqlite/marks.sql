-- The first call of each dedupe key. The keys are hashes, so a mark dirties a page of its own; only calls of tools that
-- declare a key have one.
CREATE TABLE marks (
    mark    BLOB    PRIMARY KEY,
    session INTEGER NOT NULL,
    call    INTEGER NOT NULL,           -- batch << 16 | place in the batch
    seal    INTEGER NOT NULL            -- a hash of all of this
) STRICT, WITHOUT ROWID;
