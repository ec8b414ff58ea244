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
    SELECT r.outcome, r.run_id, r.flow_type, r.status INTO outcome, run_id, flow_type, status
    FROM dexflows_enter_run(p_flow_id, p_run) AS r;
    IF outcome IS NULL AND flow_type <> ALL (p_types) THEN
        outcome := 'foreign';
    ELSIF outcome IS NULL THEN
        outcome := 'published';
        SELECT * INTO v_published FROM dexflows_publish(dexflows_send.run_id, p_published, dexflows_now());
        ids := v_published.ids::text;
        rings := v_published.rings::text;
    END IF;
END
$$;
