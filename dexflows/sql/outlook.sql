-- How the timers and SubFlows of a wait stand at the moment of its decision: {timers: [[index, fired], ...],
-- sub_flows: [[index, result], ...]}, each only where the wait has some.
CREATE OR REPLACE FUNCTION dexflows_outlook(
    p_run uuid, p_type text, p_number int, p_conditions jsonb, p_now timestamptz
) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    v_timers jsonb;
    v_sub_flows jsonb;
BEGIN
    SELECT jsonb_agg(jsonb_build_array(position - 1, (c ->> 'due')::timestamptz <= p_now) ORDER BY position)
    INTO v_timers FROM jsonb_array_elements(p_conditions) WITH ORDINALITY AS conditions(c, position) WHERE c ? 'due';
    IF p_conditions @> '[{"sub_flow": true}]' THEN
        SELECT jsonb_agg(jsonb_build_array(l.condition, jsonb_build_object(
            'status', r.status, 'error_type', r.error_type, 'error_message', r.error_message,
            'completions', coalesce((
                SELECT jsonb_agg(jsonb_build_array(s.step_type, s.number, s.output) ORDER BY s.closed_at, s.step_type, s.number)
                FROM dexflows_step_execution s
                WHERE s.run_id = r.run_id AND s.output IS NOT NULL AND r.status <> 'RUNNING'), '[]')
        )) ORDER BY l.condition)
        INTO v_sub_flows FROM dexflows_sub_flow l JOIN dexflows_run r ON r.run_id = l.child_run_id
        WHERE l.run_id = p_run AND l.step_type = p_type AND l.number = p_number;
    END IF;
    RETURN CASE WHEN v_timers IS NOT NULL THEN jsonb_build_object('timers', v_timers) ELSE '{}' END
        || CASE WHEN v_sub_flows IS NOT NULL THEN jsonb_build_object('sub_flows', v_sub_flows) ELSE '{}' END;
END
$$;
