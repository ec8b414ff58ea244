-- Takes parked Step executions of the types [[flow type, step type], ...] that the asking worker knows.
CREATE OR REPLACE FUNCTION dexflows_sweep_parked(p_known jsonb, p_limit int)
RETURNS TABLE (run_id uuid, flow_type text, step_type text, number int, queue text) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := dexflows_now();
BEGIN
    RETURN QUERY
    WITH parked AS (
        SELECT s.run_id, s.step_type, s.number
        FROM jsonb_array_elements(p_known) AS known
        JOIN dexflows_step_execution s ON s.flow_type = known ->> 0 AND s.step_type = known ->> 1
        WHERE s.parked_reason IS NOT NULL
        ORDER BY s.created_at LIMIT p_limit FOR UPDATE OF s SKIP LOCKED
    )
    UPDATE dexflows_step_execution s SET parked_reason = NULL, rings = 0, due_at = v_now + interval '5 s'
    FROM parked WHERE s.run_id = parked.run_id AND s.step_type = parked.step_type AND s.number = parked.number
    RETURNING s.run_id, s.flow_type::text, s.step_type::text, s.number, s.queue::text;
END
$$;
