// Package egress controls the network access of sandboxes. A sandbox has no network of its own; a
// [Gate] is attached to its executor and lets through what a policy ([sandbox.Network]) allows. It
// does so in two ways, with the same checks:
//
//   - a proxy on a port of the sandbox's loopback interface, HTTP (CONNECT and absolute URIs) and SOCKS5, for programs that support one ([Env]);
//   - a network interface (TUN) whose packets a network stack in this process handles, for all other programs: TCP, UDP and DNS.
//
// The sandbox has no interface to this host's networks, no address there and no route: its packets
// arrive here as bytes, and data leaves from a socket of this process if the policy allows it. So
// raw packets, spoofed addresses and broadcasts end in this process.
//
// Policies are checked against the addresses to be dialed, after this process has resolved names,
// and the checked address is the one that is dialed. Everything that arrives from the sandbox is
// hostile: it is limited in size, number and time.
//
// Start with [Parse] for policies and [Attach] for gates.
package egress
