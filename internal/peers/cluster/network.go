package cluster

import (
	"context"
	"net"
)

// Network is how a node reaches the other nodes and is reached by them. Addresses are host:port; an
// empty host is any address of this node, port 0 any free port. Errors are those of package net:
// EADDRINUSE, EADDRNOTAVAIL, EACCES and ECONNREFUSED are distinguished. Node 0's address may be a
// host name, which Dial resolves; other names are resolved before, by the system's resolver.
//
// All methods must be safe for concurrent use.
type Network interface {
	// Listen accepts connections on address.
	Listen(address string) (net.Listener, error)
	// Dial connects to address; it gives up when ctx ends.
	Dial(ctx context.Context, address string) (net.Conn, error)
	// ListenPacket receives and sends the datagrams of failure detection.
	ListenPacket(address string) (net.PacketConn, error)
}

// system is the network of the operating system.
type system struct{}

func (system) Listen(address string) (net.Listener, error) { return net.Listen("tcp", address) }

func (system) Dial(ctx context.Context, address string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", address)
}

func (system) ListenPacket(address string) (net.PacketConn, error) {
	return net.ListenPacket("udp", address)
}

// OrSystem returns n, or the system's network if n is nil.
func OrSystem(n Network) Network {
	if n == nil {
		return system{}
	}
	return n
}
