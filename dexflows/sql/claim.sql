-- Begins an attempt of a Step execution that is queued, has backed off long enough or whose wait holds: new token,
-- attempt counted and lease set before user code starts, locks taken or waited for, state read after the locks are held.
-- p_plan: {method: {"timeout", "heartbeat", "durability", "x", "s", "load"}}, the running code's declaration; a
-- movement's own options, stored with the row, come first.
-- outcome: 'claimed'; 'gone' (nothing to do here, or not from this queue); 'later' (due in `elapsed` seconds, if that is
-- known: a backoff, or a wait that does not hold yet); 'step' or 'rpc' (queued behind a lock, see acquire_locks).
-- Locks: run (only with locks declared, or to end a wait) -> step -> lock keys -> channels.
CREATE OR REPLACE FUNCTION dexflows_claim(
    p_run uuid, p_type text, p_number int, p_worker text, p_lease float8, p_plan jsonb,
    p_queue text,
    OUT outcome text, OUT flow_id text, OUT run_queue text, OUT method text, OUT attempt int, OUT token uuid,
    OUT first_attempt_at timestamptz, OUT elapsed float8, OUT from_step text, OUT input text, OUT options text,
    OUT locals text, OUT failure text, OUT locked bool, OUT attributes text, OUT more text
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_state text;
    v_plan jsonb;
    v_now timestamptz;
    v_durability text;
BEGIN
    SELECT s.state, s.method, coalesce(s.plan, p_plan) -> s.method::text,
        CASE WHEN s.state = 'BACKOFF' THEN extract(epoch FROM s.due_at - dexflows_now()) END
    INTO v_state, method, v_plan, elapsed
    FROM dexflows_step_execution s
    WHERE s.run_id = p_run AND s.step_type = p_type AND s.number = p_number AND s.queue = p_queue;
    outcome := 'gone';
    IF NOT FOUND OR v_state NOT IN ('QUEUED', 'WAITING', 'BACKOFF', 'WAITING_FOR_LOCK') THEN
        RETURN;
    END IF;
    IF elapsed > 0 THEN
        outcome := 'later';
        RETURN;
    END IF;
    IF v_state = 'WAITING' THEN
        SELECT w.outcome, w.due_in INTO outcome, elapsed FROM dexflows_end_wait(p_run, p_type, p_number) AS w;
        IF outcome <> 'ready' THEN
            RETURN;
        END IF;
        v_state := 'QUEUED';
        method := 'execute';
        SELECT coalesce(s.plan, p_plan) -> 'execute' INTO v_plan FROM dexflows_step_execution s
        WHERE s.run_id = p_run AND s.step_type = p_type AND s.number = p_number;
    END IF;
    locked := v_plan ? 'x';
    token := gen_random_uuid();
    IF locked THEN
        PERFORM FROM dexflows_run r WHERE r.run_id = p_run FOR NO KEY UPDATE;
        v_now := dexflows_now();
        PERFORM FROM dexflows_step_execution s
        WHERE s.run_id = p_run AND s.step_type = p_type AND s.number = p_number AND s.state = v_state
            AND s.method = dexflows_claim.method FOR UPDATE;
        IF NOT FOUND THEN
            RETURN;
        END IF;
        outcome := dexflows_acquire_locks(p_run, p_type, p_number, token,
            ARRAY(SELECT jsonb_array_elements_text(v_plan -> 'x')),
            ARRAY(SELECT jsonb_array_elements_text(v_plan -> 's')), v_now);
        IF outcome <> 'held' THEN
            UPDATE dexflows_step_execution s SET state = 'WAITING_FOR_LOCK', rings = least(s.rings + 1, 6),
                due_at = v_now + make_interval(secs => 5 * power(2, least(s.rings, 4)))
            WHERE s.run_id = p_run AND s.step_type = p_type AND s.number = p_number;
            RETURN;
        END IF;
    END IF;
    v_now := dexflows_now();
    UPDATE dexflows_step_execution s SET state = 'RUNNING', token = dexflows_claim.token, attempt = s.attempt + 1,
        worker = p_worker, lease_until = v_now + make_interval(secs => p_lease),
        method_deadline = v_now
            + make_interval(secs => least((v_plan ->> 'timeout')::float8, (v_plan ->> 'heartbeat')::float8)),
        due_at = NULL, rings = 0,
        parked_reason = NULL, first_attempt_at = coalesce(s.first_attempt_at, v_now), started_at = v_now
    WHERE s.run_id = p_run AND s.step_type = p_type AND s.number = p_number AND s.state = v_state
        AND s.method = dexflows_claim.method
    RETURNING s.attempt, s.first_attempt_at, extract(epoch FROM v_now - s.first_attempt_at)::float8, s.from_step,
        s.input::text, s.options::text, s.locals::text, s.failure::text,
        CASE WHEN num_nonnulls(s.waited, s.recovery, s.heartbeat) > 0 THEN jsonb_build_object(
            'waited', s.waited, 'recovery', s.recovery, 'heartbeat', s.heartbeat)::text END
    INTO attempt, first_attempt_at, elapsed, from_step, input, options, locals, failure, more;
    IF NOT FOUND THEN
        outcome := 'gone';
        RETURN;
    END IF;
    outcome := 'claimed';
    SELECT r.flow_id, r.queue, coalesce(v_plan ->> 'durability', r.config ->> 'step_durability')
    INTO flow_id, run_queue, v_durability FROM dexflows_run r WHERE r.run_id = p_run;
    IF v_durability = 'ASYNC' THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    attributes := dexflows_load(p_run, v_plan -> 'load');
END
$$;
