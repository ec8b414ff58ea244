-- Begins an attempt of a queued Step execution: new token, attempt counted and lease set before user code starts,
-- locks taken or waited for, state read after the locks are held. p_plan: {method: {"timeout", "x", "s", "load"}}, the
-- running code's declaration; a movement's own options, stored with the row, come first.
-- outcome: 'claimed'; 'gone' (nothing to do here); 'step' or 'rpc' (queued behind a lock, see acquire_locks).
-- Locks: run (only with locks declared) -> step -> lock keys.
CREATE OR REPLACE FUNCTION dexflows_claim(
    p_run uuid, p_type text, p_number int, p_worker text, p_lease float8, p_plan jsonb
) RETURNS TABLE (
    outcome text, flow_id text, run_queue text, method text, attempt int, token uuid, first_attempt_at timestamptz,
    elapsed float8, from_step text, input text, options text, locals text, failure text, locked bool, attributes text
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_step dexflows_step_execution;
    v_plan jsonb;
    v_token uuid := gen_random_uuid();
    v_now timestamptz;
    v_exclusive text[];
    v_shared text[];
    v_outcome text;
    v_locked bool;
    v_flow_id text;
    v_run_queue text;
    v_durability text;
BEGIN
    SELECT * INTO v_step FROM dexflows_step_execution s
    WHERE s.run_id = p_run AND s.step_type = p_type AND s.number = p_number;
    IF NOT FOUND OR v_step.state NOT IN ('QUEUED', 'WAITING_FOR_LOCK') THEN
        RETURN QUERY SELECT 'gone', NULL::text, NULL::text, NULL::text, 0, NULL::uuid, NULL::timestamptz, 0::float8,
            NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, false, NULL::text;
        RETURN;
    END IF;
    v_plan := coalesce(v_step.plan, p_plan) -> v_step.method::text;
    v_locked := v_plan ? 'x';
    IF v_locked THEN
        v_exclusive := ARRAY(SELECT jsonb_array_elements_text(v_plan -> 'x'));
        v_shared := ARRAY(SELECT jsonb_array_elements_text(v_plan -> 's'));
        PERFORM FROM dexflows_run r WHERE r.run_id = p_run FOR NO KEY UPDATE;
        v_now := dexflows_now();
        PERFORM FROM dexflows_step_execution s
        WHERE s.run_id = p_run AND s.step_type = p_type AND s.number = p_number AND s.state = v_step.state
            AND s.method = v_step.method FOR UPDATE;
        IF FOUND THEN
            v_outcome := dexflows_acquire_locks(p_run, p_type, p_number, v_token, v_exclusive, v_shared, v_now);
        ELSE
            v_outcome := 'gone';
        END IF;
        IF v_outcome <> 'held' THEN
            UPDATE dexflows_step_execution s SET state = 'WAITING_FOR_LOCK', rings = least(s.rings + 1, 6),
                due_at = v_now + make_interval(secs => 5 * power(2, least(s.rings, 4)))
            WHERE v_outcome <> 'gone' AND s.run_id = p_run AND s.step_type = p_type AND s.number = p_number;
            RETURN QUERY SELECT v_outcome, NULL::text, NULL::text, NULL::text, 0, NULL::uuid, NULL::timestamptz,
                0::float8, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, true, NULL::text;
            RETURN;
        END IF;
    END IF;
    v_now := dexflows_now();
    UPDATE dexflows_step_execution s SET state = 'RUNNING', token = v_token, attempt = s.attempt + 1,
        worker = p_worker, lease_until = v_now + make_interval(secs => p_lease),
        method_deadline = v_now + make_interval(secs => (v_plan ->> 'timeout')::float8), due_at = NULL, rings = 0,
        parked_reason = NULL, first_attempt_at = coalesce(s.first_attempt_at, v_now), started_at = v_now
    WHERE s.run_id = p_run AND s.step_type = p_type AND s.number = p_number AND s.state = v_step.state
        AND s.method = v_step.method
    RETURNING * INTO v_step;
    IF NOT FOUND THEN
        RETURN QUERY SELECT 'gone', NULL::text, NULL::text, NULL::text, 0, NULL::uuid, NULL::timestamptz, 0::float8,
            NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, false, NULL::text;
        RETURN;
    END IF;
    SELECT r.flow_id, r.queue, r.config ->> 'step_durability' INTO v_flow_id, v_run_queue, v_durability
    FROM dexflows_run r WHERE r.run_id = p_run;
    IF v_durability = 'ASYNC' THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    RETURN QUERY SELECT 'claimed', v_flow_id, v_run_queue, v_step.method::text, v_step.attempt, v_token,
        v_step.first_attempt_at, extract(epoch FROM v_now - v_step.first_attempt_at)::float8, v_step.from_step::text,
        v_step.input::text, v_step.options::text, v_step.locals::text, v_step.failure::text, v_locked,
        dexflows_load(p_run, v_plan -> 'load');
END
$$;
