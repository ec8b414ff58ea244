-- The run that a call means: the given run ID, else the latest run of the Flow ID. Locks nothing.
CREATE OR REPLACE FUNCTION dexflows_find_run(p_flow_id text, p_run uuid) RETURNS dexflows_run LANGUAGE sql AS $$
    SELECT r FROM dexflows_run r
    WHERE r.flow_id = p_flow_id AND (p_run IS NULL OR r.run_id = p_run)
    ORDER BY r.run_number DESC LIMIT 1
$$;
