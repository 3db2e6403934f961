package s3

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/objects/remote"
)

// Keys that expire are replaced before: other ones are asked for when a quarter of their time is
// left, at most mostEarly, while those in use go on being used. The job's process, which is asked,
// may be computing until its next batch.
const (
	mostEarly = 5 * time.Minute
	// renewTimeout is how long others may take to come.
	renewTimeout = time.Minute
	// afterFailure is the pause after none came.
	afterFailure = 2 * time.Second
)

// keys are the keys in use. It implements credentials.Provider. A nil *keys has none.
type keys struct {
	renew func(ctx context.Context) (*source.Access, error) // nil: there are no others
	ctx   context.Context
	end   context.CancelFunc
	tasks sync.WaitGroup

	mu      sync.Mutex // guards the following
	now     source.Keys
	since   time.Time     // when they came
	expired bool          // the store has refused them
	coming  chan struct{} // closed when the others have come, or have not; nil: none are asked for
	err     error         // why no others came the last time
	failed  time.Time     // when
}

func newKeys(first source.Keys, renew func(ctx context.Context) (*source.Access, error)) *keys {
	k := &keys{renew: renew, now: first, since: time.Now()}
	k.ctx, k.end = context.WithCancel(context.Background())
	return k
}

func (k *keys) close() {
	if k == nil {
		return
	}
	k.end()
	k.tasks.Wait()
}

// left returns how long the keys in use can still be used, and whether others are due. k.mu must be
// held.
func (k *keys) left(now time.Time) (left time.Duration, due bool) {
	switch {
	case k.expired:
		return 0, true
	case k.now.Expires.IsZero():
		return time.Hour, false
	}
	left = k.now.Expires.Sub(now)
	return left, left < min(k.now.Expires.Sub(k.since)/4, mostEarly)
}

// obtain returns the keys in use, once there are some that have not expired.
func (k *keys) obtain(ctx context.Context) (source.Keys, error) {
	if k == nil {
		return source.Keys{}, nil
	}
	for {
		k.mu.Lock()
		now := time.Now()
		left, due := k.left(now)
		if due && k.renew != nil && k.coming == nil && now.Sub(k.failed) > afterFailure {
			k.coming = make(chan struct{})
			k.tasks.Go(k.replace)
		}
		used, coming := k.now, k.coming
		err := k.err
		k.mu.Unlock()
		switch {
		case left > 0 || k.renew == nil: // the store refuses them if they have expired
			return used, nil
		case coming == nil:
			return used, &remote.Error{Kind: source.ErrUnavailable, Err: fmt.Errorf("its keys have "+
				"expired, and there are no others: %w", err)}
		}
		select {
		case <-coming:
		case <-ctx.Done():
			return used, ctx.Err()
		}
	}
}

// replace asks for other keys.
func (k *keys) replace() {
	ctx, cancel := context.WithTimeout(k.ctx, renewTimeout)
	defer cancel()
	found, err := k.renew(ctx)
	if err == nil && (found == nil || found.Keys == nil) {
		err = errors.New("the environment of the process has none any more")
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if err == nil {
		k.now, k.since = *found.Keys, time.Now()
		k.expired = false
	} else {
		k.err, k.failed = err, time.Now()
	}
	close(k.coming)
	k.coming = nil
}

// refused notes that the store has refused keys as expired, and reports whether there may be
// others.
func (k *keys) refused(used source.Keys) bool {
	if k == nil || k.renew == nil {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.expired = k.expired || k.now == used
	return true
}

// RetrieveWithCredContext implements credentials.Provider.
func (k *keys) RetrieveWithCredContext(*credentials.CredContext) (credentials.Value, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return credentials.Value{
		AccessKeyID: k.now.ID, SecretAccessKey: k.now.Secret, SessionToken: k.now.Token,
		SignerType: credentials.SignatureV4,
	}, nil
}

// Retrieve implements credentials.Provider.
func (k *keys) Retrieve() (credentials.Value, error) { return k.RetrieveWithCredContext(nil) }

// IsExpired implements credentials.Provider: each request asks for the keys in use.
func (k *keys) IsExpired() bool { return true }
