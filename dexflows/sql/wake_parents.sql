-- Lets every Step that waits for this run as a SubFlow be due now, and returns their references, each with its own run.
-- The caller closes the run in this transaction, under its row FOR UPDATE. A Step that is only about to wait has asked
-- for this row first (`start_sub_flow.sql`): it either finds the run closed or is found here.
-- Locks: the waiting Steps' rows, in order, and never their runs'.
CREATE OR REPLACE FUNCTION dexflows_wake_parents(p_run uuid, p_now timestamptz) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    v_rings jsonb;
BEGIN
    WITH waiting AS (
        SELECT s.run_id, s.step_type, s.number
        FROM dexflows_sub_flow l JOIN dexflows_step_execution s USING (run_id, step_type, number)
        WHERE l.child_run_id = p_run AND s.state = 'WAITING'
        ORDER BY s.run_id, s.step_type, s.number FOR NO KEY UPDATE OF s
    ), woken AS (
        UPDATE dexflows_step_execution s SET due_at = p_now
        FROM waiting w WHERE s.run_id = w.run_id AND s.step_type = w.step_type AND s.number = w.number
        RETURNING s.flow_type, s.step_type, s.number, s.queue, s.run_id
    )
    SELECT jsonb_agg(jsonb_build_array(flow_type, step_type, number, queue, run_id)) INTO v_rings FROM woken;
    RETURN coalesce(v_rings, '[]');
END
$$;
