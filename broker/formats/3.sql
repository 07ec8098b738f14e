-- The configuration of an RM is beside its other facts, which change more often.
ALTER TABLE managers ADD COLUMN text TEXT NOT NULL DEFAULT '';
UPDATE managers SET text = json_extract(facts, '$.text'), facts = json_remove(facts, '$.text')
    WHERE json_valid(facts) AND json_type(facts, '$.text') = 'text';
