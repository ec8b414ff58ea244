-- Closes a run: its open Step executions are canceled, its locks, waiters and skipped timers go. A run that failed by
-- itself may be followed by another (`retry_run.sql`); else the Steps that wait for it as a SubFlow are woken. Returns
-- whom to ring (see `keys.step_keys`). The caller holds the run's gate exclusively and its row FOR UPDATE, and has seen
-- status RUNNING.
CREATE OR REPLACE FUNCTION dexflows_close(
    p_run uuid, p_status text, p_error_type text, p_error_message text, p_now timestamptz
) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    v_retries bool;
    v_awaited bool;
    v_rings jsonb;
BEGIN
    p_now := dexflows_clear_run(p_run, p_now);
    UPDATE dexflows_run SET status = p_status, closed_at = p_now, error_type = p_error_type,
        error_message = p_error_message, closing = NULL,
        expires_at = p_now + make_interval(secs => coalesce((config ->> 'retention')::float8, 2592000))
    WHERE run_id = p_run
    RETURNING retry IS NOT NULL AND p_status = 'FAILED' AND p_error_type <> 'STOPPED_FAIL',
        starts_with(flow_id, 'SubFlow:') INTO v_retries, v_awaited;
    INSERT INTO dexflows_event (run_id, seq, at, kind, step, data)
    VALUES (p_run, nextval('dexflows_event_seq'), p_now, 'FLOW_' || p_status, NULL,
        CASE WHEN p_error_type IS NOT NULL
            THEN jsonb_build_object('error_type', p_error_type, 'error_message', p_error_message) END);
    IF v_retries THEN
        v_rings := dexflows_retry_run(p_run, p_now);
    END IF;
    IF v_awaited AND v_rings IS NULL THEN
        v_rings := dexflows_wake_parents(p_run, p_now);
    END IF;
    RETURN coalesce(v_rings, '[]');
END
$$;
