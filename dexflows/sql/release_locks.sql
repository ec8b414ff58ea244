-- Ends what an attempt holds and returns the waiters to ring after the commit. Only the holder's token deletes.
-- The caller holds the run's row FOR NO KEY UPDATE.
CREATE OR REPLACE FUNCTION dexflows_release_locks(p_run uuid, p_type text, p_number int, p_token uuid) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    v_keys text[];
    v_maps text[];
BEGIN
    WITH released AS (
        DELETE FROM dexflows_lock_hold
        WHERE run_id = p_run AND step_type = p_type AND number = p_number AND token = p_token
        RETURNING key, map_key
    )
    SELECT array_agg(key), array_agg(DISTINCT map_key) FILTER (WHERE map_key IS NOT NULL)
    INTO v_keys, v_maps FROM released;
    IF v_keys IS NULL THEN
        RETURN '[]';
    END IF;
    RETURN dexflows_wakeable(p_run, v_keys, coalesce(v_maps, '{}'));
END
$$;
