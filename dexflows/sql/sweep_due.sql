-- Takes Step executions that are due (timers, ended backoffs, doorbells not heard, lock waiters long unrung), each for one
-- sweeper, and returns their references. The next look is later and later, so a backlog is not rung over and over.
CREATE OR REPLACE FUNCTION dexflows_sweep_due(p_limit int)
RETURNS TABLE (run_id uuid, flow_type text, step_type text, number int, queue text) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := dexflows_now();
BEGIN
    RETURN QUERY
    WITH due AS (
        SELECT s.run_id, s.step_type, s.number FROM dexflows_step_execution s
        WHERE s.state IN ('QUEUED', 'WAITING', 'BACKOFF', 'WAITING_FOR_LOCK') AND s.parked_reason IS NULL AND s.due_at <= v_now
        ORDER BY s.due_at LIMIT p_limit FOR UPDATE SKIP LOCKED
    )
    UPDATE dexflows_step_execution s SET
        state = CASE s.state WHEN 'BACKOFF' THEN 'QUEUED' ELSE s.state END,
        rings = CASE s.state WHEN 'BACKOFF' THEN 0 ELSE least(s.rings + 1, 6) END,
        due_at = v_now + make_interval(secs => 5 * power(2, CASE s.state WHEN 'BACKOFF' THEN 0 ELSE s.rings END))
    FROM due WHERE s.run_id = due.run_id AND s.step_type = due.step_type AND s.number = due.number
    RETURNING s.run_id, s.flow_type::text, s.step_type::text, s.number, s.queue::text;
END
$$;
