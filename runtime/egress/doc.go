// Package egress is the network of sandboxes: the only way out of a machine that otherwise has
// none. A [Gate] is hung on a machine's executor and lets through what a policy ([sandbox.Network])
// allows, by two ways that are judged alike:
//
//   - a proxy on a port of the machine's loopback, HTTP (CONNECT and absolute URIs) and SOCKS5, for programs that know one ([Env]);
//   - a network interface (TUN) whose packets a network stack in this process answers, for all others: TCP, UDP and DNS.
//
// The machine itself has no interface to this host's networks, no address there and no route: what
// it sends comes here as bytes and leaves, if it does, from a socket of ours. So its raw packets,
// spoofed addresses and broadcasts end in this process.
//
// A policy is decided on the addresses that are dialled, after names are resolved, by us; the
// address that was judged is the one that is dialled. Everything that arrives from the machine is
// hostile: it is bounded in size, number and time.
//
// Begin with [Parse] for policies and [Attach] for gates.
package egress
