"""JSON shapes of requests, answers, streams and callbacks, and masking of credentials in them."""
