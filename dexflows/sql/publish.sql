-- Appends messages [[channel, instance, value], ...] in order and lets the Steps take them that wait for such, in the
-- order in which they began to wait. ids: the messages' numbers; rings: the Steps that became ready.
-- The caller holds the run's row FOR NO KEY UPDATE, so the numbers grow in the order of the commits.
CREATE OR REPLACE FUNCTION dexflows_publish(
    p_run uuid, p_published jsonb, p_now timestamptz, OUT ids jsonb, OUT rings jsonb
) LANGUAGE plpgsql AS $$
DECLARE
    v_keys text[] := ARRAY(SELECT DISTINCT (m ->> 0) || '/' || (m ->> 1) FROM jsonb_array_elements(p_published) AS m);
    v_waited jsonb;
    v record;
BEGIN
    WITH added AS (
        INSERT INTO dexflows_channel_message (run_id, name, instance, seq, value, published_at)
        SELECT p_run, m.value ->> 0, m.value ->> 1, nextval('dexflows_message_seq'), m.value -> 2, p_now
        FROM jsonb_array_elements(p_published) WITH ORDINALITY AS m(value, position) ORDER BY m.position
        RETURNING seq
    )
    SELECT jsonb_agg(seq::text ORDER BY seq) INTO ids FROM added;
    rings := '[]';
    FOR v IN
        SELECT s.flow_type, s.step_type, s.number, s.queue, s.wait FROM dexflows_step_execution s
        WHERE s.run_id = p_run AND s.closed_at IS NULL AND s.state = 'WAITING' AND s.wait -> 'on' ?| v_keys
        ORDER BY (s.wait ->> 'ticket')::bigint FOR UPDATE
    LOOP
        v_waited := dexflows_evaluate(p_run, v.step_type, v.number, v.wait, p_now);
        CONTINUE WHEN v_waited IS NULL;
        PERFORM dexflows_ready(p_run, v.step_type, v.number, v_waited, p_now);
        rings := rings || jsonb_build_array(jsonb_build_array(v.flow_type, v.step_type, v.number, v.queue));
        EXIT WHEN NOT EXISTS (
            SELECT FROM dexflows_channel_message m, unnest(v_keys) AS key
            WHERE m.run_id = p_run AND m.name = split_part(key, '/', 1)
                AND m.instance = substr(key, strpos(key, '/') + 1)
        );
    END LOOP;
END
$$;
