-- Turns what `wait_for` returned into the wait that is stored: timers get their due times, or are skipped if that was
-- asked for before; SubFlows are started or found. rings: their Steps. The caller holds the run's row.
CREATE OR REPLACE FUNCTION dexflows_begin_wait(
    p_run uuid, p_flow_id text, p_type text, p_number int, p_wait jsonb, p_now timestamptz, OUT wait jsonb, OUT rings jsonb
) LANGUAGE plpgsql AS $$
DECLARE
    v_conditions jsonb := '[]';
    v_skips text[];
    v_child record;
    v record;
BEGIN
    rings := '[]';
    IF p_wait -> 'conditions' @@ 'exists($[*].seconds)' THEN
        WITH skipped AS (
            DELETE FROM dexflows_timer_skip t WHERE t.run_id = p_run AND t.step_type = p_type AND t.number = p_number
            RETURNING t.timer
        )
        SELECT array_agg(timer) INTO v_skips FROM skipped;
    END IF;
    FOR v IN
        SELECT c.value AS c, c.position - 1 AS i
        FROM jsonb_array_elements(p_wait -> 'conditions') WITH ORDINALITY AS c(value, position) ORDER BY c.position
    LOOP
        IF v.c ? 'seconds' THEN
            v.c := v.c || jsonb_build_object('due', CASE
                WHEN v.i::text = ANY (v_skips) OR 'id:' || (v.c ->> 'id') = ANY (v_skips) THEN p_now
                ELSE p_now + make_interval(secs => (v.c ->> 'seconds')::float8)
            END);
        ELSIF v.c ? 'sub_flow' THEN
            SELECT * INTO v_child FROM dexflows_start_sub_flow(p_run, p_flow_id, p_type, p_number, v.i::int,
                v.c ->> 'reuse', v.c -> 'sub_flow', p_now);
            v.c := v.c || jsonb_build_object('sub_flow', true, 'flow_type', v.c #> '{sub_flow,flow_type}');
            rings := rings || v_child.rings;
        END IF;
        v_conditions := v_conditions || jsonb_build_array(v.c);
    END LOOP;
    wait := jsonb_build_object(
        'conditions', v_conditions, 'choices', p_wait -> 'choices', 'ticket', nextval('dexflows_lock_ticket'),
        'since', p_now,
        'on', (SELECT coalesce(jsonb_agg(DISTINCT (c #>> '{channel,0}') || '/' || (c #>> '{channel,1}')), '[]')
            FROM jsonb_array_elements(v_conditions) AS c WHERE c ? 'channel'));
END
$$;
