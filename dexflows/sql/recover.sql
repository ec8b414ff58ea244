-- Queues the Step that takes over from an execution that has failed for good: with its input, and with its failure to
-- read. p_recover {step_type, method, queue}; without a queue, on the run's. Returns its reference, see create_steps.sql.
-- The caller holds the run's row FOR NO KEY UPDATE.
CREATE OR REPLACE FUNCTION dexflows_recover(
    p_run uuid, p_flow_type text, p_type text, p_number int, p_recover jsonb, p_now timestamptz
) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    v_failed dexflows_step_execution;
    v_rings jsonb;
BEGIN
    SELECT * INTO v_failed FROM dexflows_step_execution
    WHERE run_id = p_run AND step_type = p_type AND number = p_number;
    v_rings := dexflows_create_steps(p_run, p_flow_type,
        jsonb_build_array(p_recover || jsonb_build_object('input', v_failed.input)),
        p_type || '-' || p_number, p_now);
    UPDATE dexflows_step_execution SET recovery = jsonb_build_object(
        'error_type', v_failed.failure -> 'error_type', 'detail', v_failed.failure -> 'detail')
    WHERE run_id = p_run AND step_type = v_rings #>> '{0,1}' AND number = (v_rings #>> '{0,2}')::int;
    RETURN v_rings;
END
$$;
