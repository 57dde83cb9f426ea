-- A blob is found by its number, whichever session it belongs to. The records themselves are moved by `homes.rs`.
CREATE INDEX records_of_blobs ON records (key) WHERE space = 16;
