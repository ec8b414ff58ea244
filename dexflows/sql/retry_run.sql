-- Follows a run that has just failed by a new run of the same Flow ID, if its retry policy has attempts and time left;
-- returns whom to ring, or NULL when the failure is final. The wait before it is drawn up to the policy's cap, which is
-- clamped before it is computed. Whoever waits for the failed run as a SubFlow waits for the new one.
-- The caller closes the failed run in this transaction: it holds its gate exclusively and its row FOR UPDATE.
CREATE OR REPLACE FUNCTION dexflows_retry_run(p_run uuid, p_now timestamptz) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    v_failed dexflows_run;
    v_policy jsonb;
    v_attempt int;
    v_initial float8;
    v_maximum float8;
    v_coefficient float8;
    v_total float8;
    v_delay float8;
    v_next record;
BEGIN
    SELECT * INTO v_failed FROM dexflows_run WHERE run_id = p_run;
    v_policy := v_failed.retry -> 'policy';
    v_attempt := (v_failed.retry -> 'attempt')::int;
    v_initial := (v_policy -> 'initial_interval')::float8;
    v_maximum := (v_policy -> 'maximum_interval')::float8;
    v_coefficient := (v_policy -> 'backoff_coefficient')::float8;
    v_total := (v_policy -> 'total_duration')::float8;
    IF v_attempt = (v_policy -> 'maximum_attempts')::int OR (v_total > 0 AND
        extract(epoch FROM p_now - (v_failed.retry ->> 'first_started_at')::timestamptz) >= v_total
    ) THEN
        RETURN NULL;
    END IF;
    v_delay := random() * CASE
        WHEN v_initial = 0 OR v_initial >= v_maximum THEN least(v_initial, v_maximum)
        WHEN (v_attempt - 1) * ln(v_coefficient) >= least(ln(v_maximum) - ln(v_initial), 700) THEN v_maximum
        ELSE least(v_maximum, v_initial * exp((v_attempt - 1) * ln(v_coefficient)))
    END;
    SELECT * INTO v_next FROM dexflows_begin_run(
        v_failed.retry -> 'start' || jsonb_build_object('queue', v_failed.queue, 'config', v_failed.config),
        v_failed.flow_id, v_failed.run_number + 1, v_failed.request_id, v_failed.parent_run_id,
        jsonb_build_object('attempt', v_attempt + 1, 'first_started_at', v_failed.retry -> 'first_started_at',
            'delay', v_delay),
        p_now);
    UPDATE dexflows_run SET retried_by = v_next.run_id WHERE run_id = p_run;
    UPDATE dexflows_sub_flow SET child_run_id = v_next.run_id WHERE child_run_id = p_run;
    PERFORM dexflows_record_events(p_run, NULL, jsonb_build_array(jsonb_build_array('FLOW_RETRIED',
        jsonb_build_object('run_id', v_next.run_id, 'attempt', v_attempt + 1, 'delay', v_delay))), p_now);
    RETURN v_next.rings;
END
$$;
