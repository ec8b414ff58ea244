-- What the conditions of one choice want of each Channel together: how many messages they need, and the most they take
-- (NULL: everything).
CREATE OR REPLACE FUNCTION dexflows_wanted(
    p_conditions jsonb, p_choice int[], OUT name text, OUT instance text, OUT needed bigint, OUT most bigint
) RETURNS SETOF record LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY
    SELECT c #>> '{channel,0}', c #>> '{channel,1}', sum((c ->> 'min')::int),
        CASE WHEN bool_and(c ->> 'max' IS NOT NULL) THEN sum((c ->> 'max')::int) END
    FROM unnest(p_choice) WITH ORDINALITY AS chosen(i, position), LATERAL (SELECT p_conditions -> i AS c) AS condition
    WHERE c ? 'channel'
    GROUP BY 1, 2 ORDER BY min(position);
END
$$;
