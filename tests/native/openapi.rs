//! The description of the HTTP interface, judged by a validator of others, by its own examples, and by clients that
//! generators of others make from it.

use crate::{
    harness::{
        Server, npm,
        python::{run, venv},
        repository,
    },
    http::send,
};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

fn description() -> PathBuf {
    repository().join("docs/openapi.json").canonicalize().unwrap()
}

#[test]
fn description_is_valid_openapi() {
    let folder = repository().join("tests/python/openapi").canonicalize().unwrap();
    let python = venv(&folder.join("requirements.txt"));
    let printed = run(Command::new(python).args(["-m", "openapi_spec_validator"]).arg(description()));
    assert!(printed.trim_end().ends_with(": OK"), "{printed}");
}

#[test]
fn examples_of_the_description_fit_its_schemas() {
    let folder = repository().join("tests/python/openapi").canonicalize().unwrap();
    let python = venv(&folder.join("requirements.txt"));
    let printed = run(Command::new(python).arg("-B").arg(folder.join("examples.py")).arg(description()));
    assert!(printed.trim_end().ends_with("examples fit"), "{printed}");
}

/// A client of openapi-python-client, which leaves out what it does not understand and warns of it.
#[test]
fn generated_python_client_has_everything_and_works() {
    let folder = repository().join("tests/python/openapi-client").canonicalize().unwrap();
    let python = venv(&folder.join("requirements.txt"));
    let made = fresh_folder("openapi-python-client");
    let mut generate = Command::new(&python);
    generate.args([
        "-m",
        "openapi_python_client",
        "generate",
        "--meta",
        "none",
        "--fail-on-warning",
        "--path",
    ]);
    generate.arg(description()).arg("--config").arg(folder.join("config.yaml"));
    let printed = run(generate.arg("--output-path").arg(made.join("lockwood_client")));
    assert!(!printed.to_lowercase().contains("warning"), "{printed}");
    let server = Server::start(&[]);
    let mut using = Command::new(&python);
    using.arg("-B").arg(folder.join("use.py")).arg(server.native.to_string());
    assert_eq!(run(using.env("PYTHONPATH", made)).trim(), "done");
}

/// Types of openapi-typescript, under the strictest checks of the compiler, with openapi-fetch.
#[test]
fn generated_typescript_client_compiles_strictly_and_works() {
    let folder = repository().join("tests/typescript").canonicalize().unwrap();
    let made = Path::new(env!("CARGO_TARGET_TMPDIR")).join("openapi-typescript");
    fs::create_dir_all(&made).unwrap();
    for file in ["package.json", "package-lock.json", "tsconfig.json", "use.ts"] {
        fs::copy(folder.join(file), made.join(file)).unwrap();
    }
    npm::install(&made);
    let tool = |path: &str| {
        let mut node = Command::new("node");
        node.arg(made.join("node_modules").join(path)).current_dir(&made);
        node
    };
    npm::run(tool("openapi-typescript/bin/cli.js").arg(description()).args(["--output", "api.d.ts"]));
    npm::run(tool("typescript/bin/tsc").args(["--project", "tsconfig.json"]));
    let server = Server::start(&[]);
    let mut using = Command::new("node");
    using.arg(made.join("built/use.js")).arg(server.native.to_string());
    assert_eq!(npm::run(&mut using).trim(), "done");
}

fn fresh_folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if folder.exists() {
        fs::remove_dir_all(&folder).unwrap();
    }
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// The examples are requests that succeed one after the other, with answers that look like those they show.
#[test]
fn examples_of_the_description_work() {
    let read = |path: &str| -> Value {
        serde_json::from_str(&fs::read_to_string(repository().join(path)).unwrap()).unwrap()
    };
    let description = read("docs/openapi.json");
    let examples = read("crates/server/src/native/openapi/examples.json");
    let server = Server::start(&["--raw-operations"]);
    for example in examples.as_array().unwrap() {
        let (method, path) = address(&description, example);
        let body = match &example["request"] {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            json => json.to_string(),
        };
        let reply = send(server.native, &method, &path, &[], body.as_bytes());
        assert_eq!(example["status"], reply.status, "{method} {path} {body}: {}", reply.body);
        check_alike(&example["answer"], &reply.json(), &format!("{method} {path}"));
    }
}

/// A parameter that is overlooked misleads, so no route may do that, not even one that takes none.
#[test]
fn every_route_of_the_description_refuses_a_parameter_it_does_not_know() {
    let text = fs::read_to_string(description()).unwrap();
    let description: Value = serde_json::from_str(&text).unwrap();
    let server = Server::start(&["--raw-operations"]);
    for (template, item) in description["paths"].as_object().unwrap() {
        let path = template.split('/').map(|part| if part.starts_with('{') { "1" } else { part });
        let path = path.collect::<Vec<_>>().join("/");
        for method in item.as_object().unwrap().keys() {
            let target = format!("{path}?surely_unknown=1");
            let reply = send(server.native, &method.to_uppercase(), &target, &[], b"{}");
            let detail = reply.assert_problem(400, "bad_query")["detail"].to_string();
            assert!(
                detail.contains("`surely_unknown` is no parameter of this address"),
                "{method} {path}: {detail}"
            );
        }
    }
    send(server.native, "GET", "/openapi.json?a=b", &[], b"").assert_problem(400, "bad_query");
    send(server.native, "GET", "/v1/a/documents/b/1/c?a=b", &[], b"").assert_problem(400, "bad_query");
    send(server.native, "PATCH", "/v1/namespaces?a=b", &[], b"").assert_problem(405, "method_not_allowed");
}

/// The method of an example's operation, and its path with the example's parameters.
fn address(description: &Value, example: &Value) -> (String, String) {
    let id = &example["operation"];
    for (template, item) in description["paths"].as_object().unwrap() {
        let operations = item.as_object().unwrap().iter();
        let Some((method, _)) = operations.into_iter().find(|(_, operation)| operation["operationId"] == *id)
        else {
            continue;
        };
        let (mut path, mut separator) = (template.clone(), '?');
        for (name, value) in example["parameters"].as_object().into_iter().flatten() {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let hole = format!("{{{name}}}");
            if path.contains(&hole) {
                path = path.replace(&hole, &value);
            } else {
                path += &format!("{separator}{name}={value}");
                separator = '&';
            }
        }
        return (method.to_uppercase(), path);
    }
    panic!("no operation is called {id}");
}

/// That the answer has the members that the example shows, with values of the same kind.
#[track_caller]
fn check_alike(shown: &Value, real: &Value, place: &str) {
    match (shown, real) {
        (Value::Object(shown), Value::Object(real)) => {
            for (name, value) in shown {
                let found = real.get(name).unwrap_or_else(|| panic!("{place} has no {name}"));
                check_alike(value, found, &format!("{place}.{name}"));
            }
        }
        (Value::Array(shown), Value::Array(real)) => {
            assert_eq!(shown.is_empty(), real.is_empty(), "{place}");
            for (shown, real) in shown.iter().zip(real) {
                check_alike(shown, real, &format!("{place}[]"));
            }
        }
        _ => {
            assert_eq!(
                std::mem::discriminant(shown),
                std::mem::discriminant(real),
                "{place}: {shown} {real}"
            );
        }
    }
}
