-- Texts of configurations, each once, apart from the versions that have them; SHA-256 is the key. The configuration in
-- force of an RM is that of its latest version, so one that is no version becomes one. Limits are those of the broker.
CREATE TABLE texts (digest text PRIMARY KEY, config bytea NOT NULL);
INSERT INTO versions (rm, number, checksum, at_ns, author, origin, base, config)
    SELECT rm, coalesce((SELECT max(number) FROM versions WHERE rm = managers.rm), 0) + 1,
        upper(encode(sha256(config), 'hex')), 0, 'RM ' || rm, 'registration', upper(encode(sha256(config), 'hex')), config
    FROM managers WHERE config IS DISTINCT FROM (
        SELECT config FROM versions WHERE rm = managers.rm ORDER BY number DESC LIMIT 1
    );
ALTER TABLE versions ADD COLUMN size bigint, ADD COLUMN digest text;
UPDATE versions SET size = octet_length(config), digest = encode(sha256(config), 'hex');
INSERT INTO texts SELECT DISTINCT ON (digest) digest, config FROM versions;
ALTER TABLE versions DROP COLUMN config, DROP COLUMN position, ALTER COLUMN digest SET NOT NULL,
    ALTER COLUMN size SET NOT NULL, ALTER COLUMN size TYPE bigint USING size + 0; -- rewrites it, without the texts
ALTER TABLE managers DROP COLUMN config, ALTER COLUMN facts TYPE text USING facts || '';
CREATE INDEX versions_of_text ON versions (digest);
