-- Closes a run: its open Step executions are canceled, its locks, waiters and skipped timers go. A run that failed by
-- itself may be followed by another (`retry_run.sql`); else the Steps that wait for it as a SubFlow are woken. Returns
-- whom to ring (see `keys.step_keys`). The caller holds the run's gate exclusively and its row FOR UPDATE, and has seen
-- status RUNNING. A Step may be claimed between p_now and its cancellation: the run closes no earlier than that.
CREATE OR REPLACE FUNCTION dexflows_close(
    p_run uuid, p_status text, p_error_type text, p_error_message text, p_now timestamptz
) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    v_retries bool;
    v_awaited bool;
    v_rings jsonb;
BEGIN
    WITH canceled AS (
        UPDATE dexflows_step_execution SET state = 'CANCELED', closed_at = greatest(p_now, started_at), token = NULL,
            lease_until = NULL, method_deadline = NULL, due_at = NULL, parked_reason = NULL
        WHERE run_id = p_run AND closed_at IS NULL
        RETURNING closed_at
    )
    SELECT greatest(p_now, max(closed_at)) INTO p_now FROM canceled;
    UPDATE dexflows_run SET status = p_status, closed_at = p_now, error_type = p_error_type,
        error_message = p_error_message
    WHERE run_id = p_run
    RETURNING retry IS NOT NULL AND p_status = 'FAILED' AND p_error_type <> 'STOPPED_FAIL',
        starts_with(flow_id, 'SubFlow:') INTO v_retries, v_awaited;
    DELETE FROM dexflows_lock_wait WHERE run_id = p_run;
    DELETE FROM dexflows_lock_hold WHERE run_id = p_run;
    DELETE FROM dexflows_timer_skip WHERE run_id = p_run;
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
