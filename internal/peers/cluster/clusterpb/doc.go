// Package clusterpb is the control protocol of cluster: what protoc makes of cluster.proto.
// It does nothing by itself.
package clusterpb

// protoc from Debian 12; connectrpc.com/connect/cmd/protoc-gen-connect-go@v1.21.1,
// google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12.
//go:generate protoc --go_out=. --go_opt=paths=source_relative --connect-go_out=. --connect-go_opt=paths=source_relative,package_suffix= cluster.proto
