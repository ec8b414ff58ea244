-- Opens an RPC inside the caller's transaction: passes the run's gate, tries its whole set of locks, reads the state.
-- outcome: 'begun'; 'missing'; 'closed' (p_active asks for a running run); 'conflict' (busy names the keys; the
-- caller rolls back). An RPC's locks are advisory locks that end with its transaction; after taking one, a fresh
-- snapshot (each statement of a VOLATILE function has its own) looks for a Step's hold.
-- p_timeout (ms) bounds the transaction on the server, also when the session idles; NULL inside an outer transaction.
-- Locks: gate (shared) -> lock keys (tried). It takes no row lock: RPCs of one run meet on nothing but their keys.
CREATE OR REPLACE FUNCTION dexflows_rpc_begin(
    p_flow_id text, p_run uuid, p_active bool, p_exclusive text[], p_shared text[], p_load jsonb, p_timeout int
) RETURNS TABLE (outcome text, run_id uuid, flow_type text, run_queue text, status text, busy text[],
    attributes text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_run dexflows_run;
    v_seen uuid;
    v_key text;
    v_busy text[] := '{}';
BEGIN
    IF p_timeout IS NOT NULL THEN
        IF current_setting('server_version_num')::int >= 170000 THEN
            PERFORM set_config('transaction_timeout', p_timeout::text, true);
        ELSE
            PERFORM set_config('statement_timeout', p_timeout::text, true),
                set_config('idle_in_transaction_session_timeout', p_timeout::text, true);
        END IF;
    END IF;
    LOOP
        v_run := dexflows_find_run(p_flow_id, p_run);
        IF v_run.run_id IS NULL THEN
            RETURN QUERY SELECT 'missing', NULL::uuid, NULL::text, NULL::text, NULL::text, v_busy,
                NULL::text;
            RETURN;
        END IF;
        EXIT WHEN v_run.status <> 'RUNNING' OR v_run.run_id = v_seen;
        v_seen := v_run.run_id;
        PERFORM pg_advisory_xact_lock_shared(dexflows_gate(v_run.run_id));
    END LOOP;
    IF v_run.status <> 'RUNNING' AND p_active THEN
        RETURN QUERY SELECT 'closed', v_run.run_id, v_run.flow_type::text, v_run.queue::text, v_run.status::text, v_busy, NULL::text;
        RETURN;
    END IF;
    FOREACH v_key IN ARRAY p_exclusive LOOP
        IF NOT pg_try_advisory_xact_lock(dexflows_advisory(v_run.run_id, v_key)) THEN
            v_busy := v_busy || v_key;
        END IF;
    END LOOP;
    FOREACH v_key IN ARRAY p_shared LOOP
        IF NOT pg_try_advisory_xact_lock_shared(dexflows_advisory(v_run.run_id, v_key)) THEN
            v_busy := v_busy || v_key;
        END IF;
    END LOOP;
    IF p_exclusive <> '{}' THEN
        v_busy := v_busy || ARRAY(
            SELECT h.key FROM dexflows_lock_hold h
            WHERE h.run_id = v_run.run_id
                AND (h.key = ANY (p_exclusive) OR h.map_key = ANY (p_exclusive) OR h.key = ANY (p_shared)));
    END IF;
    IF v_busy <> '{}' THEN
        RETURN QUERY SELECT 'conflict', v_run.run_id, v_run.flow_type::text, v_run.queue::text, v_run.status::text, v_busy, NULL::text;
        RETURN;
    END IF;
    RETURN QUERY SELECT 'begun', v_run.run_id, v_run.flow_type::text, v_run.queue::text, v_run.status::text, v_busy,
        dexflows_load(v_run.run_id, p_load);
END
$$;
