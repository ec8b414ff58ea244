-- Merges settings into those of the running run of a Flow ID. outcome: 'updated', 'missing' or 'closed'.
-- With another worker_target the run's open Steps of its old queue move to the new one, and what is ready for a worker
-- is due now, so that the next sweep rings there; a ring of the old queue finds nothing (`claim.sql`).
-- Locks: gate (shared) -> run -> steps.
CREATE OR REPLACE FUNCTION dexflows_update_config(
    p_flow_id text, p_run uuid, p_changes jsonb, OUT outcome text, OUT run_id uuid, OUT status text
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_queue text;
    v_now timestamptz;
BEGIN
    SELECT r.outcome, r.run_id, r.status, r.queue INTO outcome, run_id, status, v_queue
    FROM dexflows_enter_run(p_flow_id, p_run) AS r;
    IF outcome IS NOT NULL THEN
        RETURN;
    END IF;
    outcome := 'updated';
    v_now := dexflows_now();
    UPDATE dexflows_run r SET config = coalesce(r.config, '{}') || p_changes,
        queue = coalesce(p_changes ->> 'worker_target', r.queue)
    WHERE r.run_id = dexflows_update_config.run_id;
    PERFORM dexflows_record_events(run_id, NULL,
        jsonb_build_array(jsonb_build_array('FLOW_CONFIG_UPDATED', p_changes)), v_now);
    IF p_changes ->> 'worker_target' <> v_queue THEN
        UPDATE dexflows_step_execution s SET queue = p_changes ->> 'worker_target', parked_reason = NULL, rings = 0,
            due_at = CASE WHEN s.state IN ('QUEUED', 'WAITING_FOR_LOCK') THEN v_now ELSE s.due_at END
        WHERE s.run_id = dexflows_update_config.run_id AND s.closed_at IS NULL AND s.queue = v_queue;
    END IF;
END
$$;
