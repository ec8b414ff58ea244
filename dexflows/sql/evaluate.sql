-- Decides a wait: the first choice whose conditions all hold takes its messages, and what the wait came to is returned,
-- to be stored in the same transaction; NULL while no choice holds. The caller holds the run's row FOR NO KEY UPDATE,
-- so that messages of a run are published, taken and deleted by one transaction at a time. The oldest are taken as all
-- up to a number: a join with them would read the whole queue, whatever the planner thinks of a table that grows fast.
-- p_wait: {conditions: [{due} | {channel: [name, instance], min, max} | {sub_flow}], choices: [[index, ...], ...]}.
CREATE OR REPLACE FUNCTION dexflows_evaluate(
    p_run uuid, p_type text, p_number int, p_wait jsonb, p_now timestamptz
) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    v_conditions jsonb := p_wait -> 'conditions';
    v_choice int[];
    v_holds bool := false;
    v_taken jsonb;
    v_messages jsonb := '[]';
    v record;
BEGIN
    FOR v_choice IN
        SELECT ARRAY(SELECT jsonb_array_elements_text(choice)::int) FROM jsonb_array_elements(p_wait -> 'choices') AS choice
    LOOP
        SELECT bool_and(CASE
            WHEN c ? 'due' THEN (c ->> 'due')::timestamptz <= p_now
            WHEN c ? 'sub_flow' THEN EXISTS (
                SELECT FROM dexflows_sub_flow l JOIN dexflows_run r ON r.run_id = l.child_run_id
                WHERE l.run_id = p_run AND l.step_type = p_type AND l.number = p_number AND l.condition = i
                    AND r.status <> 'RUNNING')
            ELSE true
        END) INTO v_holds FROM unnest(v_choice) AS i, LATERAL (SELECT v_conditions -> i AS c) AS condition;
        CONTINUE WHEN NOT v_holds;
        FOR v IN SELECT * FROM dexflows_wanted(v_conditions, v_choice) WHERE needed > 0 LOOP
            v_holds := v_holds AND v.needed = (SELECT count(*) FROM (
                SELECT FROM dexflows_channel_message m
                WHERE m.run_id = p_run AND m.name = v.name AND m.instance = v.instance LIMIT v.needed) AS queued);
        END LOOP;
        EXIT WHEN v_holds;
    END LOOP;
    IF NOT v_holds THEN
        RETURN NULL;
    END IF;
    FOR v IN SELECT * FROM dexflows_wanted(v_conditions, v_choice) LOOP
        WITH taken AS (
            DELETE FROM dexflows_channel_message m
            WHERE m.run_id = p_run AND m.name = v.name AND m.instance = v.instance AND m.seq <= (
                SELECT max(oldest.seq) FROM (
                    SELECT q.seq FROM dexflows_channel_message q
                    WHERE q.run_id = p_run AND q.name = v.name AND q.instance = v.instance ORDER BY q.seq LIMIT v.most
                ) AS oldest)
            RETURNING m.seq, m.value
        )
        SELECT coalesce(jsonb_agg(value ORDER BY seq), '[]') INTO v_taken FROM taken;
        v_messages := v_messages || jsonb_build_array(jsonb_build_array(v.name, v.instance, v_taken));
    END LOOP;
    RETURN jsonb_build_object('messages', v_messages)
        || dexflows_outlook(p_run, p_type, p_number, v_conditions, p_now);
END
$$;
