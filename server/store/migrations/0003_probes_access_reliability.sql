-- Schema version 3: probes, access, reliability. docs/results-database.md explains every table and view; change both
-- together.

-- Storage: artifacts whose bytes were not those of their name when they were read, and were set aside.
CREATE TABLE damaged_artifacts (
  row INTEGER PRIMARY KEY,
  at_us INTEGER NOT NULL,
  sha256 TEXT NOT NULL,              -- its name
  found_sha256 TEXT NOT NULL,        -- of the bytes that were there
  bytes INTEGER NOT NULL
) STRICT;
CREATE INDEX damaged_artifacts_by_sha256 ON damaged_artifacts(sha256);
