//! The kinds of change that break readers, with the names they have for ever. Knows nothing of how they are
//! found.

use std::fmt;

/// Each kind with its name, and what happened to the schema that reads, seen from the one that wrote.
macro_rules! kinds {
    ($($kind:ident $name:literal $meaning:literal),* $(,)?) => {
        /// What kind of change makes documents unreadable.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Kind {
            $(#[doc = $meaning] $kind,)*
        }

        impl Kind {
            /// Every kind.
            pub const ALL: &[Kind] = &[$(Kind::$kind,)*];

            /// Its name, which never changes.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Kind::$kind => $name,)*
                }
            }
        }
    };
}

kinds! {
    TypeChanged "TYPE_CHANGED" "No type is left in common.",
    TypeNarrowed "TYPE_NARROWED" "A type is no longer allowed.",
    SchemaBecameFalse "SCHEMA_BECAME_FALSE" "Nothing is allowed any more.",
    EnumNarrowed "ENUM_NARROWED" "A value is no longer in the `enum`.",
    EnumAdded "ENUM_ADDED" "Only listed values are allowed now.",
    ConstChanged "CONST_CHANGED" "Another value is the only one.",
    ConstAdded "CONST_ADDED" "Only one value is allowed now.",
    MaximumAdded "MAXIMUM_ADDED" "An upper bound where there was none.",
    MaximumDecreased "MAXIMUM_DECREASED" "A lower upper bound.",
    MinimumAdded "MINIMUM_ADDED" "A lower bound where there was none.",
    MinimumIncreased "MINIMUM_INCREASED" "A higher lower bound.",
    ExclusiveMaximumAdded "EXCLUSIVE_MAXIMUM_ADDED" "An exclusive upper bound where there was none.",
    ExclusiveMaximumDecreased "EXCLUSIVE_MAXIMUM_DECREASED" "A lower exclusive upper bound.",
    ExclusiveMinimumAdded "EXCLUSIVE_MINIMUM_ADDED" "An exclusive lower bound where there was none.",
    ExclusiveMinimumIncreased "EXCLUSIVE_MINIMUM_INCREASED" "A higher exclusive lower bound.",
    MultipleOfAdded "MULTIPLE_OF_ADDED" "Only multiples are allowed now.",
    MultipleOfChanged "MULTIPLE_OF_CHANGED" "Not every multiple before is one now.",
    MaxLengthAdded "MAX_LENGTH_ADDED" "Text has a greatest length now.",
    MaxLengthDecreased "MAX_LENGTH_DECREASED" "Text must be shorter.",
    MinLengthAdded "MIN_LENGTH_ADDED" "Text has a least length now.",
    MinLengthIncreased "MIN_LENGTH_INCREASED" "Text must be longer.",
    PatternAdded "PATTERN_ADDED" "Text must match a pattern now.",
    PatternChanged "PATTERN_CHANGED" "Text must match another pattern.",
    MaxItemsAdded "MAX_ITEMS_ADDED" "Lists have a greatest length now.",
    MaxItemsDecreased "MAX_ITEMS_DECREASED" "Lists must be shorter.",
    MinItemsAdded "MIN_ITEMS_ADDED" "Lists have a least length now.",
    MinItemsIncreased "MIN_ITEMS_INCREASED" "Lists must be longer.",
    UniqueItemsAdded "UNIQUE_ITEMS_ADDED" "Elements must be different now.",
    ItemAddedToOpenContentModel "ITEM_ADDED_TO_OPEN_CONTENT_MODEL"
        "An element is described that could be anything.",
    ItemAddedNotCovered "ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
        "An element is described more narrowly than the further elements were.",
    ItemRemovedFromClosedContentModel "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL"
        "An element is no longer described, and no others are allowed.",
    ItemRemovedNotCovered "ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
        "An element is no longer described, and further elements are described more narrowly.",
    AdditionalItemsRemoved "ADDITIONAL_ITEMS_REMOVED" "No further elements are allowed now.",
    AdditionalItemsNarrowed "ADDITIONAL_ITEMS_NARROWED" "Further elements are described more narrowly.",
    ContainsAdded "CONTAINS_ADDED" "A list must contain something now.",
    ContainsNarrowed "CONTAINS_NARROWED" "What a list must contain is described more narrowly.",
    RequiredAttributeAdded "REQUIRED_ATTRIBUTE_ADDED" "A property is required that could be missing.",
    MaxPropertiesAdded "MAX_PROPERTIES_ADDED" "Objects have a greatest size now.",
    MaxPropertiesDecreased "MAX_PROPERTIES_DECREASED" "Objects must be smaller.",
    MinPropertiesAdded "MIN_PROPERTIES_ADDED" "Objects have a least size now.",
    MinPropertiesIncreased "MIN_PROPERTIES_INCREASED" "Objects must be larger.",
    PropertyAddedToOpenContentModel "PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"
        "A property is described that could be anything.",
    PropertyAddedNotCovered "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
        "A property is described more narrowly than others were.",
    PropertyRemovedFromClosedContentModel "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"
        "A property is no longer described, and no others are allowed.",
    PropertyRemovedNotCovered "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
        "A property is no longer described, and others are described more narrowly.",
    AdditionalPropertiesRemoved "ADDITIONAL_PROPERTIES_REMOVED" "No other properties are allowed now.",
    AdditionalPropertiesNarrowed "ADDITIONAL_PROPERTIES_NARROWED" "Other properties are described more narrowly.",
    PatternPropertyAdded "PATTERN_PROPERTY_ADDED" "Properties with certain names are described that were not.",
    PatternPropertyNarrowed "PATTERN_PROPERTY_NARROWED"
        "Properties with certain names are described more narrowly.",
    PatternPropertyRemoved "PATTERN_PROPERTY_REMOVED"
        "Properties with certain names are no longer described, and others not allowed as they were.",
    PropertyNamesChanged "PROPERTY_NAMES_CHANGED" "Names of properties are restricted more.",
    DependencyAdded "DEPENDENCY_ADDED" "A property now asks for something else.",
    DependencyNarrowed "DEPENDENCY_NARROWED" "A property asks for more than before.",
    SumTypeNarrowed "SUM_TYPE_NARROWED" "No variant of `anyOf` or `oneOf` fits what was allowed.",
    OneOfAmbiguous "ONE_OF_AMBIGUOUS" "Two variants of `oneOf` fit where exactly one may.",
    NotAdded "NOT_ADDED" "Something is excluded now.",
    NotExtended "NOT_EXTENDED" "More is excluded.",
    ConditionChanged "CONDITION_CHANGED" "`if`, `then` and `else` ask for something else.",
    UnevaluatedPropertiesRemoved "UNEVALUATED_PROPERTIES_REMOVED"
        "No properties are allowed now that nothing else looks at.",
    UnevaluatedPropertiesNarrowed "UNEVALUATED_PROPERTIES_NARROWED"
        "Properties that nothing else looks at are described more narrowly.",
    UnevaluatedItemsRemoved "UNEVALUATED_ITEMS_REMOVED"
        "No elements are allowed now that nothing else looks at.",
    UnevaluatedItemsNarrowed "UNEVALUATED_ITEMS_NARROWED"
        "Elements that nothing else looks at are described more narrowly.",
    TooComplex "TOO_COMPLEX" "The schemas are too complex to be compared.",
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
