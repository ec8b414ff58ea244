-- Whether a message is queued in one of the Channels [[name, instance or null for all], ...], or is among those just
-- published, of which a waiting Step may have taken some. The caller holds the run's row.
CREATE OR REPLACE FUNCTION dexflows_has_messages(p_run uuid, p_channels jsonb, p_published jsonb) RETURNS bool
LANGUAGE plpgsql AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM jsonb_array_elements(p_channels) AS c JOIN dexflows_channel_message m
            ON m.run_id = p_run AND m.name = c ->> 0 AND m.instance = coalesce(c ->> 1, m.instance)
    ) OR EXISTS (
        SELECT FROM jsonb_array_elements(p_channels) AS c JOIN jsonb_array_elements(p_published) AS m
            ON m ->> 0 = c ->> 0 AND m ->> 1 = coalesce(c ->> 1, m ->> 1)
    );
END
$$;
