package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/hdmlp/hdmlp/internal/peers/auth"
	"github.com/hdmlp/hdmlp/internal/peers/exchange"
)

// getter fetches sample id into dst.
type getter func(ctx context.Context, id int32, dst []byte) error

// connect returns a getter for the peer, and a function that closes its connections.
func connect(ctx context.Context, o options) (get getter, end func(), err error) {
	if o.peers == "exchange" || o.peers == "exchange-tls" {
		id, port := member(1, nil), exchangePort
		if o.peers == "exchange-tls" {
			port = tlsPort
			if id.TLS, err = auth.DrawTLS(); err != nil {
				return nil, nil, err
			}
		}
		c := exchange.NewClient(id, 0, func(ctx context.Context) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", fmt.Sprintf("%s:%d", o.listen, port))
		}, exchange.ClientOptions{Conns: o.conns})
		fetch := func(ctx context.Context, id int32, dst []byte) error {
			_, err := c.Fetch(ctx, id, dst, exchange.Want{Size: len(dst)})
			return err
		}
		return fetch, func() { c.Close() }, c.Connect(ctx)
	}
	raw := o.peers == "grpc-raw"
	settings := []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1 << 30)),
	}
	if raw {
		settings = append(settings, grpc.WithInitialWindowSize(window),
			grpc.WithInitialConnWindowSize(4*window),
			grpc.WithDefaultCallOptions(grpc.ForceCodecV2(asItIs{})))
	}
	conns := make([]*grpc.ClientConn, o.conns)
	for i := range conns {
		conns[i], err = grpc.NewClient(fmt.Sprintf("passthrough:///%s:%d", o.listen, grpcPort),
			settings...)
		if err != nil {
			return nil, nil, err
		}
	}
	end = func() {
		for _, c := range conns {
			c.Close()
		}
	}
	var next atomic.Uint32
	conn := func() *grpc.ClientConn { return conns[int(next.Add(1))%len(conns)] }
	if raw {
		return func(ctx context.Context, id int32, dst []byte) error {
			request := message{mem.BufferSlice{mem.SliceBuffer(binary.LittleEndian.AppendUint32(nil,
				uint32(id)))}}
			var answer message
			if err := conn().Invoke(ctx, method, &request, &answer); err != nil {
				return err
			}
			defer answer.data.Free()
			return complete(answer.data.CopyTo(dst), dst)
		}, end, nil
	}
	return func(ctx context.Context, id int32, dst []byte) error {
		var answer wrapperspb.BytesValue
		if err := conn().Invoke(ctx, method, wrapperspb.Int32(id), &answer); err != nil {
			return err
		}
		return complete(copy(dst, answer.Value), dst)
	}, end, nil
}

func complete(n int, dst []byte) error {
	if n != len(dst) {
		return fmt.Errorf("gRPC: sample has %d bytes, not %d", n, len(dst))
	}
	return nil
}

const (
	method = "/bench.Samples/Fetch"
	window = 16 << 20
)

// newRPC returns a gRPC server of a's samples.
func newRPC(o options, a *arena) *grpc.Server {
	var settings []grpc.ServerOption
	handler := plain
	if o.peers == "grpc-raw" {
		settings = append(settings, grpc.ForceServerCodecV2(asItIs{}),
			grpc.InitialWindowSize(window), grpc.InitialConnWindowSize(4*window))
		handler = raw
	}
	s := grpc.NewServer(settings...)
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: "bench.Samples", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Fetch", Handler: handler}},
	}, a)
	return s
}

func plain(srv any, _ context.Context, decode func(any) error,
	_ grpc.UnaryServerInterceptor,
) (any, error) {
	var id wrapperspb.Int32Value
	if err := decode(&id); err != nil {
		return nil, err
	}
	sample, _ := srv.(*arena).Held(id.Value, exchange.Want{})
	return wrapperspb.Bytes(sample.Data), nil
}

func raw(srv any, _ context.Context, decode func(any) error,
	_ grpc.UnaryServerInterceptor,
) (any, error) {
	var request message
	if err := decode(&request); err != nil {
		return nil, err
	}
	var id [4]byte
	request.data.CopyTo(id[:])
	request.data.Free()
	sample, _ := srv.(*arena).Held(int32(binary.LittleEndian.Uint32(id[:])), exchange.Want{})
	return &message{mem.BufferSlice{mem.SliceBuffer(sample.Data)}}, nil
}

// message is bytes, and asItIs a codec that does not copy them.
type message struct{ data mem.BufferSlice }

type asItIs struct{}

func (asItIs) Name() string                           { return "raw" }
func (asItIs) Marshal(v any) (mem.BufferSlice, error) { return v.(*message).data, nil }
func (asItIs) Unmarshal(data mem.BufferSlice, v any) error {
	data.Ref()
	v.(*message).data = data
	return nil
}
