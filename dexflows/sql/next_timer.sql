-- When the next timer of a wait fires that has not fired yet; NULL when there is none.
CREATE OR REPLACE FUNCTION dexflows_next_timer(p_wait jsonb, p_now timestamptz) RETURNS timestamptz
LANGUAGE plpgsql AS $$
BEGIN
    RETURN (
        SELECT min((c ->> 'due')::timestamptz) FROM jsonb_array_elements(p_wait -> 'conditions') AS c
        WHERE c ? 'due' AND (c ->> 'due')::timestamptz > p_now
    );
END
$$;
