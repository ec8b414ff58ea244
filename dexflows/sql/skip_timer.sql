-- Lets a timer of a Step's wait fire now; remembered for a Step that does not wait yet. p_timer: the condition's index,
-- or 'id:' and its condition_id. outcome: 'skipped', 'remembered', 'past' (the wait is over), 'unknown' (its wait has no
-- such timer; timers names those it has), 'foreign' (a Flow of one of the types p_lacking, which have no such Step),
-- 'missing' or 'closed'. Locks: gate (shared) -> run -> step -> channels.
CREATE OR REPLACE FUNCTION dexflows_skip_timer(
    p_flow_id text, p_run uuid, p_type text, p_number int, p_timer text, p_lacking text[],
    OUT outcome text, OUT run_id uuid, OUT flow_type text, OUT status text, OUT timers text, OUT rings text
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_step dexflows_step_execution;
    v_now timestamptz;
    v_index int;
    v_waited jsonb;
BEGIN
    rings := '[]';
    SELECT r.outcome, r.run_id, r.flow_type, r.status INTO outcome, run_id, flow_type, status
    FROM dexflows_enter_run(p_flow_id, p_run) AS r;
    IF outcome IS NULL AND flow_type = ANY (p_lacking) THEN
        outcome := 'foreign';
    END IF;
    IF outcome IS NOT NULL THEN
        RETURN;
    END IF;
    SELECT * INTO v_step FROM dexflows_step_execution s
    WHERE s.run_id = dexflows_skip_timer.run_id AND s.step_type = p_type AND s.number = p_number FOR UPDATE;
    IF NOT FOUND OR v_step.closed_at IS NULL AND v_step.method = 'wait_for' AND v_step.state <> 'WAITING' THEN
        INSERT INTO dexflows_timer_skip (run_id, step_type, number, timer)
        VALUES (dexflows_skip_timer.run_id, p_type, p_number, p_timer) ON CONFLICT DO NOTHING;
        outcome := 'remembered';
        RETURN;
    ELSIF v_step.state <> 'WAITING' THEN
        outcome := 'past';
        RETURN;
    END IF;
    SELECT position - 1 INTO v_index
    FROM jsonb_array_elements(v_step.wait -> 'conditions') WITH ORDINALITY AS conditions(c, position)
    WHERE c ? 'due' AND p_timer IN ((position - 1)::text, 'id:' || (c ->> 'id'));
    IF NOT FOUND THEN
        outcome := 'unknown';
        SELECT string_agg(position - 1 || coalesce(' ' || (c ->> 'id'), ''), ', ' ORDER BY position) INTO timers
        FROM jsonb_array_elements(v_step.wait -> 'conditions') WITH ORDINALITY AS conditions(c, position) WHERE c ? 'due';
        RETURN;
    END IF;
    outcome := 'skipped';
    v_now := dexflows_now();
    v_step.wait := jsonb_set(v_step.wait, ARRAY['conditions', v_index::text, 'due'],
        to_jsonb(least(v_now, (v_step.wait #>> ARRAY['conditions', v_index::text, 'due'])::timestamptz)));
    v_waited := dexflows_evaluate(v_step.run_id, p_type, p_number, v_step.wait, v_now);
    UPDATE dexflows_step_execution s SET wait = v_step.wait, due_at = dexflows_next_timer(v_step.wait, v_now)
    WHERE s.run_id = v_step.run_id AND s.step_type = p_type AND s.number = p_number;
    PERFORM dexflows_record_events(v_step.run_id, p_type || '-' || p_number,
        jsonb_build_array(jsonb_build_array('TIMER_SKIPPED', jsonb_build_object('timer', p_timer))), v_now);
    IF v_waited IS NOT NULL THEN
        PERFORM dexflows_ready(v_step.run_id, p_type, p_number, v_waited, v_now);
        rings := jsonb_build_array(jsonb_build_array(v_step.flow_type, p_type, p_number, v_step.queue))::text;
    END IF;
END
$$;
