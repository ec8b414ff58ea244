-- Creates Step executions of a running run and returns their references [[flow type, step type, number, queue], ...],
-- in order: queued, or with a `delay` in seconds not ready before that has passed. The caller holds the run's row FOR NO
-- KEY UPDATE, which makes the numbers of a Step type gapless and unique.
CREATE OR REPLACE FUNCTION dexflows_create_steps(
    p_run uuid, p_flow_type text, p_movements jsonb, p_from text, p_now timestamptz
) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    v_created jsonb;
BEGIN
    WITH movement AS (
        SELECT m.value, m.position, m.value ->> 'step_type' AS step_type,
            coalesce(m.value ->> 'queue', (SELECT r.queue FROM dexflows_run r WHERE r.run_id = p_run)) AS queue,
            row_number() OVER (PARTITION BY m.value ->> 'step_type' ORDER BY m.position) + coalesce((
                SELECT max(s.number) FROM dexflows_step_execution s
                WHERE s.run_id = p_run AND s.step_type = m.value ->> 'step_type'), 0) AS number
        FROM jsonb_array_elements(p_movements) WITH ORDINALITY AS m(value, position)
    ), created AS (
        INSERT INTO dexflows_step_execution (run_id, step_type, number, flow_type, queue, method, state, attempt, rings,
            from_step, input, options, plan, created_at, due_at)
        SELECT p_run, step_type, number, p_flow_type, queue, value ->> 'method',
            CASE WHEN value ? 'delay' THEN 'BACKOFF' ELSE 'QUEUED' END, 0, 0,
            p_from, value -> 'input', nullif(value -> 'options', 'null'), nullif(value -> 'plan', 'null'), p_now,
            p_now + make_interval(secs => coalesce((value ->> 'delay')::float8, 5))
        FROM movement
    )
    SELECT jsonb_agg(jsonb_build_array(p_flow_type, step_type, number, queue) ORDER BY position)
    INTO v_created FROM movement;
    RETURN v_created;
END
$$;
