"""The `InferenceService` resource as typed values; the CRD and its reference page are generated from them."""
