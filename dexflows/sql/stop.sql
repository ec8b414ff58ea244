-- Closes the running run of a Flow ID from outside. outcome: 'stopped', 'missing' or 'closed'.
-- Locks: gate (exclusive) -> run -> steps.
CREATE OR REPLACE FUNCTION dexflows_stop(
    p_flow_id text, p_run uuid, p_status text, p_error_type text, p_error_message text,
    OUT outcome text, OUT run_id uuid, OUT status text, OUT rings text
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    SELECT r.run_id INTO run_id FROM dexflows_run r
    WHERE r.flow_id = p_flow_id AND (p_run IS NULL OR r.run_id = p_run) ORDER BY r.run_number DESC LIMIT 1;
    IF NOT FOUND THEN
        outcome := 'missing';
        RETURN;
    END IF;
    PERFORM pg_advisory_xact_lock(dexflows_gate(dexflows_stop.run_id));
    SELECT r.status INTO status FROM dexflows_run r WHERE r.run_id = dexflows_stop.run_id FOR UPDATE;
    IF status <> 'RUNNING' THEN
        outcome := 'closed';
        RETURN;
    END IF;
    rings := dexflows_close(dexflows_stop.run_id, p_status, p_error_type, p_error_message, dexflows_now())::text;
    outcome := 'stopped';
    status := p_status;
END
$$;
