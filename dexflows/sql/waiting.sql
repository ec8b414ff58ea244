-- Who may take locks that an RPC of this Flow ID has let go, as references per run. Called after the RPC's commit.
CREATE OR REPLACE FUNCTION dexflows_waiting(
    p_flow_id text, p_exclusive text[], p_shared text[], OUT run_id uuid, OUT rings text
) RETURNS SETOF record LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    FOR run_id IN
        SELECT r.run_id FROM dexflows_run r WHERE r.flow_id = p_flow_id AND r.status = 'RUNNING'
            AND EXISTS (SELECT FROM dexflows_lock_wait w WHERE w.run_id = r.run_id)
    LOOP
        rings := dexflows_wakeable(dexflows_waiting.run_id, p_exclusive, p_shared);
        RETURN NEXT;
    END LOOP;
END
$$;
