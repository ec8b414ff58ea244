-- Sets a Step execution aside that the asking worker does not know. Neither an attempt nor a failure.
CREATE OR REPLACE FUNCTION dexflows_park(p_run uuid, p_type text, p_number int, p_reason text) RETURNS bool
LANGUAGE sql AS $$
    WITH parked AS (
        UPDATE dexflows_step_execution SET parked_reason = p_reason
        WHERE run_id = p_run AND step_type = p_type AND number = p_number
            AND state IN ('QUEUED', 'WAITING_FOR_LOCK') AND parked_reason IS NULL
        RETURNING 1
    )
    SELECT EXISTS (SELECT FROM parked)
$$;
