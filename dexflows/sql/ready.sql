-- Ends the wait of a Step execution, which is then queued for `execute`; what `wait_for` left was cleared when the wait
-- began. The caller holds the run's row.
CREATE OR REPLACE FUNCTION dexflows_ready(
    p_run uuid, p_type text, p_number int, p_waited jsonb, p_now timestamptz
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE dexflows_step_execution SET state = 'QUEUED', method = 'execute', waited = p_waited, rings = 0,
        due_at = p_now + interval '5 s'
    WHERE run_id = p_run AND step_type = p_type AND number = p_number AND state = 'WAITING';
END
$$;
