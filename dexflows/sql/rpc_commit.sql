-- Stores what an RPC buffered, inside its transaction; returns the Steps to ring after the commit.
-- The run's gate is held shared since rpc_begin. Locks: run (only to create or cancel Steps) -> attributes.
CREATE OR REPLACE FUNCTION dexflows_rpc_commit(p_run uuid, p_flow_type text, p jsonb) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    v_rings jsonb := '[]';
    v_now timestamptz;
BEGIN
    IF p ? 'movements' OR p ? 'cancel' THEN
        PERFORM FROM dexflows_run WHERE run_id = p_run FOR NO KEY UPDATE;
    END IF;
    v_now := dexflows_now();
    IF p ? 'events' THEN
        PERFORM dexflows_record_events(p_run, NULL, p -> 'events', v_now);
    END IF;
    IF p ? 'writes' THEN
        PERFORM dexflows_write_attributes(p_run, p -> 'writes', v_now);
    END IF;
    IF p ? 'cancel' THEN
        v_rings := dexflows_cancel_steps(p_run, p -> 'cancel', NULL, v_now);
    END IF;
    IF p ? 'movements' THEN
        v_rings := v_rings || dexflows_create_steps(p_run, p_flow_type, p -> 'movements', NULL, v_now, NULL);
    END IF;
    RETURN v_rings::text;
END
$$;
