package cluster

import (
	"context"
	"net"
)

// Network is how a node reaches the others and is reached. Addresses are host:port; a host that is
// empty is any of this node's, port 0 any that is free. Errors are those of package net:
// EADDRINUSE, EADDRNOTAVAIL, EACCES and ECONNREFUSED are told apart. Node 0's address may be a
// name, which Dial looks up; others are looked up before, by the system.
//
// All methods may be called by many goroutines at a time.
type Network interface {
	// Listen takes connections.
	Listen(address string) (net.Listener, error)
	// Dial connects; it ends with ctx.
	Dial(ctx context.Context, address string) (net.Conn, error)
	// ListenPacket takes and sends datagrams, of failure detection.
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

// orSystem is n, or the system's network where none was chosen.
func orSystem(n Network) Network {
	if n == nil {
		return system{}
	}
	return n
}
