-- Lets a run's timeout come, once, as its policy says: the run closes, or its `handle_timeout` is queued as a Step.
-- outcome: the policy; 'gone' (closed, or another sweeper was first); 'busy' (someone keeps the run from closing for
-- longer than a second; a later sweep tries again, so that no sweeper stands still for one run).
-- Locks: gate (exclusive) -> run -> steps.
CREATE OR REPLACE FUNCTION dexflows_time_out(p_run uuid, OUT outcome text, OUT rings text) LANGUAGE plpgsql AS $$
DECLARE
    v_run dexflows_run;
    v_now timestamptz;
    v_rings jsonb;
    v_reason text;
BEGIN
    PERFORM set_config('lock_timeout', '1s', true);
    PERFORM pg_advisory_xact_lock(dexflows_gate(p_run));
    SELECT * INTO v_run FROM dexflows_run WHERE run_id = p_run FOR UPDATE;
    v_now := dexflows_now();
    IF v_run.status <> 'RUNNING' OR v_run.deadline > v_now OR v_run.deadline IS NULL THEN
        outcome := 'gone';
        rings := '[]';
        RETURN;
    END IF;
    outcome := v_run.timeout ->> 'policy';
    UPDATE dexflows_run SET deadline = NULL WHERE run_id = p_run;
    PERFORM dexflows_record_events(p_run, NULL, jsonb_build_array(jsonb_build_array('FLOW_TIMED_OUT',
        jsonb_build_object('policy', outcome, 'deadline', v_run.deadline))), v_now);
    v_reason := format('the run has taken more than its timeout of %s s', (v_run.timeout ->> 'seconds')::float8);
    v_rings := CASE outcome
        WHEN 'HANDLER' THEN dexflows_create_steps(p_run, v_run.flow_type,
            jsonb_build_array(v_run.timeout -> 'movement'), NULL, v_now)
        WHEN 'CANCEL' THEN dexflows_close(p_run, 'CANCELED', 'FLOW_TIMEOUT', v_reason, v_now)
        ELSE dexflows_end_run(p_run, 'FAILED', 'FLOW_TIMEOUT', v_reason, v_now)
    END;
    rings := v_rings::text;
EXCEPTION WHEN lock_not_available THEN
    outcome := 'busy';
    rings := '[]';
END
$$;
