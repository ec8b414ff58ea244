-- Closes a run that waits for its Attribute Stores, if nothing is left to wait for; returns whom to ring.
-- Two that remove its last two marks at the same time meet at the gate, and the second finds none left.
-- Locks: gate (exclusive) -> run. The caller may hold marks of this run, which nobody waits for who holds these locks.
CREATE OR REPLACE FUNCTION dexflows_finish_closing(p_run uuid) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    v_closing jsonb;
BEGIN
    PERFORM pg_advisory_xact_lock(dexflows_gate(p_run));
    SELECT closing INTO v_closing FROM dexflows_run WHERE run_id = p_run AND status = 'RUNNING' FOR UPDATE;
    IF v_closing IS NULL OR EXISTS (SELECT FROM dexflows_store_write WHERE run_id = p_run AND dropped_at IS NULL) THEN
        RETURN '[]';
    END IF;
    RETURN dexflows_close(p_run, v_closing ->> 'status', v_closing ->> 'error_type', v_closing ->> 'error_message',
        dexflows_now());
END
$$;
