-- Ends an attempt, in one transaction: fenced by token, it stores everything the handler buffered, releases its locks,
-- creates the next Steps, closes the run, and may claim the next handler for the same worker. A row has a token only
-- while RUNNING; asking for that state too would offer the planner the index of leases, and with it all that run.
-- p_effects {writes, events, locals}; p_movements [...]; p_run_on {worker, lease, timeout, load}: claim the one
-- movement, or with p_state RUNNING this Step's `execute`; p_close {mode, status, error_type, error_message, unless}:
-- with `unless` the run closes if these Channels are empty, else the movements are created;
-- p_more {delay, method, waited, uncounted, expired, failure, recover, release, cancel, cancel_siblings, durability}:
-- with `waited` the Step goes on to another method without its worker and is rung; `recover`: see recover.sql. NULL:
-- nothing of it.
-- With durability ASYNC the commit does not wait for the disk: a crash of the server may undo the last moments, as a
-- whole and in order. landed = false: the attempt is no longer the current one and nothing was changed.
-- Close mode 'force' closes now; 'graceful' when no branch is left; 'dead_end' likewise, if another branch completed.
-- Locks: gate (only where the run may close) -> run -> step -> channels -> attributes.
CREATE OR REPLACE FUNCTION dexflows_settle(
    p_run uuid, p_type text, p_number int, p_token uuid, p_state text, p_output jsonb, p_effects jsonb,
    p_movements jsonb, p_run_on jsonb, p_close jsonb, p_more jsonb,
    OUT landed bool, OUT status text, OUT rings text, OUT next_number int, OUT next_token uuid, OUT attributes text,
    OUT at timestamptz
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_durability text;
    v_queue text;
    v_flow_type text;
    v_from text;
    v_load jsonb;
    v_rings jsonb := '[]';
    v_gate bool := p_close ->> 'mode' IN ('force', 'graceful') OR (p_close IS NOT NULL AND EXISTS (
        SELECT FROM dexflows_step_execution s WHERE s.run_id = p_run AND s.output IS NOT NULL));
BEGIN
    landed := false;
    IF v_gate THEN
        PERFORM pg_advisory_xact_lock(dexflows_gate(p_run));
        SELECT r.status, coalesce(p_more ->> 'durability', r.config ->> 'step_durability'), r.queue
        INTO status, v_durability, v_queue FROM dexflows_run r WHERE r.run_id = p_run FOR UPDATE;
    ELSE
        SELECT r.status, coalesce(p_more ->> 'durability', r.config ->> 'step_durability'), r.queue
        INTO status, v_durability, v_queue
        FROM dexflows_run r WHERE r.run_id = p_run FOR NO KEY UPDATE;
    END IF;
    IF v_durability = 'ASYNC' THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    at := dexflows_now();
    IF p_run_on IS NOT NULL THEN
        next_token := gen_random_uuid();
    END IF;
    IF p_state IN ('COMPLETED', 'FAILED') THEN
        UPDATE dexflows_step_execution s SET state = p_state, token = NULL, lease_until = NULL, method_deadline = NULL,
            output = p_output, failure = coalesce(p_more -> 'failure', s.failure), heartbeat = NULL, closed_at = at
        WHERE s.run_id = p_run AND s.step_type = p_type AND s.number = p_number AND s.token = p_token
            AND (p_more -> 'expired' IS NULL OR s.lease_until < at)
        RETURNING s.flow_type, s.from_step INTO v_flow_type, v_from;
    ELSE
        UPDATE dexflows_step_execution s SET
            state = p_state,
            token = next_token,
            lease_until = at + make_interval(secs => (p_run_on ->> 'lease')::float8),
            method_deadline = at + make_interval(secs => (p_run_on ->> 'timeout')::float8),
            method = coalesce(p_more ->> 'method', s.method),
            attempt = CASE WHEN p_run_on IS NOT NULL THEN 1 WHEN p_more ? 'method' THEN 0
                WHEN p_more ? 'uncounted' THEN s.attempt - 1 ELSE s.attempt END,
            first_attempt_at = CASE WHEN p_run_on IS NOT NULL THEN at WHEN p_more ? 'method' THEN NULL
                ELSE s.first_attempt_at END,
            started_at = CASE WHEN p_run_on IS NOT NULL THEN at ELSE s.started_at END,
            due_at = CASE WHEN p_run_on IS NULL
                THEN at + make_interval(secs => coalesce((p_more ->> 'delay')::float8, 5)) END,
            failure = coalesce(p_more -> 'failure', CASE WHEN p_more ? 'method' THEN NULL ELSE s.failure END),
            heartbeat = CASE WHEN p_more ? 'method' THEN NULL ELSE s.heartbeat END,
            waited = coalesce(p_more -> 'waited', s.waited),
            locals = coalesce(s.locals || (p_effects -> 'locals'), p_effects -> 'locals', s.locals)
        WHERE s.run_id = p_run AND s.step_type = p_type AND s.number = p_number AND s.token = p_token
            AND (p_more -> 'expired' IS NULL OR s.lease_until < at)
        RETURNING s.flow_type, s.from_step INTO v_flow_type, v_from;
    END IF;
    IF NOT FOUND THEN
        next_token := NULL;
        RETURN;
    END IF;
    landed := true;
    IF p_more IS NOT NULL THEN -- before anything is published: what is canceled takes no message
        IF p_more ? 'cancel' THEN
            v_rings := v_rings || dexflows_cancel_steps(p_run, p_more -> 'cancel', NULL, at);
        END IF;
        IF p_more ? 'cancel_siblings' THEN
            v_rings := v_rings || dexflows_cancel_steps(p_run, p_more -> 'cancel_siblings', coalesce(v_from, ''), at);
        END IF;
    END IF;
    IF p_effects IS NOT NULL THEN
        v_rings := v_rings || dexflows_apply_effects(p_run, p_type || '-' || p_number, p_effects, at);
    END IF;
    IF p_close ? 'unless' THEN
        IF dexflows_has_messages(p_run, p_close -> 'unless', p_effects -> 'published') THEN
            UPDATE dexflows_step_execution s SET output = NULL
            WHERE s.run_id = p_run AND s.step_type = p_type AND s.number = p_number;
            p_close := NULL;
        ELSE
            p_movements := NULL;
        END IF;
    END IF;
    IF p_more IS NOT NULL THEN
        IF p_more ? 'recover' THEN
            v_rings := v_rings || dexflows_recover(p_run, v_flow_type, p_type, p_number, p_more -> 'recover', at);
        END IF;
        IF p_more ? 'waited' THEN
            v_rings := v_rings || (SELECT jsonb_build_array(jsonb_build_array(v_flow_type, p_type, p_number, s.queue))
                FROM dexflows_step_execution s
                WHERE s.run_id = p_run AND s.step_type = p_type AND s.number = p_number);
        END IF;
        IF p_more ? 'release' THEN
            v_rings := v_rings || dexflows_release_locks(p_run, p_type, p_number, p_token);
        END IF;
    END IF;
    IF p_movements IS NOT NULL AND p_run_on IS NULL THEN
        v_rings := v_rings || dexflows_create_steps(p_run, v_flow_type, p_movements, p_type || '-' || p_number, at);
    ELSIF p_movements IS NOT NULL THEN
        INSERT INTO dexflows_step_execution (run_id, step_type, number, flow_type, queue, method, state, attempt, rings,
            from_step, input, options, plan, created_at, token, worker, lease_until, method_deadline, first_attempt_at,
            started_at)
        SELECT p_run, m ->> 'step_type', coalesce((
                SELECT max(s.number) FROM dexflows_step_execution s
                WHERE s.run_id = p_run AND s.step_type = m ->> 'step_type'), 0) + 1,
            v_flow_type, coalesce(m ->> 'queue', v_queue), m ->> 'method', 'RUNNING', 1, 0, p_type || '-' || p_number,
            m -> 'input', nullif(m -> 'options', 'null'), nullif(m -> 'plan', 'null'), at, next_token,
            p_run_on ->> 'worker', at + make_interval(secs => (p_run_on ->> 'lease')::float8),
            at + make_interval(secs => (p_run_on ->> 'timeout')::float8), at, at
        FROM (SELECT p_movements -> 0 AS m) AS movement
        RETURNING number INTO next_number;
    END IF;
    IF p_close IS NOT NULL AND (p_close ->> 'mode' = 'force' OR NOT EXISTS (
        SELECT FROM dexflows_step_execution s WHERE s.run_id = p_run AND s.closed_at IS NULL
    )) AND (p_close ->> 'mode' <> 'dead_end' OR EXISTS (
        SELECT FROM dexflows_step_execution s WHERE s.run_id = p_run AND s.output IS NOT NULL
    )) THEN
        IF NOT v_gate THEN
            RAISE serialization_failure USING MESSAGE = 'another branch completed meanwhile, so this one closes the run';
        END IF;
        status := p_close ->> 'status';
        v_rings := dexflows_end_run(p_run, status, p_close ->> 'error_type', p_close ->> 'error_message', at);
    END IF;
    IF p_run_on IS NOT NULL THEN
        v_load := nullif(p_run_on -> 'load', 'null');
        attributes := CASE WHEN v_load IS NULL THEN '[]' ELSE dexflows_load(p_run, v_load) END;
    END IF;
    rings := v_rings::text;
END
$$;
