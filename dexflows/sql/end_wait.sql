-- Looks at a waiting Step execution because a timer of it is due or a SubFlow has closed. outcome: 'ready' (queued for
-- `execute` now), 'later' (due_in: seconds until its next timer, NULL without one) or 'gone'. Locks: run -> step -> channels.
CREATE OR REPLACE FUNCTION dexflows_end_wait(p_run uuid, p_type text, p_number int, OUT outcome text, OUT due_in float8)
LANGUAGE plpgsql AS $$
DECLARE
    v_wait jsonb;
    v_waited jsonb;
    v_now timestamptz;
    v_due timestamptz;
BEGIN
    PERFORM FROM dexflows_run WHERE run_id = p_run FOR NO KEY UPDATE;
    SELECT wait INTO v_wait FROM dexflows_step_execution
    WHERE run_id = p_run AND step_type = p_type AND number = p_number AND state = 'WAITING' FOR UPDATE;
    IF NOT FOUND THEN
        outcome := 'gone';
        RETURN;
    END IF;
    v_now := dexflows_now();
    v_waited := dexflows_evaluate(p_run, p_type, p_number, v_wait, v_now);
    IF v_waited IS NOT NULL THEN
        outcome := 'ready';
        PERFORM dexflows_ready(p_run, p_type, p_number, v_waited, v_now);
        RETURN;
    END IF;
    outcome := 'later';
    v_due := dexflows_next_timer(v_wait, v_now);
    due_in := extract(epoch FROM v_due - v_now);
    UPDATE dexflows_step_execution SET due_at = v_due, rings = 0
    WHERE run_id = p_run AND step_type = p_type AND number = p_number AND due_at IS DISTINCT FROM v_due;
END
$$;
