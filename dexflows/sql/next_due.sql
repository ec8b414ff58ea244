-- Seconds until a sweep has something to do (0 or less: now), NULL when nothing waits. Three index look-ups.
CREATE OR REPLACE FUNCTION dexflows_next_due() RETURNS float8 LANGUAGE sql AS $$
    SELECT extract(epoch FROM least(
        (SELECT min(due_at) FROM dexflows_step_execution
            WHERE state IN ('QUEUED', 'WAITING', 'BACKOFF', 'WAITING_FOR_LOCK') AND due_at IS NOT NULL
                AND parked_reason IS NULL),
        (SELECT min(lease_until) FROM dexflows_step_execution WHERE state = 'RUNNING'),
        (SELECT min(deadline) FROM dexflows_run WHERE status = 'RUNNING' AND deadline IS NOT NULL)
    ) - dexflows_now())::float8
$$;
