//! The description of the HTTP interface. Made from the handlers, so that it cannot say something else.

mod examples;
mod variants;

use super::{http::Api, lag};
use hyper::Method;
use lockwood_wire::Code;
use std::collections::BTreeMap;
use utoipa::{
    OpenApi,
    openapi::{
        Content, KnownFormat, ObjectBuilder, Ref, RefOr, ResponseBuilder, SchemaFormat, Type,
        path::{Operation, ParameterIn, PathItem},
        response::Response,
    },
};

const PROBLEM: &str = "#/components/schemas/Problem";
const PROBLEM_TYPE: &str = "application/problem+json";
/// What is no single JSON value and is passed on as it is.
const BYTES_TYPES: [&str; 2] = ["application/x-ndjson", "application/octet-stream"];

/// The OpenAPI document.
pub(crate) fn document() -> String {
    let mut api = Api::openapi();
    lag::describe(&mut api);
    api.paths.paths.values_mut().flat_map(operations).for_each(describe);
    if let Some(components) = &mut api.components {
        variants::name_all(&mut components.schemas);
        components.schemas.values_mut().for_each(variants::spell_out);
    }
    examples::add(&mut api);
    let mut text = api.to_pretty_json().expect("the description is valid JSON");
    text.push('\n');
    text
}

/// The parameters behind the `?` of each method and path.
pub(super) type Parameters = BTreeMap<(Method, String), Vec<String>>;

/// Which parameters the description has.
pub(super) fn parameters() -> Parameters {
    let mut parameters = Parameters::new();
    for (path, item) in Api::openapi().paths.paths {
        let methods = [
            (Method::GET, item.get),
            (Method::PUT, item.put),
            (Method::POST, item.post),
            (Method::DELETE, item.delete),
        ];
        for (method, operation) in methods {
            let Some(operation) = operation else { continue };
            let described = operation.parameters.into_iter().flatten();
            let in_query = described.filter_map(|one| match one {
                RefOr::T(one) if one.parameter_in == ParameterIn::Query => Some(one.name),
                _ => None,
            });
            parameters.insert((method, path.clone()), in_query.collect());
        }
    }
    parameters
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    [&mut item.get, &mut item.put, &mut item.post, &mut item.delete].into_iter().flatten()
}

/// Says of every body and response what it is, and that any request may be refused.
fn describe(operation: &mut Operation) {
    if let Some(RefOr::T(body)) = &mut operation.request_body {
        body.content.iter_mut().for_each(|(kind, content)| describe_content(kind, content));
    }
    let responses = &mut operation.responses.responses;
    for (status, response) in responses.iter_mut() {
        if let RefOr::T(response) = response {
            describe_response(status, response);
        }
    }
    responses.entry("default".to_owned()).or_insert_with(|| RefOr::T(any_refusal()));
}

fn describe_response(status: &str, response: &mut Response) {
    let is_refusal = response.content.values().any(is_problem);
    if is_refusal && let Some(content) = response.content.shift_remove("application/json") {
        response.content.insert(PROBLEM_TYPE.to_owned(), content);
    }
    response.content.iter_mut().for_each(|(kind, content)| describe_content(kind, content));
    if response.description.is_empty() {
        response.description = if is_refusal { refusal(status) } else { "Done.".to_owned() };
    }
}

fn describe_content(kind: &str, content: &mut RefOr<Content>) {
    let RefOr::T(content) = content else { return };
    content.schema.iter_mut().for_each(variants::spell_out);
    if BYTES_TYPES.contains(&kind) {
        let format = SchemaFormat::KnownFormat(KnownFormat::Binary);
        let bytes = ObjectBuilder::new().schema_type(Type::String).format(Some(format));
        content.schema = Some(bytes.into());
    }
}

fn is_problem(content: &RefOr<Content>) -> bool {
    let RefOr::T(content) = content else { return false };
    matches!(&content.schema, Some(RefOr::Ref(schema)) if schema.ref_location == PROBLEM)
}

/// The codes that a refusal with this status may have.
fn refusal(status: &str) -> String {
    let codes = Code::ALL.iter().filter(|code| code.status().to_string() == status);
    let codes: Vec<String> = codes.map(|code| format!("`{}`", code.as_str())).collect();
    format!("Refused; `code` is one of {}.", codes.join(", "))
}

fn any_refusal() -> Response {
    let content = Content::new(Some(Ref::new(PROBLEM)));
    ResponseBuilder::new()
        .description(
            "Refused for a reason that any request may meet: a limit, the `Host` or `Origin`, a drain.",
        )
        .content(PROBLEM_TYPE, content)
        .build()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use std::collections::BTreeSet;

    /// The file in the repository is what the server serves. `LOCKWOOD_UPDATE_GOLDEN=1` rewrites it.
    #[test]
    fn the_golden_file_is_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
        if std::env::var_os("LOCKWOOD_UPDATE_GOLDEN").is_some() {
            std::fs::write(path, super::document()).unwrap();
        }
        let golden = std::fs::read_to_string(path).unwrap_or_default();
        assert!(golden == super::document(), "docs/openapi.json is out of date: LOCKWOOD_UPDATE_GOLDEN=1");
    }

    /// Generators of clients drop alternatives that have no name, and everything that refers to them.
    #[test]
    fn alternatives_of_schemas_have_names() {
        let document: Value = serde_json::from_str(&super::document()).unwrap();
        let schemas = document["components"]["schemas"].as_object().unwrap();
        for (name, schema) in schemas {
            let alternatives = schema["oneOf"].as_array().into_iter().flatten();
            for alternative in alternatives {
                let is_plain = alternative["type"].as_str().is_some_and(|kind| kind != "object");
                assert!(is_plain || alternative["$ref"].is_string(), "{name}: {alternative}");
            }
        }
        for name in
            ["WireCondition", "WireFilterAnd", "WireEventCreate", "TransitionCommandReshard", "WriteOne"]
        {
            assert!(schemas.contains_key(name), "{name}");
        }
    }

    /// What is sent to a cluster only cannot be tried on one server.
    const WITHOUT_EXAMPLE: [&str; 3] = ["config", "put_map", "transition_command"];

    #[test]
    fn requests_have_examples() {
        let document: Value = serde_json::from_str(&super::document()).unwrap();
        let paths = document["paths"].as_object().unwrap();
        for operation in paths.values().flat_map(|item| item.as_object().unwrap().values()) {
            let id = operation["operationId"].as_str().unwrap();
            let body = &operation["requestBody"]["content"]["application/json"];
            let has_example = body["example"].is_object();
            assert!(body.is_null() || has_example || WITHOUT_EXAMPLE.contains(&id), "{id}");
        }
    }

    #[test]
    fn requests_that_may_be_too_much_work_say_so() {
        let document: Value = serde_json::from_str(&super::document()).unwrap();
        let paths = document["paths"].as_object().unwrap();
        let operations = paths.values().flat_map(|item| item.as_object().unwrap().values());
        let mut listed: Vec<&str> = operations
            .filter(|operation| operation["responses"]["422"].is_object())
            .map(|operation| operation["operationId"].as_str().unwrap())
            .collect();
        listed.sort_unstable();
        let expected = [
            "call",
            "count",
            "delete",
            "documents",
            "exists",
            "filter",
            "get_many",
            "insert",
            "join",
            "max",
            "min",
            "put",
            "replace",
            "restore",
            "take",
            "update",
            "write",
        ];
        assert_eq!(listed, expected);
    }

    #[test]
    fn operations_have_unique_ids_and_every_response_a_description_and_a_type() {
        let document: Value = serde_json::from_str(&super::document()).unwrap();
        let mut ids = BTreeSet::new();
        let paths = document["paths"].as_object().unwrap();
        let operations = paths.values().flat_map(|item| item.as_object().unwrap().values());
        for operation in operations {
            let id = operation["operationId"].as_str().unwrap();
            assert!(ids.insert(id), "two operations are called {id}");
            for (status, response) in operation["responses"].as_object().unwrap() {
                assert!(
                    response["description"].as_str().is_some_and(|text| !text.is_empty()),
                    "{id} {status}"
                );
                let refused = status == "default" || status.starts_with(['4', '5']);
                let kinds: Vec<&String> =
                    response["content"].as_object().into_iter().flat_map(|c| c.keys()).collect();
                // A body that is not there, and the other side of a WebSocket, have no type.
                assert!(
                    !kinds.is_empty() || ["101", "204", "304"].contains(&status.as_str()),
                    "{id} {status}"
                );
                assert!(
                    !refused || id == "readyz" || kinds == ["application/problem+json"],
                    "{id} {status}: {kinds:?}"
                );
            }
        }
        assert!(ids.len() > 80, "{}", ids.len());
    }
}
