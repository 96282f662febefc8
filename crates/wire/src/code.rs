//! The stable error codes, each with its HTTP status. Knows nothing of where an error comes from.

use serde::{Deserialize, Serialize};

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $status:literal;)*) => {
        /// A stable name for what went wrong; the words around it may change, the name does not.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum Code {
            $($(#[$doc])* #[serde(rename = $text)] $name,)*
        }

        impl Code {
            /// Every code.
            pub const ALL: &'static [Code] = &[$(Code::$name),*];

            /// The name on the wire.
            pub fn as_str(self) -> &'static str {
                match self { $(Code::$name => $text),* }
            }

            /// The status an HTTP answer with this code has.
            pub fn status(self) -> u16 {
                match self { $(Code::$name => $status),* }
            }
        }
    };
}

codes! {
    /// The message is not JSON, or not one this protocol has.
    BadMessage = "bad_message", 400;
    /// A query parameter has a value it cannot have.
    BadQuery = "bad_query", 400;
    /// A resource has no such mode.
    BadMode = "bad_mode", 400;
    /// A depth is 0 or not a number.
    BadDepth = "bad_depth", 400;
    /// A path is not written as paths are.
    BadPath = "bad_path", 400;
    /// A name no namespace can have.
    BadNamespace = "bad_namespace", 400;
    /// The namespace is one that each server keeps for itself.
    ReservedNamespace = "reserved_namespace", 400;
    /// A lock without resources.
    NoResources = "no_resources", 400;
    /// The first message of a connection is neither `hello` nor `attach`.
    HelloFirst = "hello_first", 400;
    /// A second `hello` or `attach` on one connection.
    AlreadyOpen = "already_open", 400;
    /// More than a named limit allows; the message names it.
    OverLimit = "over_limit", 400;
    /// The request is not a WebSocket handshake where one is needed.
    NotWebsocket = "not_websocket", 400;
    /// The secret is not that of the session.
    WrongSecret = "wrong_secret", 403;
    /// The request comes from a web page of another site.
    ForeignOrigin = "foreign_origin", 403;
    /// The request names a host that this server is not.
    ForeignHost = "foreign_host", 403;
    /// Raw operations are off unless the server is started with `--raw-operations`.
    RawOperationsOff = "raw_operations_off", 403;
    /// There is nothing at this address.
    NotFound = "not_found", 404;
    /// There is something at this address, but not for this method.
    MethodNotAllowed = "method_not_allowed", 405;
    /// There is no such lock, or it belongs to another session.
    UnknownLock = "unknown_lock", 404;
    /// There is no such session, or no longer.
    UnknownSession = "unknown_session", 404;
    /// There is no such namespace at the moment.
    UnknownNamespace = "unknown_namespace", 404;
    /// The lock has no resource at the path to be converted.
    NoSuchResource = "no_such_resource", 400;
    /// The lock still waits.
    NotGranted = "not_granted", 409;
    /// The lock is held already, so there is nothing to cancel.
    AlreadyGranted = "already_granted", 409;
    /// A conversion of the lock already waits.
    AlreadyConverting = "already_converting", 409;
    /// Waiting would never end.
    Deadlock = "deadlock", 409;
    /// Others hold what was asked for, and the request did not want to wait.
    Locked = "locked", 423;
    /// Others held what was asked for until the wait was over.
    Timeout = "timeout", 423;
    /// The lock is gone: abandoned, or never put back after a restart.
    LockLost = "lock_lost", 409;
    /// The lock was ended by an operator.
    ReleasedByOperator = "released_by_operator", 409;
    /// The namespace grants nothing yet: sessions held locks in it when the server stopped without them.
    GracePeriod = "grace_period", 503;
    /// The namespace is in no grace period that could be ended.
    NoGracePeriod = "no_grace_period", 409;
    /// The server is about to stop and takes no new locks.
    Draining = "draining", 503;
    /// The server has as many of these as it takes at once; the message says which.
    TooMany = "too_many", 503;
    /// The disk failed; nothing is promised that could not be kept.
    StorageFailed = "storage_failed", 503;
    /// Unfinished requests and unread answers hold as much memory as they may.
    MemoryInUse = "memory_in_use", 503;
    /// The body of the request did not arrive in time.
    BodyTimeout = "body_timeout", 408;
    /// The body is not JSON, or not what this request takes.
    BadBody = "bad_body", 400;
    /// The body has a member that this request does not have.
    UnknownMember = "unknown_member", 400;
    /// A name no owner of leases can have.
    BadOwner = "bad_owner", 400;
    /// A key is not written as keys are.
    BadKey = "bad_key", 400;
    /// A name no collection can have.
    BadCollection = "bad_collection", 400;
    /// A name no field can have.
    BadField = "bad_field", 400;
    /// The field says something about its document; it can be read, not written.
    ReservedField = "reserved_field", 400;
    /// The collection is one that the store keeps itself.
    ReservedCollection = "reserved_collection", 400;
    /// The schema of the collection knows no such field.
    UnknownField = "unknown_field", 400;
    /// The document would not be what the schema of its collection says.
    SchemaMismatch = "schema_mismatch", 400;
    /// The text is not a JSON Schema that can be used.
    BadSchema = "bad_schema", 400;
    /// A schema for documents must be one of objects.
    SchemaNotObjects = "schema_not_objects", 400;
    /// The schema does not go with earlier versions; the answer lists the reasons.
    SchemaIncompatible = "schema_incompatible", 409;
    /// The registry, or this subject, takes no changes at the moment.
    SchemaReadOnly = "schema_read_only", 409;
    /// There is no such subject.
    NoSubject = "no_subject", 404;
    /// The subject has no such version.
    NoVersion = "no_version", 404;
    /// It is deleted already, though not for good.
    SchemaDeleted = "schema_deleted", 409;
    /// It has to be deleted before it is deleted for good.
    SchemaNotDeleted = "schema_not_deleted", 409;
    /// A version is neither a number from 1 nor latest.
    BadVersion = "bad_version", 400;
    /// There is no such compatibility level, policy or mode.
    BadSetting = "bad_setting", 400;
    /// A filter is not written as filters are.
    BadFilter = "bad_filter", 400;
    /// The cursor is not one this server gave for such a request.
    BadCursor = "bad_cursor", 400;
    /// The events of a write make no sense.
    BadEvents = "bad_events", 400;
    /// Elements are to be added to or removed from what is no list of whole numbers and strings.
    NotAList = "not_a_list", 400;
    /// Something is to be put into what is neither a list nor an object.
    NoContainer = "no_container", 400;
    /// The past cannot be locked; read it as a snapshot.
    LockedPast = "locked_past", 400;
    /// Lists and objects inside each other, too many of them.
    JsonTooDeep = "json_too_deep", 400;
    /// There is no such document, or it is deleted.
    NoDocument = "no_document", 404;
    /// The document has no such node.
    NoNode = "no_node", 404;
    /// There is no such index.
    NoIndex = "no_index", 404;
    /// There is such a document already.
    DocumentExists = "document_exists", 409;
    /// The document is deleted; it can be restored.
    DocumentDeleted = "document_deleted", 409;
    /// The document is not deleted, so there is nothing to restore.
    NotDeleted = "not_deleted", 409;
    /// What was read has changed since.
    PositionLocked = "position_locked", 409;
    /// What happened at this position is forgotten.
    PositionTooOld = "position_too_old", 410;
    /// The position is later than anything written to the namespace.
    PositionAhead = "position_ahead", 409;
    /// The document is not what `If-Match` or `If-None-Match` asks for.
    PreconditionFailed = "precondition_failed", 412;
    /// The idempotency key was used for another write.
    IdempotencyMismatch = "idempotency_mismatch", 409;
    /// The body is of a kind this request does not take.
    UnsupportedMediaType = "unsupported_media_type", 415;
    /// A dump can be loaded into an empty namespace only.
    NamespaceNotEmpty = "namespace_not_empty", 409;
    /// A dump is being loaded into the namespace; it can be written to when that is done.
    NamespaceLoading = "namespace_loading", 409;
    /// What is to be written is being purged; it can be written when it is gone.
    Purging = "purging", 409;
    /// The request goes by a shard map that is not in force any more, or not yet; ask again.
    WrongEpoch = "wrong_epoch", 409;
    /// The parts of the write belong to different shards, so it cannot be done as a whole.
    SpansShards = "spans_shards", 409;
    /// No shard can be told for a key: the shard function does not answer as it must.
    NoShard = "no_shard", 400;
    /// The shard map makes no sense.
    BadMap = "bad_map", 400;
    /// This node has no shard map yet.
    NoMap = "no_map", 503;
    /// The server is not part of a cluster.
    NotSharded = "not_sharded", 409;
    /// The request claims to come from a node of the cluster, and does not prove it.
    NotAPeer = "not_a_peer", 403;
    /// A shard that is needed does not answer; try again.
    ShardUnreachable = "shard_unreachable", 503;
    /// The keys are on their way to another shard; try again.
    Moving = "moving", 503;
    /// A transition to another shard map is under way, or none is.
    Resharding = "resharding", 409;
    /// Not every record has been copied, so the old places cannot be given up.
    NotCopied = "not_copied", 409;
    /// Something would be lost, so it is done by force only.
    ForceNeeded = "force_needed", 409;
    /// All documents of the namespace are at its home, which cannot move without them.
    WholeNamespace = "whole_namespace", 409;
    /// The node is live, so it cannot be taken off the list.
    NodeLive = "node_live", 409;
    /// There is no such procedure.
    NoProcedure = "no_procedure", 404;
    /// The text is not a function that can be run.
    BadScript = "bad_script", 400;
    /// A procedure failed, or took too much.
    ProcedureFailed = "procedure_failed", 422;
    /// The request takes more work than one request may; the message names the limit.
    BudgetExceeded = "budget_exceeded", 422;
    /// A node of a cluster does not do this; a single server does.
    NotOnCluster = "not_on_cluster", 409;
    /// There is no such collection.
    NoCollection = "no_collection", 404;
    /// The operations of an update make no sense for the document.
    BadUpdate = "bad_update", 400;
    /// Another connection has taken over the session.
    Replaced = "replaced", 409;
    /// The other side was silent for too long.
    Silent = "silent", 408;
}

/// Written out, because the derived schema does not see names that a macro gives.
impl utoipa::PartialSchema for Code {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        utoipa::openapi::ObjectBuilder::new()
            .schema_type(utoipa::openapi::Type::String)
            .description(Some(
                "A stable name for what went wrong; the words around it may change, the name does not.",
            ))
            .enum_values(Some(Code::ALL.iter().map(|code| code.as_str())))
            .into()
    }
}

impl utoipa::ToSchema for Code {}

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_written_as_its_name() {
        for code in Code::ALL {
            assert_eq!(serde_json::to_string(code).unwrap(), format!("\"{code}\""));
            assert!((400..600).contains(&code.status()), "{code}");
            assert_ne!(code.status(), 500, "{code}");
        }
    }
}
