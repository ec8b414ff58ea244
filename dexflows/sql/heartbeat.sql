-- Keeps the value of a running attempt's heartbeat, and with p_heartbeat moves its deadline: so many seconds from now, at
-- most p_timeout after the start. False: the attempt is not the current one, or its time is over. Locks: step; never
-- waited for long, since the caller may have locked it in another transaction of its own.
CREATE OR REPLACE FUNCTION dexflows_heartbeat(
    p_run uuid, p_type text, p_number int, p_token uuid, p_value jsonb, p_timeout float8, p_heartbeat float8
) RETURNS bool LANGUAGE plpgsql SET lock_timeout = '1s' AS $$
DECLARE
    v_now timestamptz := dexflows_now();
BEGIN
    UPDATE dexflows_step_execution s SET heartbeat = p_value, method_deadline = CASE WHEN p_heartbeat IS NULL
        THEN s.method_deadline
        ELSE least(s.started_at + make_interval(secs => p_timeout), v_now + make_interval(secs => p_heartbeat)) END
    WHERE s.run_id = p_run AND s.step_type = p_type AND s.number = p_number AND s.token = p_token
        AND s.state = 'RUNNING' AND s.method_deadline > v_now;
    RETURN FOUND;
END
$$;
