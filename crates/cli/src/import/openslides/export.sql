-- Writes the datastore of OpenSlides as JSON, one line for each row that matters, all of one moment.
BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY;
SELECT jsonb_build_object('head', jsonb_build_object(
    'position', (SELECT coalesce(max(position), 0) FROM events
        WHERE split_part(fqid, '/', 1) NOT IN ('action_worker', 'import_preview')),
    'migration_indexes', (SELECT count(DISTINCT migration_index) FROM positions)));
SELECT jsonb_build_object('volatile', jsonb_build_object('fqid', fqid, 'data', data)) FROM models
    WHERE NOT deleted AND split_part(fqid, '/', 1) IN ('action_worker', 'import_preview')
    ORDER BY fqid;
SELECT line FROM (
    SELECT position, 0 AS weight, 0::bigint AS id, jsonb_build_object('position', jsonb_build_object(
        'position', position,
        'at', coalesce(floor(extract(epoch FROM "timestamp") * 1000), 0)::bigint,
        'user_id', user_id,
        'information', information::jsonb)) AS line FROM positions
    UNION ALL
    SELECT position, weight, id, jsonb_build_object('event', jsonb_build_object(
        'position', position, 'fqid', fqid, 'type', type::text, 'data', data)) AS line FROM events
        WHERE split_part(fqid, '/', 1) NOT IN ('action_worker', 'import_preview')
) AS lines ORDER BY position, weight, id;
SELECT jsonb_build_object('model', jsonb_build_object('fqid', fqid, 'data', data, 'deleted', deleted))
    FROM models WHERE split_part(fqid, '/', 1) NOT IN ('action_worker', 'import_preview') ORDER BY fqid;
SELECT jsonb_build_object('sequence', jsonb_build_object('collection', collection, 'next', id))
    FROM id_sequences ORDER BY collection;
COMMIT;
SELECT jsonb_build_object('end', true);
