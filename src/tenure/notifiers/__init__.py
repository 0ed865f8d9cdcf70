"""How callbacks reach their targets, one attempt at a time. Who tries again is the relay's affair.

``http`` posts signed JSON to a URL.
"""
