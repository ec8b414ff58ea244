-- Ends a run that has come to its end by itself: it closes now, or waits, still RUNNING, until its values are copied
-- to the Attribute Stores or given up (`finish_closing.sql`). Returns whom to ring. The marks it waits for are flagged:
-- whoever removes one either is done before, and is waited for here, or finds the flag and comes to close the run.
-- The caller holds the run's gate exclusively and its row FOR UPDATE, and has seen status RUNNING.
CREATE OR REPLACE FUNCTION dexflows_end_run(
    p_run uuid, p_status text, p_error_type text, p_error_message text, p_now timestamptz
) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM dexflows_store_write WHERE run_id = p_run AND dropped_at IS NULL) THEN
        PERFORM FROM dexflows_store_write WHERE run_id = p_run AND dropped_at IS NULL
        ORDER BY store, name, instance FOR UPDATE;
        UPDATE dexflows_store_write SET closing = true WHERE run_id = p_run AND dropped_at IS NULL;
        IF FOUND THEN
            PERFORM dexflows_clear_run(p_run, p_now);
            UPDATE dexflows_run SET deadline = NULL, closing = jsonb_build_object('status', p_status,
                'error_type', p_error_type, 'error_message', p_error_message, 'since', p_now)
            WHERE run_id = p_run;
            PERFORM dexflows_record_events(p_run, NULL, jsonb_build_array(jsonb_build_array('FLOW_CLOSING',
                jsonb_build_object('status', p_status))), p_now);
            RETURN '[]';
        END IF;
    END IF;
    RETURN dexflows_close(p_run, p_status, p_error_type, p_error_message, p_now);
END
$$;
