-- Those of the attempts [[run, step type, number, token], ...] that are still the current ones of their Steps; overran: see
-- expired.sql.
CREATE OR REPLACE FUNCTION dexflows_running(p_claims jsonb)
RETURNS TABLE (run_id uuid, flow_type text, step_type text, number int, method text, attempt int, token uuid,
    worker text, options text, elapsed float8, overran float8, queue text) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := dexflows_now();
BEGIN
    RETURN QUERY SELECT s.run_id, s.flow_type::text, s.step_type::text, s.number, s.method::text, s.attempt, s.token,
        s.worker, s.options::text, extract(epoch FROM v_now - s.first_attempt_at)::float8,
        CASE WHEN s.method_deadline < v_now THEN extract(epoch FROM s.method_deadline - s.started_at)::float8 END, s.queue::text
    FROM jsonb_array_elements(p_claims) AS c
    JOIN dexflows_step_execution s ON s.run_id = (c ->> 0)::uuid AND s.step_type = c ->> 1
        AND s.number = (c ->> 2)::int AND s.token = (c ->> 3)::uuid
    WHERE s.state = 'RUNNING';
END
$$;
