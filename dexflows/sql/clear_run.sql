-- Cancels the open Step executions of a run and takes its locks, waiters and skipped timers away. Returns when that
-- was: a Step may be claimed between p_now and its cancellation, and ends no earlier than it started.
-- The caller holds the run's row FOR UPDATE.
CREATE OR REPLACE FUNCTION dexflows_clear_run(p_run uuid, p_now timestamptz) RETURNS timestamptz LANGUAGE plpgsql AS $$
BEGIN
    WITH canceled AS (
        UPDATE dexflows_step_execution SET state = 'CANCELED', closed_at = greatest(p_now, started_at), token = NULL,
            lease_until = NULL, method_deadline = NULL, due_at = NULL, parked_reason = NULL
        WHERE run_id = p_run AND closed_at IS NULL
        RETURNING closed_at
    )
    SELECT greatest(p_now, max(closed_at)) INTO p_now FROM canceled;
    DELETE FROM dexflows_lock_wait WHERE run_id = p_run;
    DELETE FROM dexflows_lock_hold WHERE run_id = p_run;
    DELETE FROM dexflows_timer_skip WHERE run_id = p_run;
    RETURN p_now;
END
$$;
