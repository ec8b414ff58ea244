-- Ends an attempt of `wait_for` that returned conditions, like settle.sql: fenced by token, it stores what the
-- handler buffered and begins to wait. A wait that holds already goes on to `execute`, for the same worker if p_run_on
-- says so. waited: what the wait came to, NULL while it lasts. Locks: run -> step -> channels -> attributes.
CREATE OR REPLACE FUNCTION dexflows_settle_wait(
    p_run uuid, p_type text, p_number int, p_token uuid, p_effects jsonb, p_wait jsonb, p_run_on jsonb, p_more jsonb,
    OUT landed bool, OUT status text, OUT rings text, OUT next_number int, OUT next_token uuid, OUT attributes text,
    OUT at timestamptz, OUT waited text
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_flow_id text;
    v_durability text;
    v_waited jsonb;
    v_begun record;
    v_rings jsonb := '[]';
BEGIN
    landed := false;
    SELECT r.status, r.flow_id, coalesce(p_more ->> 'durability', r.config ->> 'step_durability')
    INTO status, v_flow_id, v_durability FROM dexflows_run r WHERE r.run_id = p_run FOR NO KEY UPDATE;
    IF v_durability = 'ASYNC' THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    PERFORM FROM dexflows_step_execution s WHERE s.run_id = p_run AND s.step_type = p_type AND s.number = p_number
        AND s.token = p_token FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    landed := true;
    at := dexflows_now();
    IF p_effects IS NOT NULL THEN
        v_rings := dexflows_apply_effects(p_run, p_type || '-' || p_number, p_effects, at);
    END IF;
    IF p_more ? 'release' THEN
        v_rings := v_rings || dexflows_release_locks(p_run, p_type, p_number, p_token);
    END IF;
    SELECT * INTO v_begun FROM dexflows_begin_wait(p_run, v_flow_id, p_type, p_number, p_wait, at);
    rings := (v_rings || v_begun.rings)::text;
    v_waited := dexflows_evaluate(p_run, p_type, p_number, v_begun.wait, at);
    waited := v_waited::text;
    IF v_waited IS NOT NULL AND p_run_on IS NOT NULL THEN
        next_token := gen_random_uuid();
        attributes := dexflows_load(p_run, nullif(p_run_on -> 'load', 'null'));
    END IF;
    UPDATE dexflows_step_execution s SET
        state = CASE WHEN v_waited IS NULL THEN 'WAITING' WHEN next_token IS NULL THEN 'QUEUED' ELSE 'RUNNING' END,
        method = CASE WHEN v_waited IS NULL THEN s.method ELSE 'execute' END,
        wait = v_begun.wait, waited = v_waited, token = next_token,
        lease_until = CASE WHEN next_token IS NOT NULL THEN at + make_interval(secs => (p_run_on ->> 'lease')::float8) END,
        method_deadline = CASE WHEN next_token IS NOT NULL
            THEN at + make_interval(secs => (p_run_on ->> 'timeout')::float8) END,
        attempt = CASE WHEN next_token IS NOT NULL THEN 1 ELSE 0 END,
        first_attempt_at = CASE WHEN next_token IS NOT NULL THEN at END,
        started_at = CASE WHEN next_token IS NOT NULL THEN at ELSE s.started_at END,
        due_at = CASE WHEN v_waited IS NULL THEN dexflows_next_timer(v_begun.wait, at)
            WHEN next_token IS NULL THEN at + interval '5 s' END,
        rings = 0, heartbeat = NULL, failure = NULL,
        locals = coalesce(s.locals || (p_effects -> 'locals'), p_effects -> 'locals', s.locals)
    WHERE s.run_id = p_run AND s.step_type = p_type AND s.number = p_number;
END
$$;
