// Package s3 implements objects.Objects over a bucket of Amazon S3 or of any store with its
// interface (Google Cloud Storage, MinIO, Ceph, Cloudflare R2 and others). Requests are signed and
// made by minio-go; package remote decides what their answers are worth.
package s3

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/s3utils"

	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/objects"
	"github.com/hdmlp/hdmlp/internal/source/objects/remote"
	"github.com/hdmlp/hdmlp/internal/source/objects/web"
)

// Options are what a bucket is opened with.
type Options struct {
	Bucket string
	Prefix string         // of all keys, without a slash at the end; "": none
	Access *source.Access // how it is reached
	// Renew returns an Access with other keys, before those in use expire; nil: there are no others.
	Renew func(ctx context.Context) (*source.Access, error)
}

// Bucket is the objects of a bucket.
type Bucket struct {
	options   Options
	core      minio.Core
	keys      *keys // nil: requests are not signed
	transport *http.Transport
	google    bool // it is Google's
}

var _ remote.Store = (*Bucket)(nil)

const amazon = "https://s3.amazonaws.com"

// Place returns the place of URLs s3://BUCKET and s3://BUCKET/PREFIX.
func Place() objects.Place {
	return objects.Place{
		Schemes: []string{"s3"}, Signed: true,
		Open: func(text string, v *source.View) (objects.Objects, error) {
			rest := text[strings.Index(text, "://")+len("://"):]
			bucket, prefix, _ := strings.Cut(rest, "/")
			o := Options{Bucket: bucket, Prefix: strings.TrimSuffix(prefix, "/"), Access: v.Access}
			if v.Renew != nil && v.Access.Keys != nil {
				o.Renew = func(ctx context.Context) (*source.Access, error) {
					renewed, err := v.Renew(ctx)
					if err != nil {
						return nil, err
					}
					defer renewed.Close() //nolint:errcheck // it has no descriptors
					return renewed.Access, nil
				}
			}
			b, err := New(o)
			if err != nil {
				return nil, err
			}
			return remote.New(b, remote.Options{}), nil
		},
	}
}

// lookups are how URLs name a bucket.
var lookups = map[string]minio.BucketLookupType{
	"":        minio.BucketLookupAuto,
	"path":    minio.BucketLookupPath, // https://HOST/BUCKET/KEY
	"virtual": minio.BucketLookupDNS,  // https://BUCKET.HOST/KEY
}

// New returns the objects of a bucket. It makes no request.
func New(o Options) (*Bucket, error) {
	if err := s3utils.CheckValidBucketName(o.Bucket); err != nil {
		return nil, fmt.Errorf("the URL names the bucket %q: %w", o.Bucket, err)
	}
	a := o.Access
	u, err := endpoint(a.Endpoint)
	if err != nil {
		return nil, err
	}
	lookup, ok := lookups[a.Style]
	if !ok {
		return nil, fmt.Errorf("the style %q is neither path nor virtual", a.Style)
	}
	network, err := web.NetworkOf(a)
	if err != nil {
		return nil, err
	}
	t := network.Transport()
	b := &Bucket{options: o, transport: t}
	signer := credentials.NewStatic("", "", "", credentials.SignatureAnonymous)
	if a.Keys != nil {
		b.keys = newKeys(*a.Keys, o.Renew)
		signer = credentials.New(b.keys)
	}
	region := a.Region
	if b.google = s3utils.IsGoogleEndpoint(*u); b.google {
		if a.RequesterPays {
			return nil, errors.New("requests to requester-pays buckets of Google Cloud Storage are " +
				"billed to a project, which AWS_REQUEST_PAYER does not name, and HDMLP cannot: unset " +
				"it, and copy the objects to a bucket of your own")
		}
		// It takes any region, and may not say a bucket's: that needs the permission
		// storage.buckets.get, which those who only read objects do not have.
		region = cmp.Or(region, "auto")
	}
	client, err := minio.New(u.Host, &minio.Options{
		Creds: signer, Secure: u.Scheme == "https", Transport: listings{t}, Region: region,
		BucketLookup: lookup, MaxRetries: 1,
	})
	if err != nil {
		return nil, err
	}
	client.SetAppInfo("hdmlp", "1")
	b.core = minio.Core{Client: client}
	return b, nil
}

// endpoint parses the URL of a store.
func endpoint(text string) (*url.URL, error) {
	if text == "" {
		text = amazon
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, fmt.Errorf("the endpoint: %w", web.NotURL(err))
	case u.User != nil:
		return nil, errors.New("the endpoint names a user: give a scheme and a host alone, as in " +
			"https://storage.example.com")
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" ||
		strings.Trim(u.Path, "/") != "":
		return nil, errors.New("the endpoint (AWS_ENDPOINT_URL) has to be a scheme and a host alone, " +
			"as in https://storage.example.com")
	}
	return u, nil
}

// Path implements remote.Store.
func (b *Bucket) Path(name string) string {
	return strings.TrimRight("s3://"+b.options.Bucket+"/"+b.key(name), "/")
}

func (b *Bucket) key(name string) string {
	if b.options.Prefix == "" {
		return name
	}
	return b.options.Prefix + "/" + name
}

// Close implements remote.Store.
func (b *Bucket) Close() error {
	b.keys.close()
	b.transport.CloseIdleConnections()
	return nil
}

// signed calls do with keys, and once more with others if the store refuses these as expired.
func (b *Bucket) signed(ctx context.Context, do func() error) error {
	for attempt := 1; ; attempt++ {
		used, err := b.keys.obtain(ctx)
		if err != nil {
			return err
		}
		err = do()
		if err == nil || ctx.Err() != nil {
			return err
		}
		if attempt == 1 && expired(err) && b.keys.refused(used) {
			continue
		}
		return b.failure(err)
	}
}

// expired reports whether the store has refused keys that were valid once.
func expired(err error) bool {
	switch minio.ToErrorResponse(err).Code {
	case "ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired":
		return true
	}
	return false
}

// hints are what to do about errors that stores name.
var hints = map[string]string{
	"NoSuchBucket": "there is no such bucket",
	"InvalidObjectState": "the object is archived; restore it, or copy it to a storage class " +
		"that is read at once",
	"RequestTimeTooSkewed": "the clock of this machine is wrong; set it",
	"AccessDenied": "these credentials do not give access to it (`hdmlp credentials` shows " +
		"which are used)",
	"InvalidAccessKeyId":           "the store does not know this access key",
	"SignatureDoesNotMatch":        "the secret key is not that of the access key",
	"AuthorizationHeaderMalformed": "the bucket is in another region; set AWS_REGION to that",
	"PermanentRedirect":            "the bucket is in another region; set AWS_REGION to that",
	"XAmzContentSHA256Mismatch":    "something between this machine and the store changes requests",
}

// failure returns the error of a request as package remote has it.
func (b *Bucket) failure(err error) error {
	var known *remote.Error
	if errors.As(err, &known) {
		return err
	}
	var r minio.ErrorResponse
	switch answered := errors.As(err, &r); {
	case !answered:
		return web.Unreached(err)
	case r.StatusCode == 0: // minio-go does not understand the answer
		return &remote.Error{Kind: source.ErrUnreadable, Err: errors.New(r.Message)}
	}
	text := r.Message
	if strings.HasPrefix(r.Code, strconv.Itoa(r.StatusCode)) { // minio-go's, of the status
		r.Code, text = "", ""
	}
	if hint := hints[r.Code]; hint != "" {
		text = hint
	}
	refusal := remote.Refusal(r.StatusCode, nil, r.Code, text)
	switch r.Code {
	case "", "NoSuchKey":
	case "SlowDown", "RequestTimeout", "InternalError", "ServiceUnavailable":
		refusal.Kind = source.ErrUnavailable
	default:
		if refusal.Kind == source.ErrMissing { // a bucket or a user, and no file
			refusal.Kind = source.ErrUnreadable
		}
	}
	return refusal
}

// Get implements remote.Store.
func (b *Bucket) Get(ctx context.Context, name string, offset, n int64) (*remote.Answer, error) {
	var answer *remote.Answer
	err := b.signed(ctx, func() error {
		o := minio.GetObjectOptions{}
		if err := o.SetRange(offset, offset+n-1); err != nil {
			return err
		}
		b.ask(&o)
		body, _, header, err := b.core.GetObject(ctx, b.options.Bucket, b.key(name), o)
		if err != nil {
			return err
		}
		status, length := http.StatusOK, int64(-1)
		if header.Get("Content-Range") != "" {
			status = http.StatusPartialContent
		}
		if l, err := strconv.ParseInt(header.Get("Content-Length"), 10, 64); err == nil {
			length = l
		}
		if answer, err = remote.AnswerOf(status, header, length, offset, n); err != nil {
			_ = body.Close()
			return err
		}
		answer.Tag = tag(answer.Tag)
		answer.Body = body
		return nil
	})
	return answer, err
}

// ask sets what requests for an object ask for in any case.
func (b *Bucket) ask(o *minio.GetObjectOptions) {
	if b.options.Access.RequesterPays {
		o.Set("x-amz-request-payer", "requester")
	}
	if b.google {
		// Otherwise it decompresses objects with Content-Encoding: gzip as it sends them, and ignores
		// ranges. As it changes this header on the way, minio-go does not sign it.
		o.Set("Accept-Encoding", "gzip")
	}
}

// tag returns an ETag without quotes, as listings have it.
func tag(etag string) string { return strings.Trim(etag, `"`) }

// Head implements remote.Store.
func (b *Bucket) Head(ctx context.Context, name string) (remote.Version, error) {
	var v remote.Version
	err := b.signed(ctx, func() error {
		o := minio.StatObjectOptions{}
		b.ask(&o)
		info, err := b.core.StatObject(ctx, b.options.Bucket, b.key(name), o)
		v = version(&info)
		if err != nil {
			err = b.reason(ctx, name, err)
		}
		return err
	})
	return v, err
}

// reason returns the error of a HEAD request with its reason: the answer has no body, so that only
// one to GET says whether the keys have expired, the clock is wrong, or there is no such bucket.
func (b *Bucket) reason(ctx context.Context, name string, err error) error {
	switch minio.ToErrorResponse(err).StatusCode {
	case http.StatusMovedPermanently, http.StatusBadRequest, http.StatusForbidden,
		http.StatusNotFound:
	default:
		return err
	}
	o := minio.GetObjectOptions{}
	b.ask(&o)
	if rangeErr := o.SetRange(0, 1); rangeErr != nil {
		return err
	}
	body, _, _, why := b.core.GetObject(ctx, b.options.Bucket, b.key(name), o)
	if why == nil {
		_ = body.Close()
		return err
	}
	if minio.ToErrorResponse(why).Code == "" {
		return err
	}
	return why
}

func version(i *minio.ObjectInfo) remote.Version {
	return remote.Version{Size: i.Size, Tag: tag(i.ETag), Modified: remote.Rounded(i.LastModified)}
}

// List implements remote.Store. Objects that stand for directories, whose keys end with a slash,
// are among those that are listed.
func (b *Bucket) List(ctx context.Context, prefix, after string,
	each func(string, remote.Version) error,
) error {
	cut := ""
	if b.options.Prefix != "" {
		cut = b.options.Prefix + "/"
	}
	last := ""
	if after != "" {
		last = cut + after
	}
	var own error // of the caller
	err := b.signed(ctx, func() error {
		o := minio.ListObjectsOptions{
			Prefix: cut + prefix, Recursive: true, StartAfter: last, FetchOwner: new(bool),
		}
		if b.options.Access.RequesterPays {
			o.Set("x-amz-request-payer", "requester")
		}
		for info := range b.core.Client.ListObjectsIter(ctx, b.options.Bucket, o) {
			if info.Err != nil {
				return info.Err
			}
			if info.Size < 0 {
				return &remote.Error{Kind: source.ErrUnreadable, Err: fmt.Errorf("the store lists %q "+
					"with %d bytes", info.Key, info.Size)}
			}
			if info.Key <= last || !strings.HasPrefix(info.Key, cut+prefix) {
				return &remote.Error{Kind: source.ErrUnreadable, Err: fmt.Errorf("the store lists %q "+
					"after %q; HDMLP needs one that lists keys in order", info.Key, last)}
			}
			last = info.Key
			if info.Key == cut {
				continue // the prefix itself
			}
			if own = each(info.Key[len(cut):], version(&info)); own != nil {
				return nil
			}
		}
		return ctx.Err()
	})
	if own != nil {
		return own
	}
	return err
}
