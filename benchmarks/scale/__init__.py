"""What a thousand InferenceServices ask of the operator: memory, API calls, and the delay of an edit."""
