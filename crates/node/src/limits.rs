//! Every limit with its name, default and bounds. Knows nothing of where it is enforced.

macro_rules! limits {
    ($($(#[doc = $help:literal])* $name:ident: $default:literal, $least:literal..=$most:literal;)*) => {
        /// What the server takes at most.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct Limits {
            $($(#[doc = $help])* pub $name: u64,)*
        }

        impl Default for Limits {
            fn default() -> Limits {
                Limits { $($name: $default,)* }
            }
        }

        impl Limits {
            /// All limits, for help texts and flags.
            pub const SPECS: &'static [LimitSpec] = &[$(LimitSpec {
                name: stringify!($name),
                help: concat!($($help),*),
                default: $default,
                least: $least,
                most: $most,
            },)*];

            /// Every limit as wide as it can be set.
            pub fn widest() -> Limits {
                Limits { $($name: $most,)* }
            }

            /// Sets the limit called `name`; false if there is none.
            pub fn set(&mut self, name: &str, value: u64) -> bool {
                match name {
                    $(stringify!($name) => self.$name = value,)*
                    _ => return false,
                }
                true
            }
        }
    };
}

/// One limit, described.
#[derive(Debug, Clone, Copy)]
pub struct LimitSpec {
    /// Its name; the flag is the same with dashes.
    pub name: &'static str,
    /// What it limits.
    pub help: &'static str,
    /// Its value unless told otherwise.
    pub default: u64,
    /// The smallest value it may be given.
    pub least: u64,
    /// The largest.
    pub most: u64,
}

limits! {
    /// Segments of a path.
    path_segments_max: 200, 1..=250;
    /// Bytes of one segment of a path.
    segment_bytes_max: 1024, 1..=1_048_576;
    /// Resources of one lock.
    resources_per_lock_max: 50_000, 1..=1_000_000;
    /// Bytes of one message.
    message_bytes_max: 8_388_608, 1024..=1_073_741_824;
    /// Locks of one session, held and waiting.
    locks_per_session_max: 20_000, 1..=1_000_000;
    /// Resources of all locks of one session.
    resources_per_session_max: 100_000, 1..=10_000_000;
    /// Resources of all locks of one namespace.
    resources_per_namespace_max: 4_000_000, 1..=1_000_000_000;
    /// Nodes that the locks of one namespace make: a path makes as many as it has segments that no other has.
    nodes_per_namespace_max: 16_000_000, 1..=1_000_000_000;
    /// Locks that wait in one namespace.
    queue_len_max: 100_000, 1..=250_000;
    /// Sessions at the same time, those whose connection is lost included.
    sessions_max: 100_000, 1..=10_000_000;
    /// Namespaces with locks in use at the same time, and namespaces with documents.
    namespaces_max: 10_000, 1..=1_000_000;
    /// Bytes of the name of a namespace.
    namespace_bytes_max: 256, 1..=4096;
    /// Bytes of the name a session gives itself.
    session_name_bytes_max: 256, 1..=4096;
    /// Milliseconds a session's locks may stay after its connection is lost.
    abandon_timeout_ms_max: 600_000, 0..=31_536_000_000;
    /// Leases of one owner in one namespace, held and waiting.
    leases_per_owner_max: 20_000, 1..=1_000_000;
    /// Bytes of the name of an owner of leases.
    owner_bytes_max: 256, 1..=4096;
    /// Milliseconds a lease may be taken or renewed for.
    lease_ttl_ms_max: 86_400_000, 1..=31_536_000_000;
    /// Bytes of the note on a lease.
    lease_note_bytes_max: 65_536, 16..=1_048_576;
    /// Milliseconds a request may wait for locks.
    wait_ms_max: 3_600_000, 0..=86_400_000;
    /// Tokens a request may present.
    tokens_max: 1000, 1..=100_000;
    /// Versions of schemas in one namespace, deleted ones included.
    schemas_max: 1000, 1..=100_000;
    /// Bytes of a schema.
    schema_bytes_max: 262_144, 64..=524_288;
    /// Bytes of the name of a subject.
    subject_bytes_max: 256, 1..=4096;
    /// Connections at the same time, over all listeners.
    connections_max: 20_000, 1..=1_000_000;
    /// Bytes of the body of a request.
    body_bytes_max: 16_777_216, 1024..=1_073_741_824;
    /// Bytes of the body of a request from another node of the cluster.
    peer_body_bytes_max: 268_435_456, 1024..=17_179_869_184;
    /// Bytes of memory that bodies which have not arrived completely and answers which have not been read hold together.
    held_bytes_max: 1_073_741_824, 65_536..=1_099_511_627_776;
    /// Bytes of one line of a dump that is loaded.
    line_bytes_max: 268_435_456, 1024..=1_073_741_824;
    /// Bytes of an answer with documents.
    answer_bytes_max: 67_108_864, 1024..=1_073_741_824;
    /// Bytes of the name of a collection.
    collection_bytes_max: 128, 1..=1024;
    /// Bytes of a document's key.
    key_bytes_max: 512, 1..=4096;
    /// Bytes of the name of a field.
    field_bytes_max: 256, 1..=4096;
    /// Fields of a document.
    fields_per_document_max: 10_000, 1..=1_000_000;
    /// Bytes of all names and values of a document.
    document_bytes_max: 8_388_608, 64..=1_073_741_824;
    /// Lists and objects inside each other in a value.
    json_depth_max: 100, 1..=120;
    /// Events of a write call, all its requests together.
    events_per_call_max: 100_000, 1..=10_000_000;
    /// Requests of a write call.
    requests_per_call_max: 1000, 1..=100_000;
    /// Position locks of a write call, all its requests together.
    position_locks_per_call_max: 100_000, 1..=1_000_000;
    /// Bytes of the user and of the note of a write request, each.
    note_bytes_max: 1_048_576, 16..=16_777_216;
    /// Bytes of an idempotency key.
    idempotency_key_bytes_max: 256, 1..=4096;
    /// Conditions of a filter.
    filter_conditions_max: 1000, 1..=100_000;
    /// Filters inside each other.
    filter_depth_max: 50, 1..=100;
    /// Documents asked for by name in one request.
    documents_per_get_max: 100_000, 1..=1_000_000;
    /// Documents on one page.
    documents_per_page_max: 10_000, 1..=1_000_000;
    /// Documents looked at for one answer.
    looks_max: 10_000_000, 1..=1_000_000_000;
    /// Steps of work for one request; a step is comparing a short value, or 256 bytes.
    work_max: 100_000_000, 1000..=1_000_000_000_000;
    /// Milliseconds of work for one request that looks at many documents, validates large ones or runs a procedure.
    work_ms_max: 30_000, 1..=86_400_000;
    /// Requests of that kind that are worked on at the same time; more wait.
    jobs_max: 16, 1..=512;
    /// Documents of one side of a join that are remembered at once.
    join_rows_max: 1_000_000, 1..=100_000_000;
    /// Fields to sort by.
    sort_fields_max: 16, 1..=100;
    /// Ids handed out at once.
    reserve_max: 1_000_000, 1..=1_000_000_000;
    /// Secondary indexes of a namespace.
    indexes_max: 256, 1..=10_000;
    /// Backups that are taken at the same time.
    backups_max: 2, 1..=100;
    /// Change feeds at the same time.
    feeds_max: 1000, 1..=100_000;
    /// Bytes of a script of the Elasticsearch facade.
    script_bytes_max: 16_384, 16..=65_536;
    /// Writes in one bulk of the Elasticsearch facade.
    bulk_items_max: 100_000, 1..=10_000_000;
    /// Indexes, and likewise types, that an address of the Elasticsearch facade names.
    names_per_address_max: 1000, 1..=100_000;
    /// Scrolls of the Elasticsearch facade at the same time.
    scrolls_max: 500, 1..=100_000;
    /// Milliseconds a scroll of the Elasticsearch facade may be kept for between its pages.
    scroll_ttl_ms_max: 86_400_000, 1..=604_800_000;
    /// Bytes of writes that wait for the disk.
    pending_bytes_max: 268_435_456, 1024..=17_179_869_184;
    /// Locks on one page of a listing.
    page_len_max: 1000, 1..=10_000;
}
