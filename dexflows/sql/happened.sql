-- Those of the awaited things, numbered from 1 in p_awaited, that need no more waiting: a run that has closed, a Step
-- execution that has ended or an Attribute that matches, or their run has closed. Takes no lock.
-- p_awaited: [{"run"[, "step", "number"][, "name", "instance"[, "value"][, "default"]]}, ...]; without "value" absence
-- matches, else a "default" counts as the value where there is none. status is NULL where there is no such run.
CREATE OR REPLACE FUNCTION dexflows_happened(p_awaited jsonb)
RETURNS TABLE (place int, status text, state text, matches bool) LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY SELECT a.place::int, r.status::text, s.state::text, coalesce(m.matches, false)
    FROM jsonb_array_elements(p_awaited) WITH ORDINALITY AS a(thing, place),
        jsonb_to_record(a.thing) AS t(run uuid, step text, number int, name text, instance text, value jsonb,
            "default" jsonb)
    LEFT JOIN dexflows_run r ON r.run_id = t.run
    LEFT JOIN dexflows_step_execution s ON s.run_id = t.run AND s.step_type = t.step AND s.number = t.number
        AND s.closed_at IS NOT NULL
    LEFT JOIN dexflows_attribute v ON v.run_id = t.run AND v.name = t.name AND v.instance = t.instance
        AND v.entry = ''
    CROSS JOIN LATERAL (
        SELECT t.name IS NOT NULL AND CASE WHEN t.value IS NULL THEN v.value IS NULL
            ELSE coalesce(v.value, t."default") = t.value END AS matches
    ) AS m
    WHERE r.status IS DISTINCT FROM 'RUNNING' OR s.state IS NOT NULL OR m.matches;
END
$$;
