-- Opens an RPC: tries its whole set of locks and reads the state; with locks, inside the caller's transaction.
-- outcome: 'begun'; 'missing'; 'closed', 'closing' (p_active asks for a run that takes writes); 'conflict' (busy names the keys; the
-- caller rolls back). An RPC's locks are advisory locks that end with its transaction; after taking one, a fresh
-- snapshot (each statement of a VOLATILE function has its own) looks for a Step's hold.
-- p_timeout (ms) bounds the transaction on the server, also when the session idles; NULL inside an outer transaction.
-- Locks: lock keys (tried), nothing else: RPCs of one run meet on nothing but their keys, and hold no close up.
CREATE OR REPLACE FUNCTION dexflows_rpc_begin(
    p_flow_id text, p_run uuid, p_active bool, p_exclusive text[], p_shared text[], p_load jsonb, p_timeout text,
    OUT outcome text, OUT run_id uuid, OUT flow_type text, OUT run_queue text, OUT status text, OUT busy text[],
    OUT attributes text
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_key text;
    v_closing bool;
BEGIN
    IF p_timeout IS NOT NULL THEN
        IF current_setting('server_version_num')::int >= 170000 THEN
            PERFORM set_config('transaction_timeout', p_timeout, true);
        ELSE
            PERFORM set_config('statement_timeout', p_timeout, true),
                set_config('idle_in_transaction_session_timeout', p_timeout, true);
        END IF;
    END IF;
    SELECT r.run_id, r.flow_type, r.queue, r.status, r.closing IS NOT NULL
    INTO run_id, flow_type, run_queue, status, v_closing
    FROM dexflows_run r WHERE r.flow_id = p_flow_id AND (p_run IS NULL OR r.run_id = p_run)
    ORDER BY r.run_number DESC LIMIT 1;
    IF NOT FOUND THEN
        outcome := 'missing';
        RETURN;
    END IF;
    IF p_active AND status <> 'RUNNING' THEN
        outcome := 'closed';
        RETURN;
    ELSIF p_active AND v_closing THEN
        outcome := 'closing';
        RETURN;
    END IF;
    IF p_exclusive IS NOT NULL THEN
        busy := '{}';
        FOREACH v_key IN ARRAY p_exclusive LOOP
            IF NOT pg_try_advisory_xact_lock(dexflows_advisory(run_id, v_key)) THEN
                busy := busy || v_key;
            END IF;
        END LOOP;
        FOREACH v_key IN ARRAY p_shared LOOP
            IF NOT pg_try_advisory_xact_lock_shared(dexflows_advisory(run_id, v_key)) THEN
                busy := busy || v_key;
            END IF;
        END LOOP;
        busy := busy || ARRAY(
            SELECT h.key FROM dexflows_lock_hold h
            WHERE h.run_id = dexflows_rpc_begin.run_id
                AND (h.key = ANY (p_exclusive) OR h.map_key = ANY (p_exclusive) OR h.key = ANY (p_shared)));
        IF busy <> '{}' THEN
            outcome := 'conflict';
            RETURN;
        END IF;
    END IF;
    outcome := 'begun';
    attributes := CASE WHEN p_load IS NULL THEN '[]' ELSE dexflows_load(run_id, p_load) END;
END
$$;
