-- The one clock of the engine: the database's wall clock, not frozen at the start of a transaction.
CREATE OR REPLACE FUNCTION dexflows_now() RETURNS timestamptz LANGUAGE sql VOLATILE AS $$
    SELECT clock_timestamp()
$$;
