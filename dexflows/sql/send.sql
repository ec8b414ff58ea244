-- Publishes messages [[channel, instance, value], ...] to the running run of a Flow ID, from outside. p_types: the Flow
-- types that have these Channels. outcome: 'published', 'missing', 'closed', or 'foreign' (a Flow of another type).
-- Locks: gate (shared) -> run -> steps -> channels.
CREATE OR REPLACE FUNCTION dexflows_send(
    p_flow_id text, p_run uuid, p_types text[], p_published jsonb,
    OUT outcome text, OUT run_id uuid, OUT flow_type text, OUT status text, OUT ids text, OUT rings text
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_published record;
BEGIN
    SELECT r.run_id INTO run_id FROM dexflows_run r
    WHERE r.flow_id = p_flow_id AND (p_run IS NULL OR r.run_id = p_run) ORDER BY r.run_number DESC LIMIT 1;
    IF NOT FOUND THEN
        outcome := 'missing';
        RETURN;
    END IF;
    PERFORM pg_advisory_xact_lock_shared(dexflows_gate(dexflows_send.run_id));
    SELECT r.status, r.flow_type INTO status, flow_type FROM dexflows_run r
    WHERE r.run_id = dexflows_send.run_id FOR NO KEY UPDATE;
    outcome := CASE WHEN status <> 'RUNNING' THEN 'closed' WHEN flow_type <> ALL (p_types) THEN 'foreign' END;
    IF outcome IS NULL THEN
        outcome := 'published';
        SELECT * INTO v_published FROM dexflows_publish(dexflows_send.run_id, p_published, dexflows_now());
        ids := v_published.ids::text;
        rings := v_published.rings::text;
    END IF;
END
$$;
