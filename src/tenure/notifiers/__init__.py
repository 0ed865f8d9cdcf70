"""How callbacks reach their targets, one attempt at a time. Retries are the relay's affair.

``http`` posts signed JSON to a URL.
"""
