-- Closes the running run of a Flow ID from outside. outcome: 'stopped', 'missing' or 'closed'.
-- Locks: gate (exclusive) -> run -> steps.
CREATE OR REPLACE FUNCTION dexflows_stop(
    p_flow_id text, p_run uuid, p_status text, p_error_type text, p_error_message text
) RETURNS TABLE (outcome text, run_id uuid, status text) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_run dexflows_run;
BEGIN
    v_run := dexflows_find_run(p_flow_id, p_run);
    IF v_run.run_id IS NULL THEN
        RETURN QUERY SELECT 'missing', NULL::uuid, NULL::text;
        RETURN;
    END IF;
    PERFORM pg_advisory_xact_lock(dexflows_gate(v_run.run_id));
    SELECT * INTO v_run FROM dexflows_run r WHERE r.run_id = v_run.run_id FOR UPDATE;
    IF v_run.status <> 'RUNNING' THEN
        RETURN QUERY SELECT 'closed', v_run.run_id, v_run.status::text;
        RETURN;
    END IF;
    PERFORM dexflows_close(v_run.run_id, p_status, p_error_type, p_error_message, dexflows_now());
    RETURN QUERY SELECT 'stopped', v_run.run_id, p_status;
END
$$;
