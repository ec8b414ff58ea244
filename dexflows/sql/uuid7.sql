-- A UUIDv7 (RFC 9562) for the given instant, for servers older than PostgreSQL 18.
CREATE OR REPLACE FUNCTION dexflows_uuid7(p_at timestamptz) RETURNS uuid LANGUAGE sql VOLATILE AS $$
    SELECT encode(set_bit(set_bit(overlay(
        uuid_send(gen_random_uuid())
        PLACING substring(int8send(floor(extract(epoch FROM p_at) * 1000)::bigint) FROM 3) FROM 1 FOR 6
    ), 52, 1), 53, 1), 'hex')::uuid
$$;
