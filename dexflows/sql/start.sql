-- Starts a run of a Flow ID: run, initial Attributes and start Step appear together, or the existing run is named.
-- Starts of one Flow ID queue on an advisory lock, so the reuse policy always sees the outcome of the one before.
-- Locks: Flow ID (advisory) -> gate -> run.
CREATE OR REPLACE FUNCTION dexflows_start(
    p jsonb, OUT started bool, OUT run_id uuid, OUT request_id text, OUT rings text
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_latest dexflows_run;
    v_now timestamptz;
    v_policy text := p ->> 'policy';
    v_rings jsonb := '[]';
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(p ->> 'flow_id', 3));
    SELECT * INTO v_latest FROM dexflows_run r WHERE r.flow_id = p ->> 'flow_id'
    ORDER BY r.run_number DESC LIMIT 1;
    IF FOUND AND v_latest.status = 'RUNNING' AND v_policy = 'ALLOW_TERMINATE_IF_RUNNING' THEN
        PERFORM pg_advisory_xact_lock(dexflows_gate(v_latest.run_id));
        SELECT * INTO v_latest FROM dexflows_run r WHERE r.run_id = v_latest.run_id FOR UPDATE;
        IF v_latest.status = 'RUNNING' THEN
            v_rings := dexflows_close(v_latest.run_id, 'TERMINATED', NULL, 'replaced by a new run', dexflows_now());
        END IF;
    ELSIF v_latest.run_id IS NOT NULL AND (
        v_latest.status = 'RUNNING'
        OR v_policy IN ('DEFAULT', 'DISALLOW')
        OR (v_policy = 'ALLOW_IF_PREVIOUS_FAILED' AND v_latest.status = 'COMPLETED')
    ) THEN
        started := false;
        run_id := v_latest.run_id;
        request_id := v_latest.request_id;
        rings := '[]';
        RETURN;
    END IF;
    v_now := dexflows_now();
    started := true;
    run_id := dexflows_uuid7(v_now);
    request_id := p ->> 'request_id';
    INSERT INTO dexflows_run (run_id, flow_id, run_number, flow_type, status, queue, request_id, input, config,
        started_at)
    VALUES (dexflows_start.run_id, p ->> 'flow_id', coalesce(v_latest.run_number, 0) + 1, p ->> 'flow_type', 'RUNNING',
        p ->> 'queue', p ->> 'request_id', p -> 'input', nullif(p -> 'config', 'null'::jsonb), v_now);
    INSERT INTO dexflows_event (run_id, seq, at, kind) VALUES (dexflows_start.run_id, nextval('dexflows_event_seq'), v_now,
        'FLOW_STARTED');
    IF p ? 'effects' THEN
        PERFORM dexflows_apply_effects(dexflows_start.run_id, NULL, p -> 'effects', v_now);
    END IF;
    IF p ? 'movements' THEN
        v_rings := v_rings
            || dexflows_create_steps(dexflows_start.run_id, p ->> 'flow_type', p -> 'movements', NULL, v_now);
    END IF;
    rings := v_rings::text;
END
$$;
