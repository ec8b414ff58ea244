-- Running attempts whose lease has ended: their worker is gone, or their method ran past its deadline. overran: of the
-- latter, the seconds between start and deadline.
CREATE OR REPLACE FUNCTION dexflows_expired(p_limit int)
RETURNS TABLE (run_id uuid, flow_type text, step_type text, number int, method text, attempt int, token uuid,
    worker text, options text, elapsed float8, overran float8) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := dexflows_now();
BEGIN
    RETURN QUERY SELECT s.run_id, s.flow_type::text, s.step_type::text, s.number, s.method::text, s.attempt, s.token,
        s.worker, s.options::text, extract(epoch FROM v_now - s.first_attempt_at)::float8,
        CASE WHEN s.method_deadline < v_now THEN extract(epoch FROM s.method_deadline - s.started_at)::float8 END
    FROM dexflows_step_execution s WHERE s.state = 'RUNNING' AND s.lease_until < v_now
    ORDER BY s.lease_until LIMIT p_limit;
END
$$;
