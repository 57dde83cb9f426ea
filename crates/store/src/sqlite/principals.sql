-- The principal that a session belongs to; NULL in sessions that were opened before this was kept. The index lists the sessions
-- of one principal, and vouches for the column as that of the name does for the name.
ALTER TABLE sessions ADD COLUMN principal TEXT;
CREATE INDEX sessions_by_principal ON sessions (principal, name);
