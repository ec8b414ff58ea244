-- The advisory lock number of one lock key of one run.
CREATE OR REPLACE FUNCTION dexflows_advisory(p_run uuid, p_key text) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT hashtextextended(p_run::text || '/' || p_key, 1)
$$;
