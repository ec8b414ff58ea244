-- The advisory lock number of a run's gate: RPCs and outside writes pass it shared, whoever closes the run takes it
-- exclusively. It is always taken before the run's row.
CREATE OR REPLACE FUNCTION dexflows_gate(p_run uuid) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT hashtextextended(p_run::text, 2)
$$;
