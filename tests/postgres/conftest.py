from tests.notifiers.conftest import certificate, server_tls

__all__ = ["certificate", "server_tls"]
