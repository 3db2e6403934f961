package job

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/hdmlp/hdmlp/internal/cache"
	"github.com/hdmlp/hdmlp/internal/config"
	"github.com/hdmlp/hdmlp/internal/dataset"
	"github.com/hdmlp/hdmlp/internal/protocol"
	"github.com/hdmlp/hdmlp/internal/staging"
	"github.com/hdmlp/hdmlp/internal/storageclass"
)

// onlyProblem tells whether the configuration has one problem and no more.
func onlyProblem(err error) bool {
	joined, ok := err.(interface{ Unwrap() []error }) // as config.Resolve returns it
	return ok && len(joined.Unwrap()) == 1
}

// Message makes of any error what a process is told.
func Message(err error) *protocol.ErrorMessage {
	var message *protocol.ErrorMessage
	var sample *dataset.SampleError
	var conflict *cache.ConflictError
	var verify *cache.VerifyError
	var set *dataset.Error
	var limit *storageclass.LimitError
	var notOurs *storageclass.UnsafeError
	var buffer *staging.LimitError
	var problem *config.Problem
	var tooLarge *config.LimitError
	switch {
	case errors.As(err, &message):
		copied := *message
		return &copied
	case errors.As(err, &sample):
		return &protocol.ErrorMessage{Kind: protocol.KindSample, Message: err.Error(), Details: map[string]any{"sample": sample.ID, "path": sample.Path}}
	case errors.As(err, &conflict):
		return &protocol.ErrorMessage{Kind: protocol.KindMismatch, Message: err.Error(), Details: map[string]any{
			"key": "digest of a sample", "sample": conflict.Sample, "path": conflict.Path, "node": conflict.Node,
			"mine": fmt.Sprintf("%08x", conflict.Mine), "theirs": fmt.Sprintf("%08x", conflict.Theirs),
		}}
	case errors.As(err, &verify):
		return &protocol.ErrorMessage{Kind: protocol.KindAudit, Message: err.Error(), Details: map[string]any{"sample": verify.Sample, "path": verify.Path}}
	case errors.As(err, &set):
		return &protocol.ErrorMessage{Kind: protocol.KindDataset, Message: err.Error(), Details: map[string]any{"path": set.Path}}
	case errors.As(err, &limit):
		return limitMessage(err.Error(), limit.Need, limit.Limit)
	case errors.As(err, &notOurs):
		return &protocol.ErrorMessage{Kind: protocol.KindConfig, Message: err.Error()}
	case errors.As(err, &buffer):
		return limitMessage(err.Error(), buffer.Need, buffer.Limit)
	case onlyProblem(err) && errors.As(err, &tooLarge):
		return limitMessage(err.Error(), tooLarge.Need, tooLarge.Limit)
	case errors.As(err, &problem):
		return &protocol.ErrorMessage{Kind: protocol.KindConfig, Message: err.Error()}
	case errors.Is(err, protocol.ErrProtocol):
		return &protocol.ErrorMessage{Kind: protocol.KindProtocol, Message: err.Error()}
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.ENOMEM), errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EFBIG):
		return &protocol.ErrorMessage{Kind: protocol.KindLimit, Message: err.Error()}
	}
	return &protocol.ErrorMessage{Kind: protocol.KindInternal, Message: err.Error()}
}
