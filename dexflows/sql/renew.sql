-- Extends the leases of attempts [[run, step type, number, token], ...] that are alive and within their timeout.
-- A row that another transaction has locked is being settled or canceled and is passed over: waiting for it while
-- holding others could deadlock with a close.
CREATE OR REPLACE FUNCTION dexflows_renew(p_claims jsonb, p_lease float8) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    v_now timestamptz := dexflows_now();
    v_renewed int;
BEGIN
    WITH alive AS (
        SELECT s.run_id, s.step_type, s.number
        FROM jsonb_array_elements(p_claims) AS c
        JOIN dexflows_step_execution s ON s.run_id = (c ->> 0)::uuid AND s.step_type = c ->> 1
            AND s.number = (c ->> 2)::int AND s.token = (c ->> 3)::uuid
        WHERE s.state = 'RUNNING' AND s.method_deadline > v_now
        FOR UPDATE OF s SKIP LOCKED
    )
    UPDATE dexflows_step_execution s SET lease_until = v_now + make_interval(secs => p_lease)
    FROM alive WHERE s.run_id = alive.run_id AND s.step_type = alive.step_type AND s.number = alive.number;
    GET DIAGNOSTICS v_renewed = ROW_COUNT;
    RETURN v_renewed;
END
$$;
