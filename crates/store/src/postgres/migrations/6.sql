-- From format 5. No released worker used it, so nothing of it has to stay.
ALTER TABLE windlass.groups ADD COLUMN at timestamptz NOT NULL DEFAULT now();
ALTER TABLE windlass.chunks ALTER COLUMN data SET STORAGE EXTERNAL;
CREATE TABLE windlass.migrations (
    format bigint PRIMARY KEY,
    at     timestamptz NOT NULL DEFAULT now(),
    role   text NOT NULL DEFAULT current_user
);
DROP FUNCTION windlass.append(
    bytea, bigint, bigint[], bigint[], bigint[], bigint[], bytea[], bigint[], bigint[], bigint[], bigint[], bigint[], bytea[], bytea[], bytea[],
    bigint[], bigint[], bytea[], bigint[], bigint[], bigint[], bigint[]
);
