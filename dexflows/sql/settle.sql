-- Ends an attempt, in one transaction: fenced by token and state, it stores everything the handler buffered, releases
-- its locks, creates the next Steps, closes the run, and may claim the one next Step for the same worker.
-- p: state, and as needed delay, uncounted, expired, failure, output, writes, events, locals, release, cancel,
-- cancel_siblings, movements, run_on {worker, lease, timeout, load}, close {mode, status, error_type, error_message}.
-- With durability ASYNC the commit does not wait for the disk: a crash of the server may undo the last moments, as a
-- whole and in order. landed = false: the attempt is no longer the current one and nothing was changed.
-- Locks: gate (only to close) -> run -> step -> attributes.
CREATE OR REPLACE FUNCTION dexflows_settle(p_run uuid, p_type text, p_number int, p_token uuid, p jsonb)
RETURNS TABLE (landed bool, status text, rings text, next_number int, next_token uuid, attributes text,
    at timestamptz)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_step dexflows_step_execution;
    v_now timestamptz;
    v_state text := p ->> 'state';
    v_run_on jsonb := p -> 'run_on';
    v_close jsonb := p -> 'close';
    v_next uuid;
    v_next_number int;
    v_rings jsonb := '[]';
    v_created jsonb;
    v_status text;
    v_durability text;
    v_loaded text;
BEGIN
    IF v_close IS NOT NULL THEN
        PERFORM pg_advisory_xact_lock(dexflows_gate(p_run));
        SELECT r.status, r.config ->> 'step_durability' INTO v_status, v_durability
        FROM dexflows_run r WHERE r.run_id = p_run FOR UPDATE;
    ELSE
        SELECT r.status, r.config ->> 'step_durability' INTO v_status, v_durability
        FROM dexflows_run r WHERE r.run_id = p_run FOR NO KEY UPDATE;
    END IF;
    IF v_durability = 'ASYNC' THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    v_now := dexflows_now();
    IF v_run_on IS NOT NULL THEN
        v_next := gen_random_uuid();
        v_run_on := v_run_on || jsonb_build_object('token', v_next);
    END IF;
    UPDATE dexflows_step_execution s SET
        state = v_state,
        token = CASE WHEN v_state = 'RUNNING' THEN v_next END,
        lease_until = CASE WHEN v_state = 'RUNNING'
            THEN v_now + make_interval(secs => (v_run_on ->> 'lease')::float8) END,
        method_deadline = CASE WHEN v_state = 'RUNNING'
            THEN v_now + make_interval(secs => (v_run_on ->> 'timeout')::float8) END,
        method = coalesce(p ->> 'method', s.method),
        attempt = CASE WHEN v_state = 'RUNNING' THEN 1 WHEN p ? 'method' THEN 0 WHEN p ? 'uncounted'
            THEN s.attempt - 1 ELSE s.attempt END,
        first_attempt_at = CASE WHEN v_state = 'RUNNING' THEN v_now WHEN p ? 'method' THEN NULL
            ELSE s.first_attempt_at END,
        due_at = CASE v_state
            WHEN 'BACKOFF' THEN v_now + make_interval(secs => (p ->> 'delay')::float8)
            WHEN 'QUEUED' THEN v_now + make_interval(secs => coalesce((p ->> 'delay')::float8, 5)) END,
        failure = coalesce(p -> 'failure', CASE WHEN p ? 'method' THEN NULL ELSE s.failure END),
        output = p -> 'output',
        locals = coalesce(s.locals || (p -> 'locals'), p -> 'locals', s.locals),
        started_at = CASE WHEN v_state = 'RUNNING' THEN v_now ELSE s.started_at END,
        closed_at = CASE WHEN v_state IN ('COMPLETED', 'FAILED') THEN v_now END
    WHERE s.run_id = p_run AND s.step_type = p_type AND s.number = p_number AND s.token = p_token
        AND s.state = 'RUNNING' AND (NOT p ? 'expired' OR s.lease_until < v_now)
    RETURNING * INTO v_step;
    IF NOT FOUND THEN
        RETURN QUERY SELECT false, v_status, '[]', NULL::int, NULL::uuid, NULL::text, v_now;
        RETURN;
    END IF;
    IF p ? 'events' THEN
        PERFORM dexflows_record_events(p_run, p_type || '-' || p_number, p -> 'events', v_now);
    END IF;
    IF p ? 'writes' THEN
        PERFORM dexflows_write_attributes(p_run, p -> 'writes', v_now);
    END IF;
    IF p ? 'release' THEN
        v_rings := dexflows_release_locks(p_run, p_type, p_number, p_token);
    END IF;
    IF p ? 'cancel' THEN
        v_rings := v_rings || dexflows_cancel_steps(p_run, p -> 'cancel', NULL, v_now);
    END IF;
    IF p ? 'cancel_siblings' THEN
        v_rings := v_rings || dexflows_cancel_steps(p_run, p -> 'cancel_siblings', v_step.from_step, v_now);
    END IF;
    IF p ? 'movements' THEN
        v_created := dexflows_create_steps(p_run, v_step.flow_type, p -> 'movements', p_type || '-' || p_number,
            v_now, v_run_on);
        IF v_run_on IS NULL THEN
            v_rings := v_rings || v_created;
        ELSE
            v_next_number := (v_created -> 0 ->> 2)::int;
        END IF;
    END IF;
    IF v_close ->> 'mode' = 'force' OR (v_close IS NOT NULL AND NOT EXISTS (
        SELECT FROM dexflows_step_execution s WHERE s.run_id = p_run AND s.closed_at IS NULL
    )) THEN
        v_status := v_close ->> 'status';
        PERFORM dexflows_close(p_run, v_status, v_close ->> 'error_type', v_close ->> 'error_message', v_now);
        v_rings := '[]';
    END IF;
    IF v_run_on IS NOT NULL THEN
        v_loaded := dexflows_load(p_run, v_run_on -> 'load');
    END IF;
    RETURN QUERY SELECT true, v_status, v_rings::text, v_next_number, v_next, v_loaded, v_now;
END
$$;
