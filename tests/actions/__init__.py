"""These tests call actions as the engine does; parsers of what people write, such as modes and
exports, are called directly where an action would only repeat what they say."""
