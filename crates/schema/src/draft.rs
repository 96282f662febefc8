//! The editions of JSON Schema and which keywords each of them knows. Knows nothing of what a keyword means.

/// An edition of JSON Schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Draft {
    /// draft-04
    Draft4,
    /// draft-06
    Draft6,
    /// draft-07
    Draft7,
    /// 2019-09
    Draft201909,
    /// 2020-12, which a schema has that does not say.
    #[default]
    Draft202012,
}

impl Draft {
    /// The draft that a `$schema` names, whether or not it ends with `#` and however it is fetched.
    pub(crate) fn named(uri: &str) -> Option<Draft> {
        let bare = uri.trim_end_matches('#');
        let place = bare.strip_prefix("https://").or_else(|| bare.strip_prefix("http://"))?;
        match place {
            "json-schema.org/draft-04/schema" => Some(Draft::Draft4),
            "json-schema.org/draft-06/schema" => Some(Draft::Draft6),
            "json-schema.org/draft-07/schema" => Some(Draft::Draft7),
            "json-schema.org/draft/2019-09/schema" => Some(Draft::Draft201909),
            "json-schema.org/draft/2020-12/schema" => Some(Draft::Draft202012),
            _ => None,
        }
    }

    /// Whether a keyword means anything in this draft. What it does not know, a validator passes over, so
    /// nothing may be concluded from it.
    pub(crate) fn knows(self, keyword: &str) -> bool {
        match keyword {
            "const" | "contains" | "propertyNames" => self >= Draft::Draft6,
            "if" | "then" | "else" => self >= Draft::Draft7,
            "dependentRequired"
            | "dependentSchemas"
            | "minContains"
            | "maxContains"
            | "unevaluatedItems"
            | "unevaluatedProperties" => self >= Draft::Draft201909,
            "prefixItems" => self == Draft::Draft202012,
            "additionalItems" => self <= Draft::Draft201909,
            _ => true,
        }
    }

    /// Up to draft-07 nothing that stands beside a `$ref` counts.
    pub(crate) fn reference_stands_alone(self) -> bool {
        self <= Draft::Draft7
    }

    pub(crate) fn of_validator(self) -> jsonschema::Draft {
        match self {
            Draft::Draft4 => jsonschema::Draft::Draft4,
            Draft::Draft6 => jsonschema::Draft::Draft6,
            Draft::Draft7 => jsonschema::Draft::Draft7,
            Draft::Draft201909 => jsonschema::Draft::Draft201909,
            Draft::Draft202012 => jsonschema::Draft::Draft202012,
        }
    }
}
