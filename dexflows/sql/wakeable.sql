-- The waiters that may take their locks now that p_exclusive and p_shared have become free, as references
-- [[flow type, step type, number, queue], ...]. Walks the queue in ticket order and stops once every freed key has
-- a waiter in front of it: nobody behind that one may overtake. Locks nothing.
CREATE OR REPLACE FUNCTION dexflows_wakeable(p_run uuid, p_exclusive text[], p_shared text[]) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    v record;
    v_ahead_exclusive text[] := '{}';
    v_ahead_shared text[] := '{}';
    v_found jsonb := '[]';
BEGIN
    FOR v IN
        SELECT w.step_type, w.number, w.exclusive, w.shared, s.flow_type, s.queue
        FROM dexflows_lock_wait w
        JOIN dexflows_step_execution s USING (run_id, step_type, number)
        WHERE w.run_id = p_run ORDER BY w.ticket
    LOOP
        IF (v.exclusive && p_exclusive OR v.exclusive && p_shared OR v.shared && p_exclusive)
            AND NOT (v.exclusive && v_ahead_exclusive OR v.exclusive && v_ahead_shared
                OR v.shared && v_ahead_exclusive)
            AND NOT EXISTS (
                SELECT FROM dexflows_lock_hold h
                WHERE h.run_id = p_run
                    AND (h.key = ANY (v.exclusive) OR h.map_key = ANY (v.exclusive) OR h.key = ANY (v.shared))
            )
        THEN
            v_found := v_found || jsonb_build_array(jsonb_build_array(v.flow_type, v.step_type, v.number, v.queue));
        END IF;
        v_ahead_exclusive := v_ahead_exclusive || v.exclusive;
        v_ahead_shared := v_ahead_shared || v.shared;
        EXIT WHEN p_exclusive <@ v_ahead_exclusive AND p_shared <@ v_ahead_shared;
    END LOOP;
    RETURN v_found;
END
$$;
