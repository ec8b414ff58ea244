-- Terminates a running run in favour of a new one, and returns whom to ring; NULL if it has closed meanwhile.
-- The caller holds the Flow ID's advisory lock. Locks: gate -> run.
CREATE OR REPLACE FUNCTION dexflows_replace(p_run uuid) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(dexflows_gate(p_run));
    PERFORM FROM dexflows_run WHERE run_id = p_run AND status = 'RUNNING' FOR UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    RETURN dexflows_close(p_run, 'TERMINATED', NULL, 'replaced by a new run', dexflows_now());
END
$$;
