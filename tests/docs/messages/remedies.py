"""The remedies of messages that have none of their own: by the class of an error, or a line's action."""

OF_ERRORS = {
    "AlteredTableError": (
        "The sink starts again by itself. If the table no longer fits, it is stopped, and the others continue."
    ),
    "BeforeStreamError": "Begin with `source.start: now`, or at the timestamp that the line names.",
    "ConfigurationError": (
        "Change the option that the line begins with. `spanner-cdc check CONFIG` names all such errors at once."
    ),
    "CutError": "Choose another timestamp; `spanner-cdc cuts CONFIG` lists those that are kept.",
    "DataLostError": (
        "Nothing brings the range back from the stream. See [what to "
        "do](../operations.md#when-spanners-retention-has-run-out)."
    ),
    "DestinationUnavailableError": (
        "Check the network and the service's status page. The sink starts again by itself, ten times without progress;"
        " after that start it again: nothing is lost."
    ),
    "EventError": (
        "The row is a dead letter: see `spanner-cdc dead-letters list CONFIG`. Mend the value in the source, "
        "which makes a new change."
    ),
    "EventFileError": (
        "Give the reader the folder of one sink's files, and restore a damaged file from a copy, or have a "
        "new sink write it again."
    ),
    "LateRecordError": "See [late records](../operations.md#when-a-record-comes-too-late).",
    "NoSuchTableError": "Choose a timestamp at which the table or column existed, or leave it out.",
    "NotReloadedError": (
        "Restart the service, or set the options back that the line names"
        " ([what a reload applies](../configuration.md#change-the-configuration-while-it-runs))."
    ),
    "PermanentError": "Every restart meets it again: mend what the line names first.",
    "PlacementLostError": (
        "Continue after the gap that the line names. Rows of the placement that are elsewhere now come with the next"
        " backfill. Drop placements while the reader runs."
    ),
    "SinkError": (
        "Mend what the line names at the destination, then start again: it continues after what it has delivered."
    ),
    "SinkFailedPermanentlyError": "Every restart meets it again: mend what the line names first.",
    "SnapshotLostError": (
        "Start again: it is read at the same timestamp, or at a new one where Spanner no longer keeps that."
    ),
    "SpannerCdcError": "Run the command with `--verbose` for its frames.",
    "SpoolError": (
        "Mend what the line names. The spool's files are never edited by hand: a copy of all of it can be restored."
    ),
    "SpoolInUseError": (
        "Stop the other process: a spool has one writer, and a consumer's name one query. A lease of a killed"
        " one ends within 20 seconds."
    ),
    "SpoolMismatchError": "Give each change stream a `spool.path` of its own, or begin a new one.",
    "StdoutError": "Make room, or keep the reader of the pipe running.",
    "StorageUnavailableError": (
        "Check the network and the service's status page, and start again where it has ended: nothing was lost. A sink"
        " starts again by itself, ten times without progress."
    ),
    "StreamError": (
        "See Spanner's code in the line; nothing was skipped, and the next run continues. Report it if the "
        "line is no refusal of Spanner's."
    ),
    "StreamGoneError": (
        "Create it again, and begin with a new spool and a [backfill](../backfill.md): a new stream has no past."
    ),
    "TableError": (
        "The other tables continue. Repair the table as the line says, then `spanner-cdc dead-letters replay CONFIG`."
    ),
    "TableNameError": "Rename it in the source, or exclude it with `source.tables`.",
    "TakenOverError": "Find out why two run: one of them must not. Start one alone.",
    "UnreachableError": "Check the network, the endpoint, and the instance's load, and start again: nothing was lost.",
    "UnreadableRecordError": "A newer version may know the record. Else report it; nothing was skipped.",
    "VersionRetentionError": (
        "Run it again: what is left is read at a new timestamp. A longer `version_retention_period` gives more time."
    ),
    "WorkerBugError": "Report it, with the output of `--verbose`.",
}

OF_ALARMS = {
    "…_failing": "The line has the cause and its remedy ([alarms](../operations.md#alarms)).",
}

OF_ACTIONS = {
    "a_packages_name_is_taken_twice": "Give the service an environment of its own.",
    "a_placement_was_dropped_while_nothing": (
        "Nothing, unless the placement got rows again before that: then [backfill](../backfill.md) their tables."
    ),
    "a_read_function_does_not_answer": "Nothing, unless it lasts: the placement may be about to be dropped.",
    "a_table_is_not_created": (
        "Create it at the destination by hand, in the parent of the name there, then replay its dead letters. Or let"
        " the sink create the parent: see `sink.tables` and `source.tables`."
    ),
    "a_table_that_was_created_after": "Nothing; compare it at a later timestamp.",
    "a_window_is_read_again": "Nothing, unless it lasts: check the network between executors and Spanner.",
    "a_window_is_read_again_after": "Nothing, unless it lasts: Spark's UI has the error of the task.",
    "a_window_is_still_being_read": "See whether executors have free cores, and whether one task is slow.",
    "an_earlier_repair_is_given_up": "Nothing: the new repair takes its place.",
    "backfill_overwrites": "Stop it where that database has users: see [both ways](../guide/spanner.md#both-ways).",
    "backfill_at_new_timestamp": "Nothing; give the database a longer `version_retention_period` if it recurs.",
    "backfill_failed": "Mend what the line names, then start again: the backfill continues by partition.",
    "backfill_rejected": "The line says it; the rest of the backfill is delivered.",
    "backfill_stopped": "Resume them once they are to be delivered; until then deletes in them are remembered.",
    "backfill_too_slow": "Give Spark more cores, use Data Boost, or set a longer `version_retention_period`.",
    "changes_are_applied_without_what_the": "Nothing, if the columns or tables were dropped on purpose.",
    "clock_failed": "Nothing, unless it lasts: then Spanner cannot be reached.",
    "columns_are_made_nullable_in_the": "Nothing, if the source has dropped the columns on purpose.",
    "consumers_of_another_copy": "Restore the newer copy of the spool, or forget the consumers that the line names.",
    "dead_letter_with_unknown_column": "Mend the name of the column in the dead letter, if it was edited by hand.",
    "dead_letters_of_a_table_stay": "Do what the line names, and replay once more.",
    "a_stopped_table_continues_without_its": (
        "Nothing, if the rows are not needed; else `spanner-cdc backfill CONFIG --table TABLE` brings them."
    ),
    "a_table_stays_stopped": "Do what the line names, and run `spanner-cdc dead-letters replay CONFIG` once more.",
    "drain_too_slow": "Nothing is lost. Raise `drain_timeout` if each stop takes longer.",
    "earlier_lists_of_read_functions_are": (
        "Nothing, unless a placement came and went in that time. A longer `version_retention_period` keeps the lists."
    ),
    "epoch_is_a_gap": "[Backfill](../backfill.md) the tables, or accept the gap: it stays on record.",
    "internal_error_in_a_worker": "Report it, with the frames of `--verbose`. The worker is replaced.",
    "late_record": "See [late records](../operations.md#when-a-record-comes-too-late).",
    "no_status_page_is_served_with": "Remove `status`: the daemon has the page. Disable a container's health check.",
    "one_partition_takes_longer_to_read": "Wait until Spanner splits the partition; spread the keys of hot rows.",
    "patterns_of_source": "Nothing, if the patterns are right: the role sees no tables to check them with.",
    "paused": "`spanner-cdc resume CONFIG`.",
    "process_restarted": "Nothing, unless it recurs: the lines before have the error.",
    "prune_failed": "The line has the error of the disk or bucket: mend it, and start again.",
    "query_retried": "Nothing: the query continues from what is proven. If it lasts it is the alarm `spanner_failing`.",
    "reading_has_failed": "The line has the error: look for it above.",
    "sink_warning": "Nothing, if you can live with the limitation that the line names; `check` prints it, too.",
    "source": "Remove the names from `source.tables` or `source.columns`, or add the tables or columns to the stream.",
    "spark_has_not_ended_a_cancelled": "Nothing: what its tasks write is deleted later. Restart Spark if it recurs.",
    "spool_full": (
        "See to the slowest consumer, or raise `spool.max_bytes`. Within Spanner's retention nothing is lost."
    ),
    "spool_has_a_gap": "[Backfill](../backfill.md) the tables, or accept the gap: it stays on record.",
    "status_page_failed": "Choose another `status.port`, or end what has it. Replication continues without the page.",
    "table_without_key": "Nothing: the table has one row at most.",
    "the_backfill_may_take_longer_than": "Set a longer `version_retention_period`, or use Data Boost and more cores.",
    "the_change_stream_is_younger_than": "Nothing. For the rows from before take a [backfill](../backfill.md).",
    "the_change_stream_watches_no_table": "`ALTER CHANGE STREAM ... SET FOR` the tables.",
    "the_column_order_of_a_tables": (
        "Grant the database role SELECT on the table where the order of `primary_keys` matters."
    ),
    "the_configuration_is_not_reloaded": (
        "Nothing was applied. Restart the service, or set these options back"
        " ([what a reload applies](../configuration.md#change-the-configuration-while-it-runs))."
    ),
    "the_database_role_sees_no_table": "Nothing, unless patterns or backfills need the tables: then grant SELECT.",
    "the_destination_cannot_have_a_table": "Rename the table or column, or exclude it with `source.tables`.",
    "some_minutes_get_no_document": "Their files are there: list the minutes' folders instead.",
    "the_document_of_a_complete_minute": "Give each sink a folder of its own.",
    "the_drain_took_too_long": "Nothing is lost. Raise `drain_timeout` if each stop takes longer.",
    "the_edited_configuration_is_invalid": "Nothing was applied. Mend the file, and reload it again.",
    "the_list_of_read_functions_is": "Nothing, unless it lasts: a placement is being added or dropped.",
    "the_position_is_refused": "See [Conduit](../guide/conduit.md#when-a-pipeline-does-not-run).",
    "the_read_functions_cannot_be_listed": (
        "Nothing, unless it lasts: Spanner or a right on INFORMATION_SCHEMA is absent."
    ),
    "the_repair_is_not_finished": "Run `spanner-cdc verify CONFIG --repair` again, or start `spanner-cdc run`.",
    "the_settings_are_refused": "See [Conduit](../guide/conduit.md#when-a-pipeline-does-not-run).",
    "the_spool_cannot_be_swept": "The line has the error of the disk or bucket; check its rights to delete.",
    "the_status_page_is_open_to": "Set `status.token`, or `status.host: 127.0.0.1`.",
    "the_start_is_not_answered": (
        "Look at the instance's load, if it lasts: each attempt waits twice as long as the one before."
    ),
    "the_tables_columns_as_of_the": "Nothing: the columns of now are taken.",
    "transaction_incomplete": "Run `spanner-cdc audit`, and report what it finds with the transaction's id.",
    "watermark_stalled": (
        "Nothing at first: queries are sent again. See [stalled](../operations.md#when-the-watermark-is-stalled)."
    ),
    "whether_the_change_stream_watches_new": "Nothing; the next look is half a minute later. The line has the reason.",
    "worker_killed": "See whether the machine swaps, or has too few cores for `source.workers`.",
    "worker_replaced": "Nothing, unless it recurs: see whether the machine is out of memory.",
}
