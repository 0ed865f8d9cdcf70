"""Which addresses a callback may go to. An address in, the kind of place it is out.

IPv4 is open except for what the tables name. IPv6 is closed except for global unicast: what else
there is was reserved for something that is no public web server. An IPv4 address in an IPv6
disguise is judged as what it is.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network

_OFF_LIMITS = {
    "a cloud metadata address": (
        "169.254.169.254",  # AWS, Google, Azure and most others
        "169.254.170.2",  # AWS containers
        "100.100.100.200",  # Alibaba
        "168.63.129.16",  # Azure's platform, in a range that looks public
        "192.0.0.192",  # Oracle
        "fd00:ec2::254",
        "fd20:ce::254",
    ),
    "an unspecified address": ("0.0.0.0/8", "::"),
    "a loopback address": ("127.0.0.0/8", "::1"),
    "a link-local address": ("169.254.0.0/16", "fe80::/10"),
    "a private address": ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fec0::/10"),
    "a unique-local address": ("fc00::/7",),
    "a carrier-grade NAT address": ("100.64.0.0/10",),
    "a multicast address": ("224.0.0.0/4", "ff00::/8"),
    "a documentation address": (
        "192.0.2.0/24",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "2001:db8::/32",
        "3fff::/20",
    ),
    "a benchmarking address": ("198.18.0.0/15", "2001:2::/48"),
    "a reserved address": (
        "192.0.0.0/24",  # protocol assignments
        "192.88.99.0/24",  # former 6to4 relays
        "240.0.0.0/4",  # with the broadcast address
        "2001::/23",  # protocol assignments: Teredo, ORCHID …
    ),
}
_RULES = tuple(
    (rule, tuple(ip_network(network) for network in networks))
    for rule, networks in _OFF_LIMITS.items()
)
_GLOBAL_UNICAST = IPv6Network("2000::/3")
_DISGUISES = (
    # An IPv6 network whose addresses stand for IPv4 ones, and how many bits follow the latter.
    (IPv6Network("::ffff:0:0/96"), 0),  # IPv4-mapped
    (IPv6Network("64:ff9b::/96"), 0),  # NAT64
    (IPv6Network("2002::/16"), 80),  # 6to4
)


def off_limits(address: str) -> str | None:
    """What kind of place this is, if callbacks have no business there.

    Whatever is not plainly an address is off limits too: nobody could say where it leads.
    """
    try:
        ip = ip_address(address)
    except ValueError:
        return "something that is not an IP address"
    return _judge(_undisguised(ip))


def _judge(ip: IPv4Address | IPv6Address) -> str | None:
    for rule, networks in _RULES:
        if any(ip in network for network in networks):
            return rule
    return "a reserved address" if ip.version == 6 and ip not in _GLOBAL_UNICAST else None


def _undisguised(ip: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    for network, bits_behind in _DISGUISES:
        if ip in network:
            return IPv4Address(int(ip) >> bits_behind & 0xFFFFFFFF)
    return ip
