-- Cancels the open executions of Step types (all of the run, or only those of one parent, where '' is none) and returns
-- the waiters that their locks and places in the queue were holding up. The caller holds the run's row FOR NO KEY
-- UPDATE.
CREATE OR REPLACE FUNCTION dexflows_cancel_steps(p_run uuid, p_types jsonb, p_parent text, p_now timestamptz)
RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    v record;
    v_exclusive text[] := '{}';
    v_shared text[] := '{}';
BEGIN
    FOR v IN
        UPDATE dexflows_step_execution SET state = 'CANCELED', closed_at = p_now, token = NULL, lease_until = NULL,
            method_deadline = NULL, due_at = NULL, parked_reason = NULL
        WHERE run_id = p_run AND closed_at IS NULL
            AND step_type = ANY (ARRAY(SELECT jsonb_array_elements_text(p_types)))
            AND (p_parent IS NULL OR coalesce(from_step, '') = p_parent)
        RETURNING step_type, number
    LOOP
        WITH freed AS (
            DELETE FROM dexflows_lock_hold WHERE run_id = p_run AND step_type = v.step_type AND number = v.number
            RETURNING key, map_key
        ), left_queue AS (
            DELETE FROM dexflows_lock_wait WHERE run_id = p_run AND step_type = v.step_type AND number = v.number
            RETURNING exclusive, shared
        )
        SELECT v_exclusive || array_agg(key) FILTER (WHERE key IS NOT NULL),
            v_shared || array_agg(map_key) FILTER (WHERE map_key IS NOT NULL)
        INTO v_exclusive, v_shared
        FROM (
            SELECT key, map_key FROM freed
            UNION ALL SELECT unnest(exclusive), NULL FROM left_queue
            UNION ALL SELECT NULL, unnest(shared) FROM left_queue
        ) AS keys;
        PERFORM dexflows_record_events(p_run, v.step_type || '-' || v.number, '[["STEP_CANCELED", null]]', p_now);
    END LOOP;
    IF v_exclusive = '{}' THEN
        RETURN '[]';
    END IF;
    RETURN dexflows_wakeable(p_run, v_exclusive, v_shared);
END
$$;
