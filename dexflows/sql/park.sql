-- Sets a Step execution aside that the asking worker does not know. Neither an attempt nor a failure. A parked waiter
-- for locks leaves their queue, so that nobody stands behind a Step that no worker can run; rings names those who
-- may go on. Locks: run -> step.
CREATE OR REPLACE FUNCTION dexflows_park(p_run uuid, p_type text, p_number int, p_reason text)
RETURNS TABLE (parked bool, rings text) LANGUAGE plpgsql AS $$
DECLARE
    v_wait dexflows_lock_wait;
    v_rings jsonb := '[]';
BEGIN
    PERFORM FROM dexflows_run WHERE run_id = p_run FOR NO KEY UPDATE;
    UPDATE dexflows_step_execution SET parked_reason = p_reason, due_at = dexflows_now(),
        state = CASE state WHEN 'WAITING' THEN state ELSE 'QUEUED' END
    WHERE run_id = p_run AND step_type = p_type AND number = p_number
        AND state IN ('QUEUED', 'WAITING', 'WAITING_FOR_LOCK') AND parked_reason IS NULL;
    IF NOT FOUND THEN
        RETURN QUERY SELECT false, '[]';
        RETURN;
    END IF;
    DELETE FROM dexflows_lock_wait WHERE run_id = p_run AND step_type = p_type AND number = p_number
    RETURNING * INTO v_wait;
    IF FOUND THEN
        v_rings := dexflows_wakeable(p_run, v_wait.exclusive, v_wait.shared);
    END IF;
    RETURN QUERY SELECT true, v_rings::text;
END
$$;
