-- Extends the leases of attempts [[run, step type, number, token], ...] that are alive and within their timeout.
CREATE OR REPLACE FUNCTION dexflows_renew(p_claims jsonb, p_lease float8) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    v_now timestamptz := dexflows_now();
    v_renewed int;
BEGIN
    UPDATE dexflows_step_execution s SET lease_until = v_now + make_interval(secs => p_lease)
    FROM jsonb_array_elements(p_claims) AS c
    WHERE s.run_id = (c ->> 0)::uuid AND s.step_type = c ->> 1 AND s.number = (c ->> 2)::int
        AND s.token = (c ->> 3)::uuid AND s.state = 'RUNNING'
        AND (s.method_deadline IS NULL OR s.method_deadline > v_now);
    GET DIAGNOSTICS v_renewed = ROW_COUNT;
    RETURN v_renewed;
END
$$;
