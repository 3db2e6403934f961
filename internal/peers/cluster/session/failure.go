package session

import (
	"encoding/json"
	"fmt"

	"github.com/hdmlp/hdmlp/internal/peers/cluster"
	pb "github.com/hdmlp/hdmlp/internal/peers/cluster/clusterpb"
)

// failures maps the kinds of errors that are sent to other nodes to their types.
var failures = map[string]func() error{
	"option":     func() error { return new(cluster.OptionError) },
	"address":    func() error { return new(cluster.AddressError) },
	"missing":    func() error { return new(cluster.MissingError) },
	"secret":     func() error { return new(cluster.SecretError) },
	"job":        func() error { return new(cluster.JobError) },
	"difference": func() error { return new(cluster.DifferenceError) },
	"duplicate":  func() error { return new(cluster.DuplicateError) },
	"rank":       func() error { return new(cluster.RankError) },
	"coverage":   func() error { return new(cluster.CoverageError) },
	"limit":      func() error { return new(cluster.LimitError) },
	"gather":     func() error { return new(cluster.GatherError) },
	"canceled":   func() error { return new(cluster.CanceledError) },
	"late":       func() error { return new(cluster.LateError) },
}

// EncodeFailure returns an error as it is sent to other nodes.
func EncodeFailure(err error) *pb.Failure {
	kind := ""
	switch err.(type) {
	case *cluster.OptionError:
		kind = "option"
	case *cluster.AddressError:
		kind = "address"
	case *cluster.MissingError:
		kind = "missing"
	case *cluster.SecretError:
		kind = "secret"
	case *cluster.JobError:
		kind = "job"
	case *cluster.DifferenceError:
		kind = "difference"
	case *cluster.DuplicateError:
		kind = "duplicate"
	case *cluster.RankError:
		kind = "rank"
	case *cluster.CoverageError:
		kind = "coverage"
	case *cluster.LimitError:
		kind = "limit"
	case *cluster.GatherError:
		kind = "gather"
	case *cluster.CanceledError:
		kind = "canceled"
	case *cluster.LateError:
		kind = "late"
	default:
		err = &cluster.RemoteError{Text: err.Error()}
	}
	detail, _ := json.Marshal(err) // of strings and numbers: never fails
	return &pb.Failure{Kind: kind, Detail: detail}
}

// DecodeFailure returns the error of another node.
func DecodeFailure(f *pb.Failure) error {
	make, ok := failures[f.GetKind()]
	err := error(new(cluster.RemoteError))
	if ok {
		err = make()
	}
	if json.Unmarshal(f.GetDetail(), err) != nil {
		return &cluster.RemoteError{
			Text: fmt.Sprintf("another node failed with an error of kind %q that this "+
				"node cannot decode", f.GetKind()),
		}
	}
	return err
}
