-- Stores what an RPC, or a write from outside, buffered, inside its transaction; returns the Steps to ring after the
-- commit. It passes the run's gate first, so a run cannot close between here and the commit; one that has closed since
-- it was read raises DF001, one that waits for its Attribute Stores to close DF003, which undoes the whole RPC.
-- Locks: gate (shared) -> run (only to create or cancel Steps, publish or delete messages) -> channels -> attributes,
-- and the gate exclusively if a cancellation ends the run.
CREATE OR REPLACE FUNCTION dexflows_rpc_commit(
    p_run uuid, p_flow_type text, p_effects jsonb, p_movements jsonb, p_cancel jsonb
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    v_rings jsonb := '[]';
    v_now timestamptz;
    v_closing bool;
BEGIN
    PERFORM pg_advisory_xact_lock_shared(dexflows_gate(p_run));
    SELECT closing IS NOT NULL INTO v_closing FROM dexflows_run WHERE run_id = p_run AND status = 'RUNNING';
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the run has closed' USING ERRCODE = 'DF001';
    ELSIF v_closing THEN
        RAISE EXCEPTION 'the run is closing' USING ERRCODE = 'DF003';
    END IF;
    IF p_movements IS NOT NULL OR p_cancel IS NOT NULL OR p_effects ?| '{published,deleted}' THEN
        PERFORM FROM dexflows_run WHERE run_id = p_run FOR NO KEY UPDATE;
    END IF;
    v_now := dexflows_now();
    -- Before anything is published: what is canceled takes no message.
    IF p_cancel IS NOT NULL THEN
        v_rings := v_rings || dexflows_cancel_steps(p_run, p_cancel, NULL, v_now);
    END IF;
    IF p_effects IS NOT NULL THEN
        v_rings := v_rings || dexflows_apply_effects(p_run, NULL, p_effects, v_now);
    END IF;
    IF p_movements IS NOT NULL THEN
        v_rings := v_rings || dexflows_create_steps(p_run, p_flow_type, p_movements, NULL, v_now);
    END IF;
    IF p_cancel IS NOT NULL AND NOT EXISTS (
        SELECT FROM dexflows_step_execution WHERE run_id = p_run AND closed_at IS NULL
    ) AND EXISTS (
        SELECT FROM dexflows_step_execution WHERE run_id = p_run AND output IS NOT NULL
    ) THEN
        -- The last open branch was canceled after another had completed. An RPC past the gate that waits for the run's
        -- row makes this a deadlock, and the database restarts one of the two.
        PERFORM pg_advisory_xact_lock(dexflows_gate(p_run));
        PERFORM FROM dexflows_run WHERE run_id = p_run FOR UPDATE;
        v_rings := dexflows_end_run(p_run, 'COMPLETED', NULL, NULL, v_now);
    END IF;
    RETURN v_rings::text;
END
$$;
