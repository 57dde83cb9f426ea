-- The largest number of a blob that was cut away, and its seal: none is given out twice. A program of an older format
-- would not look at it.
INSERT INTO meta (key, value) VALUES ('cut', x'000000000000000071e0a99173564931');
