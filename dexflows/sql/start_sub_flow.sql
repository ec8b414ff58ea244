-- Starts, or attaches to, the run that a condition of a Step waits for, and links the two. Called in the commit that
-- lets the Step wait; the caller holds the run's row of the parent. p_start: see `begin_run.sql`.
-- p_reuse says what becomes of an earlier run of the same Flow ID, as `states.SubFlowReusePolicy` tells.
-- A running run that is attached to cannot close before this commits: its close then finds the link. One that closes
-- first is seen closed here, and its retry, if it has one, is attached to instead.
-- Locks: Flow ID (advisory) -> gate (only to terminate) -> the child's run row, never the parent's again.
CREATE OR REPLACE FUNCTION dexflows_start_sub_flow(
    p_parent uuid, p_parent_flow_id text, p_type text, p_number int, p_condition int, p_reuse text, p_start jsonb,
    p_now timestamptz, OUT child_run_id uuid, OUT rings jsonb
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_flow_id text := 'SubFlow:' || p_parent_flow_id || '-' || p_type || '-' || p_number || '-' || p_condition;
    v_latest record;
    v_next record;
BEGIN
    IF length(v_flow_id) > 1024 OR octet_length(v_flow_id) > 2000 THEN
        RAISE EXCEPTION 'the Flow ID of the SubFlow would be % characters and % bytes long, more than the 1024 and 2000 '
            'that are allowed: give the parent a shorter Flow ID or nest SubFlows less deeply',
            length(v_flow_id), octet_length(v_flow_id) USING ERRCODE = 'DF010';
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended(v_flow_id, 3));
    LOOP
        SELECT r.run_id, r.run_number, r.status INTO v_latest
        FROM dexflows_run r WHERE r.flow_id = v_flow_id ORDER BY r.run_number DESC LIMIT 1;
        EXIT WHEN NOT FOUND;
        IF v_latest.status <> 'RUNNING' THEN
            IF p_reuse = 'ATTACH' OR (p_reuse <> 'ALWAYS_RESTART' AND v_latest.status = 'COMPLETED') THEN
                child_run_id := v_latest.run_id;
            END IF;
            EXIT;
        ELSIF p_reuse = 'ALWAYS_RESTART' THEN
            rings := dexflows_replace(v_latest.run_id);
            EXIT WHEN rings IS NOT NULL;
        ELSE
            PERFORM FROM dexflows_run r WHERE r.run_id = v_latest.run_id AND r.status = 'RUNNING' FOR KEY SHARE;
            IF FOUND THEN
                child_run_id := v_latest.run_id;
                EXIT;
            END IF;
        END IF;
    END LOOP;
    IF child_run_id IS NULL THEN
        SELECT * INTO v_next FROM dexflows_begin_run(p_start, v_flow_id, coalesce(v_latest.run_number, 0) + 1, NULL,
            p_parent, NULL, p_now);
        child_run_id := v_next.run_id;
        rings := coalesce(rings, '[]') || v_next.rings;
    END IF;
    rings := coalesce(rings, '[]');
    INSERT INTO dexflows_sub_flow (run_id, step_type, number, condition, child_run_id)
    VALUES (p_parent, p_type, p_number, p_condition, dexflows_start_sub_flow.child_run_id)
    ON CONFLICT (run_id, step_type, number, condition) DO UPDATE SET child_run_id = excluded.child_run_id;
END
$$;
