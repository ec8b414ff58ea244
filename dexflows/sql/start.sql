-- Starts a run of a Flow ID: run, initial Attributes and start Step appear together, or the existing run is named.
-- Starts of one Flow ID queue on an advisory lock, so the reuse policy always sees the outcome of the one before.
-- A running run that is to be terminated may close by itself meanwhile, and be retried: then the latest is looked for
-- again. p: {flow_id, policy, request_id} and what `begin_run.sql` takes.
-- Locks: Flow ID (advisory) -> gate -> run.
CREATE OR REPLACE FUNCTION dexflows_start(
    p jsonb, OUT started bool, OUT run_id uuid, OUT request_id text, OUT rings text
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_latest record;
    v_policy text := p ->> 'policy';
    v_closed jsonb;
    v_next record;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(p ->> 'flow_id', 3));
    LOOP
        SELECT r.run_id, r.run_number, r.status, r.request_id INTO v_latest
        FROM dexflows_run r WHERE r.flow_id = p ->> 'flow_id' ORDER BY r.run_number DESC LIMIT 1;
        EXIT WHEN NOT FOUND OR v_latest.status <> 'RUNNING' OR v_policy <> 'ALLOW_TERMINATE_IF_RUNNING';
        v_closed := dexflows_replace(v_latest.run_id);
        EXIT WHEN v_closed IS NOT NULL;
    END LOOP;
    IF v_closed IS NULL AND v_latest.run_id IS NOT NULL AND (
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
    SELECT * INTO v_next FROM dexflows_begin_run(p, p ->> 'flow_id',
        coalesce(v_latest.run_number, 0) + 1, p ->> 'request_id', NULL, NULL, dexflows_now());
    started := true;
    run_id := v_next.run_id;
    request_id := p ->> 'request_id';
    rings := (coalesce(v_closed, '[]') || v_next.rings)::text;
END
$$;
