-- Finds the run that a change from outside means, the latest of a Flow ID or the given one, passes its gate and locks
-- its row. outcome: 'missing', 'closed', 'closing', or NULL when it is running. Locks: gate (shared) -> run.
CREATE OR REPLACE FUNCTION dexflows_enter_run(
    p_flow_id text, p_run uuid, OUT outcome text, OUT run_id uuid, OUT flow_type text, OUT status text, OUT queue text
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    SELECT r.run_id INTO run_id FROM dexflows_run r
    WHERE r.flow_id = p_flow_id AND (p_run IS NULL OR r.run_id = p_run) ORDER BY r.run_number DESC LIMIT 1;
    IF NOT FOUND THEN
        outcome := 'missing';
        RETURN;
    END IF;
    PERFORM pg_advisory_xact_lock_shared(dexflows_gate(dexflows_enter_run.run_id));
    SELECT r.flow_type, r.status, r.queue, CASE WHEN r.status <> 'RUNNING' THEN 'closed'
        WHEN r.closing IS NOT NULL THEN 'closing' END
    INTO flow_type, status, queue, outcome FROM dexflows_run r WHERE r.run_id = dexflows_enter_run.run_id FOR NO KEY UPDATE;
END
$$;
