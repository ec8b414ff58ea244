-- Creates Step executions of a running run and returns their references [[flow type, step type, number, queue], ...].
-- The caller holds the run's row FOR NO KEY UPDATE, which makes the numbers of a Step type gapless and unique.
-- p_run_on claims the (single) new Step at once for the worker that settles its parent.
CREATE OR REPLACE FUNCTION dexflows_create_steps(
    p_run uuid, p_flow_type text, p_movements jsonb, p_from text, p_now timestamptz, p_run_on jsonb
) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    v_movement jsonb;
    v_number int;
    v_created jsonb := '[]';
    v_claimed bool := p_run_on IS NOT NULL;
BEGIN
    FOR v_movement IN SELECT jsonb_array_elements(p_movements) LOOP
        SELECT coalesce(max(number), 0) + 1 INTO v_number FROM dexflows_step_execution
        WHERE run_id = p_run AND step_type = v_movement ->> 'step_type';
        INSERT INTO dexflows_step_execution (
            run_id, step_type, number, flow_type, queue, method, state, attempt, rings, from_step, input, options,
            plan, created_at, due_at, token, worker, lease_until, method_deadline, first_attempt_at, started_at
        ) VALUES (
            p_run, v_movement ->> 'step_type', v_number, p_flow_type, v_movement ->> 'queue',
            v_movement ->> 'method', CASE WHEN v_claimed THEN 'RUNNING' ELSE 'QUEUED' END,
            CASE WHEN v_claimed THEN 1 ELSE 0 END, 0, p_from, v_movement -> 'input',
            nullif(v_movement -> 'options', 'null'::jsonb), nullif(v_movement -> 'plan', 'null'::jsonb), p_now,
            CASE WHEN NOT v_claimed THEN p_now + interval '5 s' END,
            (p_run_on ->> 'token')::uuid, p_run_on ->> 'worker',
            p_now + make_interval(secs => (p_run_on ->> 'lease')::float8),
            p_now + make_interval(secs => (p_run_on ->> 'timeout')::float8),
            CASE WHEN v_claimed THEN p_now END, CASE WHEN v_claimed THEN p_now END
        );
        v_created := v_created || jsonb_build_array(jsonb_build_array(
            p_flow_type, v_movement ->> 'step_type', v_number, v_movement ->> 'queue'));
    END LOOP;
    RETURN v_created;
END
$$;
