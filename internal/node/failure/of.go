package failure

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/hdmlp/hdmlp/internal/engine/cache"
	"github.com/hdmlp/hdmlp/internal/engine/staging"
	"github.com/hdmlp/hdmlp/internal/node/config"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/store"
)

// onlyProblem reports whether err is a configuration's error with exactly one problem.
func onlyProblem(err error) bool {
	joined, ok := err.(interface{ Unwrap() []error }) // as config.Resolve returns it
	return ok && len(joined.Unwrap()) == 1
}

// Of returns the failure that a process gets for err. The caller owns the result.
func Of(err error) *Error {
	var known *Error
	var sample *source.SampleError
	var conflict *cache.ConflictError
	var verify *cache.VerifyError
	var set *source.Error
	var limit *store.LimitError
	var notOurs *store.UnsafeError
	var buffer *staging.LimitError
	var problem *config.Problem
	var tooLarge *config.LimitError
	needs := func(need, limit int64) map[string]any {
		return map[string]any{"need": need, "limit": limit}
	}
	e := &Error{Kind: Internal, Message: err.Error()}
	switch {
	case errors.As(err, &known):
		*e = *known
	case errors.As(err, &sample):
		e.Kind, e.Details = Sample, map[string]any{"sample": sample.ID, "path": sample.Path}
		if advice := sample.Advice(); advice != "" {
			e.Message += "; " + advice
		}
	case errors.As(err, &conflict):
		e.Kind, e.Details = Mismatch, map[string]any{
			"key": "digest of a sample", "sample": conflict.Sample, "path": conflict.Path,
			"node":   conflict.Node,
			"mine":   fmt.Sprintf("%08x", conflict.Mine),
			"theirs": fmt.Sprintf("%08x", conflict.Theirs),
		}
	case errors.As(err, &verify):
		e.Kind, e.Details = Audit, map[string]any{"sample": verify.Sample, "path": verify.Path}
	case errors.Is(err, source.ErrIndexDirectory): // a key of the configuration
		e.Kind = Config
	case errors.As(err, &set):
		e.Kind, e.Details = Dataset, map[string]any{"path": set.Path}
	case errors.As(err, &limit):
		e.Kind, e.Details = Limit, needs(limit.Need, limit.Limit)
	case errors.As(err, &notOurs):
		e.Kind = Config
	case errors.As(err, &buffer):
		e.Kind, e.Details = Limit, needs(buffer.Need, buffer.Limit)
	case onlyProblem(err) && errors.As(err, &tooLarge):
		e.Kind, e.Details = Limit, needs(tooLarge.Need, tooLarge.Limit)
	case errors.As(err, &problem):
		e.Kind = Config
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE),
		errors.Is(err, syscall.ENOMEM),
		errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EFBIG):
		e.Kind = Limit
	}
	return e
}
