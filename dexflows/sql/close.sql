-- Closes a run: its open Step executions are canceled, its locks and waiters go; returns whom to ring (see
-- `keys.step_keys`). The caller holds the run's gate exclusively and its row FOR UPDATE, and has seen status RUNNING.
CREATE OR REPLACE FUNCTION dexflows_close(
    p_run uuid, p_status text, p_error_type text, p_error_message text, p_now timestamptz
) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    UPDATE dexflows_run SET status = p_status, closed_at = p_now, error_type = p_error_type,
        error_message = p_error_message
    WHERE run_id = p_run;
    UPDATE dexflows_step_execution SET state = 'CANCELED', closed_at = p_now, token = NULL, lease_until = NULL,
        method_deadline = NULL, due_at = NULL, parked_reason = NULL
    WHERE run_id = p_run AND closed_at IS NULL;
    DELETE FROM dexflows_lock_wait WHERE run_id = p_run;
    DELETE FROM dexflows_lock_hold WHERE run_id = p_run;
    INSERT INTO dexflows_event (run_id, seq, at, kind, step, data)
    VALUES (p_run, nextval('dexflows_event_seq'), p_now, 'FLOW_' || p_status, NULL,
        CASE WHEN p_error_type IS NOT NULL
            THEN jsonb_build_object('error_type', p_error_type, 'error_message', p_error_message) END);
    RETURN '[]';
END
$$;
