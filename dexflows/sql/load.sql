-- The committed values a handler may read, as JSON text [[name, instance, value], ...].
-- p_load: {"names": [singletons], "maps": [whole maps], "instances": [[map, instance], ...], "channels": [[name,
-- instance or null for all], ...]}, each only where there is something to load; NULL loads nothing. Messages follow in
-- their order, as [channel, instance, value, number].
CREATE OR REPLACE FUNCTION dexflows_load(p_run uuid, p_load jsonb) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    v_loaded text;
    v_queued text;
BEGIN
    IF p_load IS NULL OR jsonb_typeof(p_load) = 'null' THEN
        RETURN '[]';
    END IF;
    IF NOT (p_load ? 'maps' OR p_load ? 'instances') THEN
        SELECT json_agg(json_build_array(name, '', value))::text INTO v_loaded
        FROM dexflows_attribute
        WHERE run_id = p_run AND name = ANY (ARRAY(SELECT jsonb_array_elements_text(p_load -> 'names')))
            AND instance = '' AND entry = '';
    ELSIF NOT (p_load ? 'maps' OR p_load ? 'names') THEN
        SELECT json_agg(json_build_array(a.name, a.instance, a.value))::text INTO v_loaded
        FROM jsonb_array_elements(p_load -> 'instances') AS wanted
        JOIN dexflows_attribute a ON a.run_id = p_run AND a.name = wanted ->> 0 AND a.instance = wanted ->> 1
            AND a.entry = '';
    ELSE
        SELECT json_agg(json_build_array(found.name, found.instance, found.value))::text INTO v_loaded
        FROM (
            SELECT name, instance, value FROM dexflows_attribute
            WHERE run_id = p_run AND name = ANY (ARRAY(SELECT jsonb_array_elements_text(p_load -> 'names')))
                AND instance = '' AND entry = ''
            UNION ALL
            SELECT name, instance, value FROM dexflows_attribute
            WHERE run_id = p_run AND name = ANY (ARRAY(SELECT jsonb_array_elements_text(p_load -> 'maps')))
                AND instance <> '' AND entry = ''
            UNION ALL
            SELECT a.name, a.instance, a.value FROM jsonb_array_elements(p_load -> 'instances') AS wanted
            JOIN dexflows_attribute a ON a.run_id = p_run AND a.name = wanted ->> 0 AND a.instance = wanted ->> 1
                AND a.entry = ''
            WHERE coalesce(NOT p_load -> 'maps' ? (wanted ->> 0), true)
        ) AS found;
    END IF;
    IF p_load ? 'channels' THEN
        SELECT json_agg(json_build_array(m.name, m.instance, m.value, m.seq) ORDER BY m.seq)::text INTO v_queued
        FROM dexflows_channel_message m WHERE m.run_id = p_run AND EXISTS (
            SELECT FROM jsonb_array_elements(p_load -> 'channels') AS wanted
            WHERE m.name = wanted ->> 0 AND m.instance = coalesce(wanted ->> 1, m.instance));
        v_loaded := coalesce(left(v_loaded, -1) || ',' || substr(v_queued, 2), v_loaded, v_queued);
    END IF;
    RETURN coalesce(v_loaded, '[]');
END
$$;
