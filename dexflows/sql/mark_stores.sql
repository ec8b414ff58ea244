-- Marks values [[name, instance], ...] to be copied to the Attribute Stores of the run, in the transaction that writes
-- them. A mark is one row per value and store, and gets a new number with every write; what had been given up is due
-- again. Marks are locked in order, so that two writers cannot deadlock.
CREATE OR REPLACE FUNCTION dexflows_mark_stores(p_run uuid, p_synced jsonb, p_now timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO dexflows_store_write (run_id, store, name, instance, flow_id, seq, marked_at, due_at, attempts, closing)
    SELECT p_run, s.store, m ->> 0, m ->> 1, r.flow_id, nextval('dexflows_store_seq'), p_now, p_now, 0, false
    FROM dexflows_run r, jsonb_array_elements_text(r.config -> 'attribute_store_names') AS s(store),
        jsonb_array_elements(p_synced) AS m
    WHERE r.run_id = p_run
    ORDER BY s.store, m ->> 0, m ->> 1
    ON CONFLICT (run_id, store, name, instance) DO UPDATE SET seq = excluded.seq, marked_at = p_now, due_at = p_now,
        attempts = 0, first_failed_at = NULL, error = NULL, dropped_at = NULL;
END
$$;
