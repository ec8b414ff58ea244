-- Stores what a handler buffered: {writes: [[name, instance, value], ...], events: [[kind, data], ...]}.
CREATE OR REPLACE FUNCTION dexflows_apply_effects(p_run uuid, p_step text, p_effects jsonb, p_now timestamptz)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF p_effects ? 'writes' THEN
        PERFORM dexflows_write_attributes(p_run, p_effects -> 'writes', p_now);
    END IF;
    IF p_effects ? 'events' THEN
        PERFORM dexflows_record_events(p_run, p_step, p_effects -> 'events', p_now);
    END IF;
END
$$;
