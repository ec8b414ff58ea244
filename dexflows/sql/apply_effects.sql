-- Stores what a handler buffered: {writes: [[name, instance, value], ...], events: [[kind, data], ...],
-- synced: [[name, instance], ...] (of the writes, those for Attribute Stores), published: [[channel, instance, value],
-- ...], deleted: [[channel, instance, message], ...]}, and returns the Steps to
-- ring that became ready. Messages need the run's row FOR NO KEY UPDATE, held by the caller; one to be deleted that is
-- not there raises DF002, which undoes everything.
CREATE OR REPLACE FUNCTION dexflows_apply_effects(p_run uuid, p_step text, p_effects jsonb, p_now timestamptz)
RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    v_rings jsonb := '[]';
    v_gone text;
BEGIN
    IF p_effects ? 'deleted' THEN
        WITH deleted AS (
            DELETE FROM dexflows_channel_message m USING jsonb_array_elements(p_effects -> 'deleted') AS d
            WHERE m.run_id = p_run AND m.name = d ->> 0 AND m.instance = d ->> 1 AND m.seq = (d ->> 2)::bigint
            RETURNING d
        )
        SELECT d ->> 2 INTO v_gone FROM jsonb_array_elements(p_effects -> 'deleted') AS d
        WHERE d NOT IN (SELECT deleted.d FROM deleted) LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION 'message % is not queued', v_gone USING ERRCODE = 'DF002';
        END IF;
    END IF;
    IF p_effects ? 'published' THEN
        v_rings := (SELECT p.rings FROM dexflows_publish(p_run, p_effects -> 'published', p_now) AS p);
    END IF;
    IF p_effects ? 'writes' THEN
        PERFORM dexflows_write_attributes(p_run, p_effects -> 'writes', p_now);
        IF p_effects ? 'synced' THEN
            PERFORM dexflows_mark_stores(p_run, p_effects -> 'synced', p_now);
        END IF;
    END IF;
    IF p_effects ? 'events' THEN
        PERFORM dexflows_record_events(p_run, p_step, p_effects -> 'events', p_now);
    END IF;
    RETURN v_rings;
END
$$;
