-- Gives a Step its whole set of locks, or its place in the queue. Returns 'held', or what is in the way: 'step' (a
-- holder or an earlier waiter) or 'rpc' (a running RPC). The caller holds the run's row FOR NO KEY UPDATE, so holds
-- and waits of the run change only one transaction at a time; RPCs are met through try-advisory-locks alone.
-- A refusal inside the set rolls the advisory locks back, so that it never makes an RPC fail on a free key.
CREATE OR REPLACE FUNCTION dexflows_acquire_locks(
    p_run uuid, p_type text, p_number int, p_token uuid, p_exclusive text[], p_shared text[], p_now timestamptz
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    v_ticket bigint;
    v_blocker text := 'held';
    v_key text;
BEGIN
    SELECT ticket INTO v_ticket FROM dexflows_lock_wait
    WHERE run_id = p_run AND step_type = p_type AND number = p_number;
    IF EXISTS (
        SELECT FROM dexflows_lock_hold
        WHERE run_id = p_run AND (key = ANY (p_exclusive) OR map_key = ANY (p_exclusive) OR key = ANY (p_shared))
    ) OR EXISTS (
        SELECT FROM dexflows_lock_wait
        WHERE run_id = p_run AND (v_ticket IS NULL OR ticket < v_ticket)
            AND (exclusive && p_exclusive OR exclusive && p_shared OR shared && p_exclusive)
    ) THEN
        v_blocker := 'step';
    ELSE
        BEGIN
            FOREACH v_key IN ARRAY p_exclusive LOOP
                IF NOT pg_try_advisory_xact_lock(dexflows_advisory(p_run, v_key)) THEN
                    RAISE lock_not_available;
                END IF;
            END LOOP;
            FOREACH v_key IN ARRAY p_shared LOOP
                IF NOT pg_try_advisory_xact_lock_shared(dexflows_advisory(p_run, v_key)) THEN
                    RAISE lock_not_available;
                END IF;
            END LOOP;
        EXCEPTION WHEN lock_not_available THEN
            v_blocker := 'rpc';
        END;
    END IF;
    IF v_blocker = 'held' THEN
        DELETE FROM dexflows_lock_wait WHERE run_id = p_run AND step_type = p_type AND number = p_number;
        INSERT INTO dexflows_lock_hold (run_id, key, map_key, step_type, number, token, acquired_at)
        SELECT p_run, k, CASE WHEN k LIKE '%/%' AND k NOT LIKE '%/*' THEN split_part(k, '/', 1) || '/*' END,
            p_type, p_number, p_token, p_now
        FROM unnest(p_exclusive) AS k;
    ELSIF v_ticket IS NULL THEN
        INSERT INTO dexflows_lock_wait (run_id, step_type, number, exclusive, shared, ticket, waiting_since)
        VALUES (p_run, p_type, p_number, p_exclusive, p_shared, nextval('dexflows_lock_ticket'), p_now);
    END IF;
    RETURN v_blocker;
END
$$;
