-- The committed values a handler may read, as JSON text [[name, instance, value], ...].
-- p_load: {"names": [singletons], "maps": [whole maps], "instances": [[map, instance], ...]}; NULL loads nothing.
CREATE OR REPLACE FUNCTION dexflows_load(p_run uuid, p_load jsonb) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    v_names text[];
    v_maps text[];
    v_loaded text;
BEGIN
    IF p_load IS NULL OR jsonb_typeof(p_load) = 'null' THEN
        RETURN '[]';
    END IF;
    v_names := ARRAY(SELECT jsonb_array_elements_text(p_load -> 'names'));
    IF NOT (p_load ? 'maps' OR p_load ? 'instances') THEN
        SELECT json_agg(json_build_array(name, '', value))::text INTO v_loaded
        FROM dexflows_attribute WHERE run_id = p_run AND name = ANY (v_names) AND instance = '' AND entry = '';
        RETURN coalesce(v_loaded, '[]');
    END IF;
    v_maps := ARRAY(SELECT jsonb_array_elements_text(p_load -> 'maps'));
    SELECT json_agg(json_build_array(found.name, found.instance, found.value))::text INTO v_loaded
    FROM (
        SELECT name, instance, value FROM dexflows_attribute
        WHERE run_id = p_run AND name = ANY (v_names) AND instance = '' AND entry = ''
        UNION ALL
        SELECT name, instance, value FROM dexflows_attribute
        WHERE run_id = p_run AND name = ANY (v_maps) AND instance <> '' AND entry = ''
        UNION ALL
        SELECT a.name, a.instance, a.value FROM jsonb_array_elements(p_load -> 'instances') AS wanted
        JOIN dexflows_attribute a ON a.run_id = p_run AND a.name = wanted ->> 0 AND a.instance = wanted ->> 1
            AND a.entry = ''
        WHERE wanted ->> 0 <> ALL (v_maps)
    ) AS found;
    RETURN coalesce(v_loaded, '[]');
END
$$;
