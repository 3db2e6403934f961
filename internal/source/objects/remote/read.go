package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hdmlp/hdmlp/internal/source"
)

// request is a request for bytes.
type request struct {
	object         *source.Object
	offset, length int64
}

// get makes a request, and fills parts with the bytes of its answer. It returns the object that
// they are from, which is the one that was asked for.
func (p *Objects) get(ctx context.Context, r *request, parts [][]byte) (source.Object, error) {
	p.counts.requests.Add(1)
	ctx, quiet := p.quiet(ctx)
	defer quiet.stop()
	answer, err := p.store.Get(ctx, r.object.Name, r.offset, r.length)
	if err != nil {
		return source.Object{}, p.refused(ctx, r, quiet.cause(err))
	}
	defer answer.Body.Close() //nolint:errcheck // all that was wanted has been read
	now := p.object(r.object.Name, answer.Version)
	if err := p.compare(r.object, &now); err != nil {
		return now, err
	}
	// Within the same version an answer without the bytes asked for is wrong.
	switch {
	case r.offset+r.length > answer.Size:
		return now, &Error{Kind: source.ErrShort, Err: fmt.Errorf("%d bytes, not %d", answer.Size,
			r.offset+r.length)}
	case answer.Offset != r.offset || answer.Length >= 0 && answer.Length != r.length:
		return now, &Error{Kind: source.ErrUnreadable, Err: fmt.Errorf("%d bytes from byte %d on were "+
			"asked for, and the server sent %d from byte %d on", r.length, r.offset, answer.Length,
			answer.Offset)}
	}
	for _, part := range parts {
		for len(part) > 0 {
			n, err := answer.Body.Read(part)
			p.counts.bytes.Add(int64(n))
			if part = part[n:]; len(part) == 0 {
				break
			}
			if err != nil {
				return now, cut(quiet.cause(err))
			}
			quiet.transferred()
		}
	}
	if answer.Length < 0 {
		if n, _ := answer.Body.Read(make([]byte, 1)); n > 0 {
			return now, &Error{Kind: source.ErrUnreadable, Err: fmt.Errorf("the server sent more than "+
				"the %d bytes that were asked for", r.length)}
		}
	}
	return now, nil
}

// cut returns the error of a body that ended, or could not be read on.
func cut(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("the connection ended before all bytes had come")
	}
	return &Error{Kind: source.ErrUnavailable, Err: err}
}

// refused returns the error of a request without an answer. If there are no bytes at the offset, it
// is that of an object that has changed.
func (p *Objects) refused(ctx context.Context, r *request, err error) error {
	var e *Error
	if !errors.As(err, &e) || !e.Beyond {
		return err
	}
	now, known := *r.object, e.Size >= 0
	if now.Size = e.Size; !known {
		p.counts.heads.Add(1)
		v, err := p.store.Head(ctx, r.object.Name)
		if err != nil {
			return err
		}
		now = p.object(r.object.Name, v)
	}
	if err := p.compare(r.object, &now); err != nil {
		return err
	}
	return &Error{Kind: source.ErrShort, Err: e.Err}
}

// silence ends a request during which nothing was transferred for long.
type silence struct {
	most   time.Duration
	timer  *time.Timer
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// errSilent is why a request was ended.
var errSilent = errors.New("nothing was transferred")

// quiet returns a context that ends when nothing is transferred for long.
func (p *Objects) quiet(ctx context.Context) (context.Context, *silence) {
	s := &silence{most: p.options.Quiet}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	s.timer = time.AfterFunc(s.most, func() {
		s.cancel(fmt.Errorf("%w for %v", errSilent, s.most))
	})
	return s.ctx, s
}

func (s *silence) transferred() { s.timer.Reset(s.most) }

func (s *silence) stop() {
	s.timer.Stop()
	s.cancel(nil)
}

// cause returns the error of the request: its own, unless it failed because of the silence.
func (s *silence) cause(err error) error {
	if cause := context.Cause(s.ctx); err != nil && errors.Is(cause, errSilent) {
		return &Error{Kind: source.ErrUnavailable, Err: cause}
	}
	return err
}
