-- Seconds until a sweep finds Steps, leases and Flow timeouts to be due (0 or less: now), each NULL where there are none.
-- Three index look-ups.
CREATE OR REPLACE FUNCTION dexflows_next_due(OUT steps float8, OUT leases float8, OUT deadlines float8)
LANGUAGE plpgsql AS $$
DECLARE
    v_now timestamptz := dexflows_now();
BEGIN
    SELECT extract(epoch FROM min(due_at) - v_now) INTO steps FROM dexflows_step_execution
    WHERE state IN ('QUEUED', 'WAITING', 'BACKOFF', 'WAITING_FOR_LOCK') AND due_at IS NOT NULL AND parked_reason IS NULL;
    SELECT extract(epoch FROM min(lease_until) - v_now) INTO leases FROM dexflows_step_execution
    WHERE state = 'RUNNING';
    SELECT extract(epoch FROM min(deadline) - v_now) INTO deadlines FROM dexflows_run
    WHERE status = 'RUNNING' AND deadline IS NOT NULL;
END
$$;
