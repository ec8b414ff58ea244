-- Stores [[name, instance, value], ...]; a JSON null deletes. Rows are locked in (name, instance) order, so that two
-- writers of overlapping sets cannot deadlock.
CREATE OR REPLACE FUNCTION dexflows_write_attributes(p_run uuid, p_writes jsonb, p_now timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v record;
BEGIN
    FOR v IN
        SELECT w ->> 0 AS name, w ->> 1 AS instance, w -> 2 AS value
        FROM jsonb_array_elements(p_writes) AS w ORDER BY w ->> 0, w ->> 1
    LOOP
        IF v.value = 'null'::jsonb THEN
            DELETE FROM dexflows_attribute WHERE run_id = p_run AND name = v.name AND instance = v.instance;
        ELSE
            INSERT INTO dexflows_attribute (run_id, name, instance, entry, value, updated_at)
            VALUES (p_run, v.name, v.instance, '', v.value, p_now)
            ON CONFLICT (run_id, name, instance, entry) DO UPDATE SET value = excluded.value, updated_at = p_now;
        END IF;
    END LOOP;
END
$$;
