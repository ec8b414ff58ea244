-- Makes a running run of what its start asks for, and returns its ID and its start Step's reference, if that is to be
-- rung now. p_start: {flow_type, queue, input, config, effects, movements, delay, timeout, retry, ring_within}.
-- p_again: NULL, or of a retried run {attempt, first_started_at, delay}: that delay then stands for the start's own.
-- The caller has made sure that the Flow ID has no running run and that p_number is the next one.
CREATE OR REPLACE FUNCTION dexflows_begin_run(
    p_start jsonb, p_flow_id text, p_number int, p_request_id text, p_parent uuid, p_again jsonb, p_now timestamptz,
    OUT run_id uuid, OUT rings jsonb
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_delay float8 := (coalesce(p_again, p_start) ->> 'delay')::float8;
    v_movements jsonb := p_start -> 'movements';
    v_retry jsonb;
BEGIN
    run_id := dexflows_uuid7(p_now);
    rings := '[]';
    IF p_start ? 'retry' THEN
        v_retry := coalesce(p_again - 'delay', jsonb_build_object('attempt', 1, 'first_started_at', p_now))
            || jsonb_build_object('policy', p_start -> 'retry',
                'start', p_start - '{flow_id,policy,request_id}'::text[]);
    END IF;
    INSERT INTO dexflows_run (run_id, flow_id, run_number, flow_type, status, queue, request_id, input, config,
        started_at, deadline, timeout, retry, parent_run_id)
    VALUES (dexflows_begin_run.run_id, p_flow_id, p_number, p_start ->> 'flow_type', 'RUNNING', p_start ->> 'queue',
        p_request_id, p_start -> 'input', nullif(p_start -> 'config', 'null'), p_now,
        p_now + make_interval(secs => (p_start -> 'timeout' ->> 'seconds')::float8
            + coalesce((p_again ->> 'delay')::float8, 0)),
        p_start -> 'timeout', v_retry, p_parent);
    INSERT INTO dexflows_event (run_id, seq, at, kind, data)
    VALUES (dexflows_begin_run.run_id, nextval('dexflows_event_seq'), p_now, 'FLOW_STARTED',
        CASE WHEN p_again IS NOT NULL THEN jsonb_build_object('attempt', p_again -> 'attempt') END);
    IF p_start ? 'effects' THEN
        PERFORM dexflows_apply_effects(dexflows_begin_run.run_id, NULL, p_start -> 'effects', p_now);
    END IF;
    IF v_movements IS NOT NULL THEN
        IF v_delay > 0 THEN
            v_movements := jsonb_set(v_movements, '{0,delay}', to_jsonb(v_delay));
        END IF;
        rings := dexflows_create_steps(dexflows_begin_run.run_id, p_start ->> 'flow_type', v_movements, NULL, p_now);
        rings := CASE WHEN v_delay >= (p_start ->> 'ring_within')::float8 THEN '[]'
            ELSE jsonb_build_array(rings -> 0 || to_jsonb(dexflows_begin_run.run_id)) END;
    END IF;
END
$$;
