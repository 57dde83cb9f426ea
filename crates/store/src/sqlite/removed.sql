-- The largest numbers of batches, rows and blobs that were removed, and their seal: none is given out twice. A program of an
-- older format would not look at them.
INSERT INTO meta (key, value) VALUES ('removed', x'000000000000000000000000000000000000000000000000db27f030ad8e467c');
