-- Running runs whose timeout has come, the longest overdue first.
CREATE OR REPLACE FUNCTION dexflows_overdue(p_limit int) RETURNS TABLE (run_id uuid) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := dexflows_now();
BEGIN
    RETURN QUERY SELECT r.run_id FROM dexflows_run r WHERE r.status = 'RUNNING' AND r.deadline <= v_now
    ORDER BY r.deadline LIMIT p_limit;
END
$$;
