"""What every resource provider needs to speak with the engine: values, differences, messages, errors."""
