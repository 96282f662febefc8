//! The examples of the description: requests that succeed one after the other on an empty server, and their answers, which a
//! test replays. Knows nothing of how they are answered.

use super::operations;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use utoipa::openapi::{
    Content, OpenApi, RefOr,
    path::{Operation, ParameterBuilder},
};

const EXAMPLES: &str = include_str!("examples.json");

/// A request, and what came of it on the server that it was tried with.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Example {
    operation: String,
    /// The parameters in the path and behind it.
    #[serde(default)]
    parameters: BTreeMap<String, Value>,
    #[serde(default)]
    request: Option<Value>,
    status: u16,
    answer: Value,
}

/// The first example of an operation is shown.
pub(super) fn add(api: &mut OpenApi) {
    let mut examples: BTreeMap<String, Example> = BTreeMap::new();
    let read: Vec<Example> = serde_json::from_str(EXAMPLES).expect("the tests have read it");
    for example in read {
        examples.entry(example.operation.clone()).or_insert(example);
    }
    for operation in api.paths.paths.values_mut().flat_map(operations) {
        let id = operation.operation_id.clone().unwrap_or_default();
        if let Some(example) = examples.remove(&id) {
            show(operation, example);
        }
    }
    assert!(examples.is_empty(), "there are no such operations: {:?}", examples.keys());
}

fn show(operation: &mut Operation, example: Example) {
    for parameter in operation.parameters.iter_mut().flatten() {
        let RefOr::T(parameter) = parameter else { continue };
        if let Some(value) = example.parameters.get(&parameter.name) {
            *parameter = ParameterBuilder::from(parameter.clone()).example(Some(value.clone())).build();
        }
    }
    if let (Some(RefOr::T(body)), Some(request)) = (&mut operation.request_body, example.request) {
        body.content.values_mut().for_each(|content| set(content, &request));
    }
    let response = operation.responses.responses.get_mut(&example.status.to_string());
    if let Some(RefOr::T(response)) = response {
        response.content.values_mut().for_each(|content| set(content, &example.answer));
    }
}

fn set(content: &mut RefOr<Content>, example: &Value) {
    if let RefOr::T(content) = content {
        content.example = Some(example.clone());
    }
}
