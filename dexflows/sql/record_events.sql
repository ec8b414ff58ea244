-- Appends [[kind, data], ...] to a run's history, in order.
CREATE OR REPLACE FUNCTION dexflows_record_events(p_run uuid, p_step text, p_events jsonb, p_now timestamptz)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO dexflows_event (run_id, seq, at, kind, step, data)
    SELECT p_run, nextval('dexflows_event_seq'), p_now, e.value ->> 0, p_step, nullif(e.value -> 1, 'null'::jsonb)
    FROM jsonb_array_elements(p_events) WITH ORDINALITY AS e(value, position) ORDER BY e.position;
END
$$;
